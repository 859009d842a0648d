#include <weft/rpc/native/wire/control.hpp>

#include <algorithm>

namespace weft::rpc::native::wire {
namespace {

template <class... Ts>
struct overloaded : Ts... {
  using Ts::operator()...;
};

void put(std::vector<std::byte>& out, std::uint64_t value) {
  std::array<std::byte, max_varint_size> text;
  std::byte* const end = put_varint(text.data(), std::min(value, max_varint));
  out.insert(out.end(), text.data(), end);
}

void put_setting(std::vector<std::byte>& out, setting id, std::uint64_t value) {
  put(out, static_cast<std::uint64_t>(id));
  put(out, varint_size(std::min(value, max_varint)));
  put(out, value);
}

std::vector<std::byte> content_of(const settings& s) {
  std::vector<std::byte> out;
  // Sent by default, so that no peer gets away with choking on what it does not know.
  put(out, 0x1f * 7 + 0x21);
  put(out, 0);
  put_setting(out, setting::max_message, s.max_message);
  put_setting(out, setting::max_metadata, s.max_metadata);
  put_setting(out, setting::max_calls, s.max_calls);
  put_setting(out, setting::call_window, s.call_window);
  put_setting(out, setting::one_way_window, s.one_way_window);
  put(out, static_cast<std::uint64_t>(setting::compressions));
  put(out, s.compressions.size());  // each takes one byte
  for (compression c : s.compressions) put(out, static_cast<std::uint64_t>(c));
  return out;
}

void put_frame(std::vector<std::byte>& out, control_frame type, std::size_t content) {
  put(out, static_cast<std::uint64_t>(type));
  put(out, content);
}

void put_numbers(std::vector<std::byte>& out, control_frame type,
                 std::initializer_list<std::uint64_t> numbers) {
  std::size_t size = 0;
  for (std::uint64_t n : numbers) size += varint_size(std::min(n, max_varint));
  put_frame(out, type, size);
  for (std::uint64_t n : numbers) put(out, n);
}

std::unexpected<error> bad_settings(std::string text) {
  return wire_error(errc::protocol, error_code::settings, std::move(text));
}

weft::result<> read_compressions(bytes value, settings& into) {
  cursor in{value};
  while (!in.at_end()) {
    const std::uint64_t number = in.varint();
    if (in.failed()) return bad_settings("a list of compressions is cut off");
    // Algorithms we do not know are none of our concern.
    if (number == 0 || number > static_cast<std::uint64_t>(compression::br)) continue;
    const auto algorithm = static_cast<compression>(number);
    if (!into.accepts(algorithm)) into.compressions.push_back(algorithm);
  }
  return {};
}

weft::result<> read_number(bytes value, std::uint64_t& into) {
  cursor in{value};
  const std::uint64_t number = in.varint();
  if (in.failed() || !in.at_end()) return bad_settings("a setting is not one integer");
  into = number;
  return {};
}

weft::result<> read_setting(std::uint64_t id, bytes value, settings& into) {
  switch (static_cast<setting>(id)) {
    case setting::max_message:
      return read_number(value, into.max_message);
    case setting::max_metadata:
      return read_number(value, into.max_metadata);
    case setting::compressions:
      return read_compressions(value, into);
    case setting::max_calls:
      return read_number(value, into.max_calls);
    case setting::call_window:
      return read_number(value, into.call_window);
    case setting::one_way_window:
      return read_number(value, into.one_way_window);
  }
  return {};
}

weft::result<settings> decode_settings(bytes content) {
  cursor in{content};
  settings s;
  std::uint64_t seen = 0;  // one bit per known setting
  while (!in.at_end()) {
    const std::uint64_t id = in.varint();
    const bytes value = in.sized();
    if (in.failed()) return bad_settings("a setting exceeds its frame");
    if (id < 64) {
      const std::uint64_t bit = std::uint64_t{1} << id;
      if (seen & bit) return bad_settings("a setting came twice");
      seen |= bit;
    }
    if (auto read = read_setting(id, value, s); !read)
      return std::unexpected{std::move(read).error()};
  }
  if (s.call_window < default_window || s.one_way_window < default_window)
    return bad_settings("a window below what may be used before settings arrive");
  return s;
}

}  // namespace

bool settings::accepts(compression algorithm) const noexcept {
  return algorithm == compression::identity ||
         std::find(compressions.begin(), compressions.end(), algorithm) != compressions.end();
}

void append(std::vector<std::byte>& out, const control_event& event) {
  std::visit(
      overloaded{
          [&](const settings& s) {
            const auto content = content_of(s);
            put_frame(out, control_frame::settings, content.size());
            out.insert(out.end(), content.begin(), content.end());
          },
          [&](const method_ack& e) { put_numbers(out, control_frame::method_ack, {e.number}); },
          [&](const cancel& e) {
            put_numbers(out, control_frame::cancel, {e.call, static_cast<std::uint64_t>(e.code)});
          },
          [&](const goaway& e) { put_numbers(out, control_frame::goaway, {e.first_refused}); },
          [&](const credit& e) { put_numbers(out, control_frame::credit, {e.call, e.bytes}); },
          [&](const ping& e) { put_numbers(out, control_frame::ping, {e.token}); },
          [&](const pong& e) { put_numbers(out, control_frame::pong, {e.token}); },
      },
      event);
}

weft::result<bool> control_parser::read_head() {
  // Type and length, which may be split anywhere.
  while (true) {
    const std::size_t type_size = head_size_ == 0 ? 1 : varint_length(head_[0]);
    const std::size_t wanted =
        head_size_ <= type_size ? type_size + 1 : type_size + varint_length(head_[type_size]);
    if (head_size_ == wanted && head_size_ > type_size) break;
    if (input_.empty()) return false;
    head_[head_size_++] = input_.front();
    input_ = input_.subspan(1);
  }
  type_ = decode_varint(head_.data());
  left_ = decode_varint(head_.data() + varint_length(head_[0]));
  head_size_ = 0;
  const bool known = type_ <= static_cast<std::uint64_t>(control_frame::pong);
  if (!has_settings_ && type_ != static_cast<std::uint64_t>(control_frame::settings))
    return wire_error(errc::protocol, error_code::settings, "control stream without settings");
  if (known && left_ > max_control_payload)
    return wire_error(errc::too_large, error_code::too_large, "a control frame is too long");
  in_content_ = true;
  return true;
}

weft::result<std::optional<control_event>> control_parser::next() {
  while (true) {
    if (!in_content_) {
      auto head = read_head();
      if (!head) return std::unexpected{std::move(head).error()};
      if (!*head) return std::nullopt;
    }
    const bytes part =
        input_.first(static_cast<std::size_t>(std::min<std::uint64_t>(left_, input_.size())));
    input_ = input_.subspan(part.size());
    left_ -= part.size();
    if (type_ > static_cast<std::uint64_t>(control_frame::pong)) {
      if (left_ != 0) return std::nullopt;
      in_content_ = false;
      continue;
    }
    if (left_ == 0 && content_.empty()) {
      in_content_ = false;
      return decode(part);
    }
    content_.insert(content_.end(), part.begin(), part.end());
    if (left_ != 0) return std::nullopt;
    in_content_ = false;
    auto event = decode(content_);
    content_.clear();
    return event;
  }
}

weft::result<std::optional<control_event>> control_parser::decode(bytes content) {
  const auto type = static_cast<control_frame>(type_);
  if (type == control_frame::settings) {
    if (has_settings_)
      return wire_error(errc::protocol, error_code::settings, "settings came twice");
    has_settings_ = true;
    auto s = decode_settings(content);
    if (!s) return std::unexpected{std::move(s).error()};
    return control_event{std::move(*s)};
  }
  // All others: one or two integers; what follows them is left for later versions.
  cursor in{content};
  const std::uint64_t first = in.varint();
  std::uint64_t second = 0;
  if (type == control_frame::cancel || type == control_frame::credit) second = in.varint();
  if (in.failed()) return malformed("a control frame is too short");
  switch (type) {
    case control_frame::method_ack:
      return control_event{method_ack{first}};
    case control_frame::cancel:
      return control_event{cancel{first, code_from_number(second)}};
    case control_frame::goaway:
      return control_event{goaway{first}};
    case control_frame::credit:
      return control_event{credit{first, second}};
    case control_frame::ping:
      return control_event{ping{first}};
    case control_frame::pong:
      return control_event{pong{first}};
    case control_frame::settings:
      break;
  }
  return unexpected("a control frame of unknown type");
}

}  // namespace weft::rpc::native::wire
