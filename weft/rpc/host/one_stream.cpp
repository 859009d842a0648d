#include <weft/rpc/host/one_stream.hpp>

#include <utility>

namespace weft::rpc::detail {
namespace {

constexpr std::size_t largest_read = 64 * 1024;

class carried final : public io::byte_stream {
 public:
  carried(std::shared_ptr<quic::connection> connection, quic::stream stream) noexcept
      : connection_{std::move(connection)}, stream_{std::move(stream)} {}

  task<weft::result<slice>> read() override { return stream_.read(largest_read); }

  task<weft::result<>> write(std::span<const slice> parts) override {
    for (const slice& part : parts) {
      if (part.empty()) continue;
      if (auto written = co_await stream_.write(part); !written) co_return written;
    }
    co_return weft::result<>{};
  }

  // The connection ends with this object, and would take along what is not delivered by then.
  task<weft::result<>> finish() override {
    if (auto finished = stream_.finish(); !finished) co_return finished;
    co_return co_await stream_.drained();
  }

  void abort() noexcept override { connection_->close(); }

 private:
  std::shared_ptr<quic::connection> connection_;
  quic::stream stream_;  // after the connection it belongs to
};

}  // namespace

std::unique_ptr<io::byte_stream> one_stream(std::shared_ptr<quic::connection> connection,
                                            quic::stream stream) {
  return std::make_unique<carried>(std::move(connection), std::move(stream));
}

}  // namespace weft::rpc::detail
