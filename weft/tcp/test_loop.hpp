#pragma once

// For the tests of this folder: a loop that ends by itself, and options that fit each other.

#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>
#include <asio/co_spawn.hpp>

#include <weft/io/shard.hpp>
#include <weft/tcp/connection.hpp>
#include <weft/tls/credentials.hpp>

namespace weft::tcp {

/// The value, or a test failure that says why.
template <class T>
T must(result<T> got) {
  if (!got) throw std::runtime_error{got.error().to_string()};
  if constexpr (!std::is_void_v<T>) return std::move(*got);
}

struct loopback : testing::Test {
  /// Runs the loop until `work` is done; fails when that takes too long.
  void run(task<void> work) {
    io::timer watchdog;
    shard_.arm(watchdog, io::now() + std::chrono::seconds{60}, [this](time_point) {
      ADD_FAILURE() << "the test hangs";
      shard_.stop();
    });
    asio::co_spawn(shard_.get_executor(), std::move(work), [this](std::exception_ptr failure) {
      try {
        if (failure) std::rethrow_exception(failure);
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
      }
      shard_.stop();
    });
    shard_.run();
  }

  static address any_port() { return address::ipv4({127, 0, 0, 1}, 0); }
  static time_point soon() { return io::now() + std::chrono::seconds{20}; }

  /// A plain TCP connection.
  socket_type raw(const address& to) {
    socket_type socket{shard_.get_executor()};
    socket.connect(to_endpoint(to).value());
    return socket;
  }

  io::shard shard_;
  tls::credentials identity_ = tls::credentials::development().value();
  tls::client_options wanted_{.trusted = tls::trust::pem(identity_.certificate_pem()).value(),
                              .alpn = {"weft/1"}};
  std::shared_ptr<tls::server_options> offered_ = std::make_shared<tls::server_options>(
      tls::server_options{.identity = identity_, .alpn = {"weft/1"}});
};

}  // namespace weft::tcp
