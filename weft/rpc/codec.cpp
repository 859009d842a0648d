#include <weft/rpc/codec.hpp>

#include <limits>

#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

namespace weft::rpc::detail {
namespace {

constexpr std::size_t largest_message = std::numeric_limits<int>::max();

/// Lets the parser walk over the parts of a payload where they are.
class chain_stream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit chain_stream(const payload& from) noexcept : from_{from} {}

  bool Next(const void** data, int* size) override {
    if (part_ == from_.parts()) return false;
    const slice& current = from_.part(part_++);
    const std::size_t left = current.size() - offset_;
    *data = current.data() + offset_;
    *size = static_cast<int>(left);
    read_ += left;
    offset_ = 0;
    return true;
  }
  void BackUp(int count) override {
    --part_;
    offset_ = from_.part(part_).size() - static_cast<std::size_t>(count);
    read_ -= static_cast<std::size_t>(count);
  }
  bool Skip(int count) override {
    const void* data = nullptr;
    int size = 0;
    while (count > 0 && Next(&data, &size)) {
      if (size > count) BackUp(size - count);
      count -= std::min(size, count);
    }
    return count == 0;
  }
  int64_t ByteCount() const override { return static_cast<int64_t>(read_); }

 private:
  const payload& from_;
  std::size_t part_ = 0;
  std::size_t offset_ = 0;
  std::size_t read_ = 0;
};

bool parse_binary(google::protobuf::MessageLite& target, const payload& from) {
  if (from.size() > largest_message) return false;
  if (from.contiguous())
    return target.ParseFromArray(from.part(0).data(), static_cast<int>(from.size()));
  chain_stream stream{from};
  return target.ParseFromZeroCopyStream(&stream);
}

status no_json(const google::protobuf::MessageLite& message) {
  return {code::unimplemented,
          message.GetTypeName() + " is a lite message, which has no JSON form; use the binary one"};
}

result<> parse_json(google::protobuf::MessageLite& target, const payload& from) {
  auto* message = dynamic_cast<google::protobuf::Message*>(&target);
  if (!message) return std::unexpected{no_json(target)};
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const slice text = from.flatten();
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      {reinterpret_cast<const char*>(text.data()), text.size()}, message, options);
  if (parsed.ok()) return {};
  return fail(code::invalid_argument, "the JSON received is not a " + target.GetTypeName() + ": " +
                                          std::string{parsed.message()});
}

result<std::string> print_json(const void* from) {
  const auto& lite = *static_cast<const google::protobuf::MessageLite*>(from);
  const auto* message = dynamic_cast<const google::protobuf::Message*>(&lite);
  if (!message) return std::unexpected{no_json(lite)};
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(*message, &text);
  if (printed.ok()) return text;
  return fail(code::internal, "a " + lite.GetTypeName() +
                                  " cannot be written as JSON: " + std::string{printed.message()});
}

}  // namespace

result<> parse(google::protobuf::MessageLite& target, const payload& from) {
  if (from.codec() == codec::json) return parse_json(target, from);
  if (parse_binary(target, from)) return {};
  return fail(code::invalid_argument, "the " + std::to_string(from.size()) +
                                          " bytes received are not a " + target.GetTypeName());
}

result<outgoing> encode(const google::protobuf::MessageLite& message) {
  if (!message.IsInitialized())
    return fail(code::internal, "a " + message.GetTypeName() + " lacks its required fields: " +
                                    message.InitializationErrorString());
  const std::size_t size = message.ByteSizeLong();
  if (size > largest_message)
    return fail(code::internal, "a " + message.GetTypeName() + " of " + std::to_string(size) +
                                    " bytes; protocol buffers end at 2 GiB");
  // ByteSizeLong has left the sizes of all parts in the message.
  return outgoing{
      &message, size,
      [](const void* from, std::byte* target, std::size_t) {
        static_cast<const google::protobuf::MessageLite*>(from)->SerializeWithCachedSizesToArray(
            reinterpret_cast<std::uint8_t*>(target));
      },
      &print_json};
}

}  // namespace weft::rpc::detail
