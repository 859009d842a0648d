#pragma once

// Internal to weft::tcp: TLS as a pure state machine, ciphertext in and out of memory. No socket.

#include <cstddef>
#include <optional>
#include <span>

#include <weft/base/slice.hpp>
#include <weft/tls/context.hpp>

namespace weft::tcp {

/// What is left of a list of slices to write.
struct source {
  std::span<const slice> parts;
  std::size_t offset = 0;  ///< into parts.front()

  /// Skips empty parts; true when nothing is left.
  bool empty() noexcept;
  std::size_t size() const noexcept;
};

/// One end of a TLS connection. Call order: `handshake` until it is ok, then `read` and `write`.
/// Whatever is called may leave output to send; input is wanted when a call says so, and only then
/// may `input_space` be asked for.
class engine {
 public:
  enum class status : std::uint8_t {
    ok,
    want_read,   ///< needs input
    want_write,  ///< needs its output sent first
    end,         ///< the peer closed its direction in an orderly way
    failed,      ///< see `failure`; there may be an alert to send
  };

  /// `peer` names the other side in errors. A direction's key is changed after `records_per_key`
  /// (RFC 8446 §5.5 allows 2^24.5 with AES-GCM).
  engine(tls::ssl_ptr ssl, std::string peer, std::uint64_t records_per_key = 1u << 23);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  status handshake();
  /// All complete records that have arrived, up to about 64 KiB. Sticky at the end and on failure.
  status read(slice& out);
  /// Encrypts from the front of `from` until it is empty or the output is full.
  status write(source& from);
  /// Queues close_notify. `want_write`: send and repeat.
  status close_notify();

  /// Room for ciphertext; valid until `input_arrived`. What is not read yet would be lost.
  mutable_bytes input_space(std::size_t size);
  void input_arrived(std::size_t count) noexcept;
  /// The transport ended; without a close_notify before it, that is an error.
  void input_ended() noexcept { in_ended_ = true; }

  bool has_output() const noexcept { return out_begin_ != out_end_; }
  bytes output() noexcept { return bytes{out_.data() + out_begin_, out_end_ - out_begin_}; }
  void output_sent(std::size_t count) noexcept;

  /// Precondition: a call answered `failed`.
  const error& failure() const noexcept { return *failure_; }
  SSL* native() noexcept { return ssl_.get(); }

 private:
  struct bio;  // OpenSSL's side of the two buffers

  status classify(int outcome);
  std::size_t pull(std::byte* to, std::size_t size) noexcept;
  bool push(const std::byte* from, std::size_t size);
  void reserve_output(std::size_t size);
  bytes next_record(source& from, mutable_bytes staging) noexcept;
  bool has_input() const noexcept { return in_begin_ != in_end_; }

  buffer in_;
  std::size_t in_begin_ = 0, in_end_ = 0;
  buffer out_;
  std::size_t out_begin_ = 0, out_end_ = 0;
  std::string peer_;
  std::optional<error> failure_;
  std::uint64_t records_ = 0;
  std::uint64_t records_per_key_;
  bool open_ = false;  // the handshake is done; OpenSSL itself forgets that on failure
  bool in_ended_ = false;
  bool end_seen_ = false;
  bool notified_ = false;
  bool stalled_ = false;  // OpenSSL could not push out an answer and must be called again
  tls::ssl_ptr ssl_;
};

}  // namespace weft::tcp
