#include <weft/rpc/host/session.hpp>

#include <utility>

#include <weft/rpc/connect/session.hpp>
#include <weft/rpc/grpc/session.hpp>

namespace weft::rpc::detail {
namespace {

class native_session final : public session {
 public:
  explicit native_session(std::unique_ptr<native::server_session> of) : of_{std::move(of)} {}
  task<> drain() override { return of_->drain(); }
  void conclude(const status& why) noexcept override { of_->close(why); }
  void close(const status& why) noexcept override { of_->close(why); }
  task<> finished() override { return of_->finished(); }

 private:
  std::unique_ptr<native::server_session> of_;
};

class http_session final : public session {
 public:
  explicit http_session(std::unique_ptr<weft::http::server_connection> of) : of_{std::move(of)} {}
  task<> drain() override { return of_->drain(); }
  void conclude(const status&) noexcept override {}
  void close(const status& why) noexcept override {
    of_->close(weft::http::give_up::no_error, why.message());
  }
  task<> finished() override { (void)co_await of_->finished(); }

 private:
  std::unique_ptr<weft::http::server_connection> of_;
};

}  // namespace

std::unique_ptr<session> as_session(std::unique_ptr<native::server_session> native) {
  return std::make_unique<native_session>(std::move(native));
}

std::unique_ptr<session> as_session(std::unique_ptr<weft::http::server_connection> http) {
  return std::make_unique<http_session>(std::move(http));
}

weft::http::request_handler answer_requests(std::shared_ptr<rpc::http::server_core> calls) {
  return [calls = std::move(calls)](std::unique_ptr<weft::http::exchange> e) {
    if (grpc::speaks(e->request())) return grpc::serve(std::move(e), calls);
    connect::serve(std::move(e), calls);
  };
}

weft::http::connection_info http_info(const transport_info& info, std::string peer_subject) {
  return {.version = weft::http::alpn_h2,
          .transport = info.name,
          .local = info.local,
          .remote = info.remote,
          .group = info.group,
          .cipher = info.cipher,
          .peer_subject = std::move(peer_subject)};
}

}  // namespace weft::rpc::detail
