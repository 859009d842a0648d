#include <weft/tcp/engine.hpp>

#include <algorithm>
#include <cstring>
#include <format>

#include <openssl/bio.h>
#include <openssl/err.h>

namespace weft::tcp {
namespace {

constexpr std::size_t record_size = 16 * 1024;  // RFC 8446 §5.1
constexpr std::size_t record_overhead = 256;    // header, content type, tag: 22 bytes at present
constexpr std::size_t pool_header = 64;         // keeps a buffer within its power of two
constexpr std::size_t smallest_output = 2 * 1024 - pool_header;
constexpr std::size_t largest_output = 256 * 1024 - pool_header;
/// Room that `write` leaves for alerts and answers to key updates.
constexpr std::size_t answers_room = 4 * 1024;
constexpr std::size_t read_size = 64 * 1024;
/// Less than this is copied into memory of its own size rather than keep all of `read_size`.
constexpr std::size_t small_read = 8 * 1024;

}  // namespace

bool source::empty() noexcept {
  while (!parts.empty() && offset == parts.front().size()) {
    parts = parts.subspan(1);
    offset = 0;
  }
  return parts.empty();
}

std::size_t source::size() const noexcept {
  std::size_t total = 0;
  for (const auto& part : parts) total += part.size();
  return total - offset;
}

// ---- OpenSSL's view of the buffers ----

struct engine::bio {
  static engine& of(BIO* self) noexcept { return *static_cast<engine*>(BIO_get_data(self)); }

  static int read(BIO* self, char* to, int size) noexcept {
    BIO_clear_retry_flags(self);
    engine& e = of(self);
    const auto got = e.pull(reinterpret_cast<std::byte*>(to), static_cast<std::size_t>(size));
    if (got > 0) return static_cast<int>(got);
    if (e.in_ended_) return 0;
    BIO_set_retry_read(self);
    return -1;
  }

  static int write(BIO* self, const char* from, int size) noexcept try {
    BIO_clear_retry_flags(self);
    const auto* data = reinterpret_cast<const std::byte*>(from);
    if (of(self).push(data, static_cast<std::size_t>(size))) return size;
    BIO_set_retry_write(self);
    return -1;
  } catch (const std::bad_alloc&) {
    return -1;
  }

  static long control(BIO* self, int command, long, void*) noexcept {
    if (command == BIO_CTRL_FLUSH) return 1;
    if (command == BIO_CTRL_EOF) return of(self).in_ended_ && !of(self).has_input() ? 1 : 0;
    return 0;
  }

  static BIO* make(engine* owner) {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "weft memory");
      BIO_meth_set_read(made, read);
      BIO_meth_set_write(made, write);
      BIO_meth_set_ctrl(made, control);
      return made;
    }();
    BIO* made = BIO_new(method);
    if (!made) throw std::bad_alloc{};
    BIO_set_data(made, owner);
    BIO_set_init(made, 1);
    return made;
  }
};

engine::engine(tls::ssl_ptr ssl, std::string peer, std::uint64_t records_per_key)
    : peer_{std::move(peer)}, records_per_key_{records_per_key}, ssl_{std::move(ssl)} {
  BIO* both = bio::make(this);
  SSL_set_bio(ssl_.get(), both, both);
}

std::size_t engine::pull(std::byte* to, std::size_t size) noexcept {
  const std::size_t count = std::min(size, in_end_ - in_begin_);
  if (count == 0) return 0;
  std::memcpy(to, in_.data() + in_begin_, count);
  in_begin_ += count;
  return count;
}

bool engine::push(const std::byte* from, std::size_t size) {
  if (out_end_ - out_begin_ + size > largest_output) return false;
  reserve_output(size);
  std::memcpy(out_.data() + out_end_, from, size);
  out_end_ += size;
  return true;
}

void engine::reserve_output(std::size_t size) {
  if (out_.size() - out_end_ >= size) return;
  const std::size_t held = out_end_ - out_begin_;
  const std::size_t grown = held == 0 ? 0 : 2 * out_.size();
  buffer next = buffer::allocate(std::max({held + size, grown, smallest_output}));
  if (held != 0) std::memcpy(next.data(), out_.data() + out_begin_, held);
  out_ = std::move(next);
  out_begin_ = 0;
  out_end_ = held;
}

void engine::output_sent(std::size_t count) noexcept {
  out_begin_ += count;
  if (out_begin_ != out_end_) return;
  out_begin_ = out_end_ = 0;
  out_ = buffer{};  // an idle connection holds no memory of ours
}

mutable_bytes engine::input_space(std::size_t size) {
  if (in_.size() < size) in_ = buffer::allocate(size);
  in_begin_ = in_end_ = 0;
  return in_.span().first(size);
}

void engine::input_arrived(std::size_t count) noexcept {
  in_end_ = count;
  if (count == 0) in_ = buffer{};
}

// ---- TLS ----

engine::status engine::classify(int outcome) {
  switch (SSL_get_error(ssl_.get(), outcome)) {
    case SSL_ERROR_WANT_READ:
      return status::want_read;
    case SSL_ERROR_WANT_WRITE:
      stalled_ = true;
      return status::want_write;
    case SSL_ERROR_ZERO_RETURN:
      end_seen_ = true;
      return status::end;
    default:
      break;
  }
  const unsigned long first = ERR_peek_error();
  const bool cut_off = ERR_GET_LIB(first) == ERR_LIB_SSL &&
                       ERR_GET_REASON(first) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
  if (cut_off && open_) {
    ERR_clear_error();
    failure_.emplace(
        errc::reset, layer::tcp,
        std::format("{} broke the connection off without TLS close_notify; data may be "
                    "missing at the end",
                    peer_));
  } else {
    failure_ = tls::handshake_error(ssl_.get(), peer_);
  }
  return status::failed;
}

engine::status engine::handshake() {
  if (failure_) return status::failed;
  ERR_clear_error();
  const int outcome = SSL_do_handshake(ssl_.get());
  if (outcome != 1) {
    const auto got = classify(outcome);
    if (got != status::end) return got;
    end_seen_ = false;
    failure_.emplace(errc::tls, layer::tls, peer_ + " closed the connection during the handshake");
    return status::failed;
  }
  if (auto agreed = tls::require_alpn(ssl_.get(), peer_); !agreed) {
    failure_ = agreed.error();
    return status::failed;
  }
  open_ = true;
  return status::ok;
}

engine::status engine::read(slice& out) {
  if (failure_) return status::failed;
  if (end_seen_) return status::end;
  if (!has_input() && !in_ended_ && !stalled_ && SSL_has_pending(ssl_.get()) == 0)
    return status::want_read;
  stalled_ = false;
  buffer target = buffer::allocate(read_size);
  std::size_t filled = 0;
  status last = status::ok;
  while (filled < target.size() && last == status::ok) {
    std::size_t got = 0;
    ERR_clear_error();
    const int outcome =
        SSL_read_ex(ssl_.get(), target.data() + filled, target.size() - filled, &got);
    if (outcome != 1) last = classify(outcome);
    filled += got;
  }
  if (!has_input()) in_ = buffer{};
  if (filled == 0) return last;
  target.truncate(filled);
  out = filled <= small_read ? slice::copy(target.span()) : std::move(target).freeze();
  return status::ok;
}

/// A full record from one slice where there is one, from several small slices otherwise.
bytes engine::next_record(source& from, mutable_bytes staging) noexcept {
  const slice& front = from.parts.front();
  const bytes rest = front.span().subspan(from.offset);
  if (rest.size() >= record_size || from.parts.size() == 1) {
    const bytes record = rest.first(std::min(rest.size(), record_size));
    from.offset += record.size();
    return record;
  }
  std::size_t filled = 0;
  while (filled < staging.size() && !from.empty()) {
    const bytes part = from.parts.front().span().subspan(from.offset);
    const std::size_t count = std::min(part.size(), staging.size() - filled);
    std::memcpy(staging.data() + filled, part.data(), count);
    filled += count;
    from.offset += count;
  }
  return staging.first(filled);
}

engine::status engine::write(source& from) {
  if (failure_) return status::failed;
  constexpr std::size_t full = record_size + record_overhead;
  alignas(64) std::byte staging[record_size];
  if (const std::size_t total = from.size(); total > 0)
    reserve_output(std::min(total + record_overhead * (1 + total / record_size),
                            largest_output - (out_end_ - out_begin_)));
  while (!from.empty() && out_end_ - out_begin_ + full + answers_room <= largest_output) {
    const bytes record = next_record(from, staging);
    std::size_t written = 0;
    if (++records_ % records_per_key_ == 0)
      SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
    ERR_clear_error();
    const int outcome = SSL_write_ex(ssl_.get(), record.data(), record.size(), &written);
    if (outcome == 1 && written == record.size()) continue;
    if (classify(outcome) != status::failed)
      failure_.emplace(errc::internal, layer::tcp, "TLS took a record only in part");
    return status::failed;
  }
  return status::ok;
}

engine::status engine::close_notify() {
  if (failure_) return status::failed;
  if (notified_) return status::ok;  // a second SSL_shutdown would read, and trip over data
  ERR_clear_error();
  const int outcome = SSL_shutdown(ssl_.get());
  if (outcome < 0) return classify(outcome);
  notified_ = true;
  return status::ok;
}

}  // namespace weft::tcp
