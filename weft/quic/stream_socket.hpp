#pragma once

#include <memory>

#include <asio/any_completion_handler.hpp>
#include <asio/async_result.hpp>
#include <asio/buffer.hpp>
#include <asio/error.hpp>

#include <weft/io/task.hpp>
#include <weft/quic/stream.hpp>

namespace weft::quic {

namespace detail {
class waiter;
}

/// A bidirectional QUIC stream with the interface of a connected socket: Asio's AsyncReadStream and
/// AsyncWriteStream, so that asio::ssl, HTTP libraries and any protocol written for such streams
/// run over it unchanged.
///
/// `close()` is abortive (RESET_STREAM and STOP_SENDING) and safe beside a pending read or write,
/// which complete with operation_aborted. `shutdown_send()` is the orderly half-close.
class stream_socket {
 public:
  using executor_type = executor;
  using lowest_layer_type = stream_socket;

  stream_socket(executor_type executor, stream s);
  stream_socket(stream_socket&&) noexcept;
  stream_socket& operator=(stream_socket&&) noexcept;
  ~stream_socket();

  executor_type get_executor() const noexcept;
  lowest_layer_type& lowest_layer() noexcept { return *this; }
  const lowest_layer_type& lowest_layer() const noexcept { return *this; }
  bool is_open() const noexcept;
  stream& underlying() noexcept;

  /// Completes with some bytes, or asio::error::eof at the peer's FIN.
  template <class Buffers, class Token = asio::default_completion_token_t<executor_type>>
  auto async_read_some(const Buffers& buffers, Token&& token = {}) {
    return asio::async_initiate<Token, void(asio::error_code, std::size_t)>(
        [this](auto handler, const Buffers& target) {
          start_read(first_buffer<asio::mutable_buffer>(target), std::move(handler));
        },
        token, buffers);
  }

  /// Completes when at least one byte is accepted; the bytes are copied.
  template <class Buffers, class Token = asio::default_completion_token_t<executor_type>>
  auto async_write_some(const Buffers& buffers, Token&& token = {}) {
    return asio::async_initiate<Token, void(asio::error_code, std::size_t)>(
        [this](auto handler, const Buffers& source) {
          start_write(first_buffer<asio::const_buffer>(source), std::move(handler));
        },
        token, buffers);
  }

  void shutdown_send(asio::error_code& failure);
  void close() noexcept;
  void close(asio::error_code& failure) noexcept {
    failure = {};
    close();
  }

 private:
  using handler = asio::any_completion_handler<void(asio::error_code, std::size_t)>;

  template <class Buffer, class Buffers>
  static Buffer first_buffer(const Buffers& buffers) {
    for (auto i = asio::buffer_sequence_begin(buffers); i != asio::buffer_sequence_end(buffers);
         ++i)
      if (Buffer b{*i}; b.size() != 0) return b;
    return {};
  }
  void start_read(asio::mutable_buffer target, handler done);
  void start_write(asio::const_buffer source, handler done);
  template <class Outcome, class Step, class Buffer>
  void finish_or_wait(const Outcome& outcome, detail::waiter* place, Step attempt, Buffer buffer,
                      handler done);

  struct impl;
  std::shared_ptr<impl> impl_;
};

}  // namespace weft::quic
