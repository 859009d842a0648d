#include <weft/rpc/grpc/text_form.hpp>

#include <optional>

#include <weft/rpc/http/wire/base64.hpp>

namespace weft::rpc::grpc {
namespace {

namespace wire = http::wire;

constexpr std::size_t group = 4;

/// Whole groups up to and with the first padded one.
std::size_t run_length(std::string_view text) noexcept {
  const auto padding = text.find('=');
  if (padding == text.npos) return text.size() / group * group;
  return std::min(text.size(), padding / group * group + group) / group * group;
}

}  // namespace

weft::result<slice> text_decoder::decode(bytes text) {
  rest_ += as_text(text);
  std::string_view left = rest_;
  std::string decoded;
  while (const std::size_t length = run_length(left)) {
    const auto part = wire::base64_decode(left.substr(0, length));
    if (!part)
      return weft::fail(errc::malformed, layer::rpc,
                        "the content says that it is grpc-web-text, but is no base64");
    decoded += *part;
    left.remove_prefix(length);
  }
  rest_.erase(0, rest_.size() - left.size());
  return slice::adopt(std::move(decoded));
}

slice encode_text(bytes content) {
  return slice::adopt(wire::base64_encode(content, wire::alphabet::standard, true));
}

}  // namespace weft::rpc::grpc
