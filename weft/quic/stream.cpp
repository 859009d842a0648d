#include <weft/quic/stream.hpp>

#include <utility>

#include <weft/quic/detail/stream_state.hpp>

namespace weft::quic {

stream::stream() noexcept : state_{nullptr} {}

stream::stream(stream&& other) noexcept : state_{std::exchange(other.state_, nullptr)} {}

stream& stream::operator=(stream&& other) noexcept {
  if (this == &other) return *this;
  auto* old = std::exchange(state_, std::exchange(other.state_, nullptr));
  if (old) old->handle_dropped();
  return *this;
}

stream::~stream() {
  if (state_) state_->handle_dropped();
}

std::int64_t stream::id() const noexcept {
  return state_->core().id();
}

task<result<slice>> stream::read(std::size_t limit) {
  return detail::stream_state::read(detail::stream_ref{state_}, limit);
}

std::optional<result<slice>> stream::try_read(std::size_t limit) {
  return state_->try_read(limit);
}

void stream::stop_sending(std::uint64_t code) {
  state_->stop_sending(code);
}

task<result<>> stream::write(slice data) {
  return detail::stream_state::write(detail::stream_ref{state_}, std::move(data));
}

std::optional<result<>> stream::try_write(slice data) {
  return state_->try_write(std::move(data));
}

result<> stream::finish() {
  return state_->finish();
}

void stream::reset(std::uint64_t code) {
  state_->reset(code);
}

task<result<>> stream::drained() {
  return detail::stream_state::drained(detail::stream_ref{state_});
}

task<std::optional<std::uint64_t>> stream::stopped() {
  return detail::stream_state::stopped(detail::stream_ref{state_});
}

std::optional<std::uint64_t> stream::stopped_code() const noexcept {
  return state_->core().stopped_code();
}

void stream::on_abandoned(std::move_only_function<void(const error&)> callback) {
  state_->on_abandoned(std::move(callback));
}

void stream::set_priority(std::uint8_t urgency, bool incremental) {
  state_->core().set_priority(urgency, incremental);
}

bool stream::early_data() const noexcept {
  return state_->core().early_data();
}

namespace {

class quic_byte_stream final : public io::byte_stream {
 public:
  explicit quic_byte_stream(stream s) noexcept : stream_{std::move(s)} {}

  task<result<slice>> read() override { return stream_.read(largest_read); }

  task<result<>> write(std::span<const slice> parts) override {
    for (const slice& part : parts) {
      std::optional<result<>> done;
      if (part.size() <= largest_read) done = stream_.try_write(part);
      if (!done) done = co_await stream_.write(part);
      if (!*done) co_return std::move(*done);
    }
    co_return result<>{};
  }

  task<result<>> finish() override { co_return stream_.finish(); }

  void abort() noexcept override {
    stream_.reset(0);
    stream_.stop_sending(0);
  }

 private:
  static constexpr std::size_t largest_read = 64 * 1024;
  stream stream_;
};

}  // namespace

std::unique_ptr<io::byte_stream> as_byte_stream(stream s) {
  return std::make_unique<quic_byte_stream>(std::move(s));
}

}  // namespace weft::quic
