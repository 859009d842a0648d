#include <weft/rpc/native/messages.hpp>

namespace weft::rpc::native {
namespace {

/// Below this size compression costs more than it saves.
constexpr std::size_t compress_from = 64;
/// Below this size a copy costs less than one more slice to keep.
constexpr std::size_t share_from = 8 * 1024;

}  // namespace

result<> append_message(frame_buffer& to, const outgoing& message, compression algorithm,
                        std::size_t spare) {
  if (algorithm != compression::identity && message.size() >= compress_from) {
    buffer plain = buffer::allocate(message.size());
    message.write_to(plain.data());
    auto packed = compress(algorithm, std::move(plain).freeze());
    if (!packed) return std::unexpected{std::move(packed).error()};
    if (packed->size() < message.size()) {
      const std::size_t size = packed->size() + 1;
      wire::sink out{to.reserve(1 + wire::sized_size(size) + spare)};
      out.varint(static_cast<std::uint64_t>(wire::call_frame::compressed_message)).varint(size);
      out.varint(static_cast<std::uint64_t>(algorithm)).raw(*packed);
      to.commit(out.position());
      return {};
    }
  }
  wire::sink out{to.reserve(1 + wire::sized_size(message.size()) + spare)};
  out.varint(static_cast<std::uint64_t>(wire::call_frame::message)).varint(message.size());
  message.write_to(out.position());
  to.commit(out.position() + message.size());
  return {};
}

result<slice> append_or_share(frame_buffer& to, const outgoing& message, compression algorithm,
                              std::size_t spare) {
  const bool shares = message.shared() && message.size() >= share_from;
  if (!shares || algorithm != compression::identity) {
    auto appended = append_message(to, message, algorithm, spare);
    if (!appended) return std::unexpected{std::move(appended).error()};
    return slice{};
  }
  wire::sink out{to.reserve(1 + wire::varint_size(message.size()) + spare)};
  out.varint(static_cast<std::uint64_t>(wire::call_frame::message)).varint(message.size());
  to.commit(out.position());
  return *message.shared();
}

result<payload> unpack(wire::received_message message, std::size_t limit) {
  if (message.algorithm == compression::identity) return std::move(message.content);
  auto plain = decompress(message.algorithm, message.content, limit);
  if (!plain) return std::unexpected{std::move(plain).error()};
  return payload{std::move(*plain)};
}

error given_up_by(std::string_view peer, code why) {
  return {errc::reset, layer::stream, "given up by the " + std::string{peer},
          wire::call_error(why)};
}

status refused_status() {
  return {code::unavailable,
          "the server is going away; the call was not looked at and can safely be retried"};
}

bool is_refusal(const error& failure) noexcept {
  return failure.where() == layer::stream &&
         failure.detail() == static_cast<std::uint64_t>(wire::error_code::refused);
}

status status_of(const error& failure) {
  if (failure.code() == errc::reset || failure.code() == errc::stopped) {
    const std::uint64_t detail = failure.detail();
    if (detail == static_cast<std::uint64_t>(wire::error_code::refused)) return refused_status();
    const std::uint64_t first = wire::call_error(code::ok);
    if (failure.where() == layer::stream && detail > first &&
        detail <= wire::call_error(code::unauthenticated))
      return {code_from_number(detail - first), "the peer gave the call up"};
  }
  return to_status(failure);
}

}  // namespace weft::rpc::native
