#include <algorithm>
#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include <weft/rpc/native/quic_session.hpp>

namespace weft::rpc::native {
namespace {

constexpr std::size_t own_lanes = 2;
/// Control bytes that wait for a peer that reads nothing.
constexpr std::size_t max_control_backlog = 256 * 1024;

std::array<std::byte, wire::max_varint_size> type_bytes(wire::stream_type type) noexcept {
  std::array<std::byte, wire::max_varint_size> out{};
  wire::put_varint(out.data(), static_cast<std::uint64_t>(type));
  return out;
}

slice type_slice(wire::stream_type type) {
  return slice::copy(bytes{type_bytes(type)}.first(1));
}

/// A unidirectional stream that is opened by its first batch.
class lane_link final : public link {
 public:
  explicit lane_link(quic::connection& connection) noexcept : connection_{connection} {}

  task<weft::result<>> write(std::span<const slice> parts) override {
    if (!stream_) {
      auto opened = co_await connection_.open_stream(quic::direction::unidirectional);
      if (!opened) co_return std::unexpected{std::move(opened).error()};
      stream_ = std::move(*opened);
      if (auto typed = co_await put(type_slice(wire::stream_type::lane)); !typed) co_return typed;
    }
    for (const slice& part : parts)
      if (auto written = co_await put(part); !written) co_return written;
    co_return weft::result<>{};
  }
  task<weft::result<>> delivered() override {
    if (!stream_) co_return weft::result<>{};
    co_return co_await stream_.drained();
  }

 private:
  task<weft::result<>> put(slice part) {
    if (auto done = stream_.try_write(part)) co_return std::move(*done);
    co_return co_await stream_.write(std::move(part));
  }

  quic::connection& connection_;
  quic::stream stream_;
};

}  // namespace

std::optional<weft::result<>> quic_pipe::try_write(slice data, bool end) {
  auto done = stream_.try_write(std::move(data));
  if (done && *done && end) return stream_.finish();
  return done;
}

task<weft::result<>> quic_pipe::write(slice data, bool end) {
  auto done = co_await stream_.write(std::move(data));
  if (done && end) co_return stream_.finish();
  co_return done;
}

void quic_pipe::abandon(std::uint64_t code) noexcept {
  stream_.on_abandoned({});
  stream_.reset(code);
  stream_.stop_sending(code);
}

void quic_pipe::set_owner(pipe_owner* owner) {
  if (owner == nullptr) return stream_.on_abandoned({});
  stream_.on_abandoned([owner](const error& why) { owner->abandoned(why); });
}

quic_carrier::quic_carrier(quic::connection connection, io::shard& shard, mux_config lanes,
                           std::size_t max_record)
    : shard_{shard},
      connection_{std::move(connection)},
      lanes_{std::make_shared<mux>(shard, std::move(lanes), *this)},
      max_record_{max_record} {}

quic_carrier::~quic_carrier() {
  lanes_->stop(error{errc::closed, layer::rpc, "the session was destroyed"});
}

void quic_carrier::begin(const std::shared_ptr<void>& self, const wire::settings& own) {
  self_ = self;
  send(own);
  // The control stream opens first, so that settings precede calls where nothing is lost.
  asio::co_spawn(shard_.get_executor(), write_control(self, *this), asio::detached);
  connection_.on_stream([this, weak = self_](quic::stream s) {
    if (auto alive = weak.lock()) on_stream(std::move(s));
  });
  connection_.on_closed([this, weak = self_](const error& why) {
    if (auto alive = weak.lock()) shut(why);
  });
}

void quic_carrier::send(const wire::control_event& event) {
  if (over_) return;
  wire::append(control_out_, event);
  if (control_out_.size() > max_control_backlog)
    return shut(error{errc::exhausted, layer::rpc, "the peer does not read its control stream",
                      static_cast<std::uint64_t>(wire::error_code::excessive_load)});
  if (std::exchange(control_scheduled_, true)) return;
  shard_.at_end_of_turn([this, weak = self_] {
    auto alive = weak.lock();
    if (!alive) return;
    control_scheduled_ = false;
    control_wake_.notify();
  });
}

task<> quic_carrier::write_control([[maybe_unused]] std::shared_ptr<void> keep,
                                   quic_carrier& self) {
  auto opened = co_await self.connection_.open_stream(quic::direction::unidirectional);
  if (!opened || self.over_) co_return;
  quic::stream s = std::move(*opened);
  s.set_priority(0, false);
  slice next = type_slice(wire::stream_type::control);
  std::size_t written_since = 0;  // the peer had everything
  while (!self.over_) {
    if (!next.empty()) {
      written_since += next.size();
      auto written = co_await s.write(std::move(next));
      // What the stream holds for a peer that does not read counts as backlog, too.
      if (written && written_since > max_control_backlog) {
        written = co_await s.drained();
        written_since = 0;
      }
      if (self.over_) co_return;
      if (!written) co_return self.shut(written.error());
    }
    if (self.control_out_.empty()) {
      co_await self.control_wake_.wait();
      if (self.over_) co_return;
    }
    next = slice::copy(bytes{self.control_out_});
    self.control_out_.clear();
  }
}

void quic_carrier::open_lanes() {
  while (lanes_->links() < own_lanes) lanes_->add_link(std::make_unique<lane_link>(connection_));
}

void quic_carrier::on_stream(quic::stream s) {
  if (over_) return;
  const bool unidirectional = (s.id() & 2) != 0;
  if (!unidirectional) return on_call_stream(std::move(s));
  asio::co_spawn(shard_.get_executor(), read_stream(self_.lock(), *this, std::move(s)),
                 asio::detached);
}

task<> quic_carrier::read_stream([[maybe_unused]] std::shared_ptr<void> keep, quic_carrier& self,
                                 quic::stream s) {
  // The type may come byte by byte.
  std::array<std::byte, wire::max_varint_size> type{};
  std::size_t have = 0;
  slice rest;
  while (have == 0 || have < wire::varint_length(type[0])) {
    if (rest.empty()) {
      auto arrived = co_await s.read();
      if (!arrived || arrived->empty() || self.over_) co_return;
      rest = std::move(*arrived);
    }
    type[have++] = *rest.data();
    rest.drop_front(1);
  }
  weft::result<> ended;
  switch (static_cast<wire::stream_type>(wire::decode_varint(type.data()))) {
    case wire::stream_type::control:
      if (std::exchange(self.peer_control_, true))
        ended = wire::wire_error(errc::protocol, wire::error_code::critical_stream,
                                 "a second control stream");
      else
        ended = co_await self.read_control(s, std::move(rest));
      break;
    case wire::stream_type::lane:
      if (++self.peer_lanes_ > wire::max_lanes)
        ended = wire::wire_error(errc::protocol, wire::error_code::too_many_lanes,
                                 "more lanes than allowed");
      else
        ended = co_await self.read_lane(s, std::move(rest));
      --self.peer_lanes_;
      break;
    default:
      // Left for later versions.
      s.stop_sending(static_cast<std::uint64_t>(wire::error_code::unknown_stream));
  }
  if (!ended) self.shut(ended.error());
}

weft::result<> quic_carrier::control_part(bytes content) {
  control_.push(content);
  while (!over_) {
    auto event = control_.next();
    if (!event) return std::unexpected{std::move(event).error()};
    if (!*event) break;
    if (const auto* p = std::get_if<wire::ping>(&**event))
      send(wire::pong{p->token});
    else if (auto handled = on_control(**event); !handled)
      return handled;
  }
  return {};
}

task<weft::result<>> quic_carrier::read_control(quic::stream& s, slice first) {
  if (auto handled = control_part(first); !handled) co_return handled;
  while (!over_) {
    auto arrived = co_await s.read();
    if (over_) break;
    if (!arrived || arrived->empty())
      co_return wire::wire_error(errc::protocol, wire::error_code::critical_stream,
                                 "the peer ended its control stream");
    if (auto handled = control_part(*arrived); !handled) co_return handled;
  }
  co_return weft::result<>{};
}

task<weft::result<>> quic_carrier::read_lane(quic::stream& s, slice first) {
  wire::record_parser records{max_record_};
  std::uint64_t unfinished = 0;  // the call whose record has begun
  records.push(std::move(first));
  while (!over_) {
    auto part = records.next();
    if (!part) co_return std::unexpected{std::move(part).error()};
    if (*part) {
      // Calls wait on the lane, by QUIC's flow control, while there is no room for more of them.
      while ((*part)->first && !takes_lane_calls() && !over_)
        if (!co_await lane_room_.wait()) co_return weft::result<>{};
      if (over_) break;
      unfinished = (*part)->last ? 0 : (*part)->tag.call;
      if (auto received = lanes_->receive(std::move(**part)); !received) co_return received;
      if (lanes_->share_batch() && !over_) connection_.flush();
      continue;
    }
    lanes_->end_of_batch();
    auto arrived = co_await s.read();
    if (over_) break;
    if (!arrived) co_return on_lane_reset(unfinished, arrived.error());
    if (arrived->empty()) {
      if (records.at_boundary()) break;
      co_return wire::malformed("a lane ended inside a record");
    }
    records.push(std::move(*arrived));
  }
  co_return weft::result<>{};
}

weft::result<> quic_carrier::control_bytes(bytes) {
  return wire::unexpected("a control record on a lane");
}

void quic_carrier::send_cancel(std::uint64_t number, std::uint64_t code) noexcept {
  const std::uint64_t first = wire::call_error(code::ok);
  send(wire::cancel{number * 2 + 1, code_from_number(code >= first ? code - first : 1)});
}

void quic_carrier::shut(const error& why) noexcept {
  if (std::exchange(over_, true)) return;
  on_over(why);
  lanes_->stop(why);
  const bool ours = why.where() == layer::rpc;
  connection_.close(ours ? why.detail() : 0, ours ? why.message() : std::string{});
  control_wake_.notify();
  lane_room_.notify();
  over_event_.notify();
}

}  // namespace weft::rpc::native
