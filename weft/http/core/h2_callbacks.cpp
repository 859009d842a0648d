#include <algorithm>
#include <charconv>

#include <weft/http/core/h2_stream.hpp>

namespace weft::http {
namespace {

std::string_view text_of(const std::uint8_t* data, std::size_t size) noexcept {
  return {reinterpret_cast<const char*>(data), size};
}

/// Makes work and carries nothing.
bool is_idle(const nghttp2_frame_hd& frame) noexcept {
  switch (frame.type) {
    case NGHTTP2_DATA:
      return frame.length == 0 && (frame.flags & NGHTTP2_FLAG_END_STREAM) == 0;
    case NGHTTP2_HEADERS:
    case NGHTTP2_CONTINUATION:
    case NGHTTP2_RST_STREAM:
      return false;  // counted otherwise
    default:
      return true;
  }
}

bool ends_stream(const nghttp2_frame_hd& frame) noexcept {
  return (frame.type == NGHTTP2_DATA || frame.type == NGHTTP2_HEADERS) &&
         (frame.flags & NGHTTP2_FLAG_END_STREAM) != 0;
}

void take_pseudo_field(request_head& to, std::string_view name, std::string_view value) {
  if (name == ":method")
    to.method = value;
  else if (name == ":scheme")
    to.scheme = value;
  else if (name == ":authority")
    to.authority = value;
  else if (name == ":path")
    to.path = value;
}

/// Content this short is copied behind its frame's head: one slice costs less than two.
constexpr std::size_t copy_up_to = 1024;

h2_session& self(void* user) noexcept {
  return *static_cast<h2_session*>(user);
}

}  // namespace

// Receiving
// ----------------------------------------------------------------------------------------

int h2_session::callbacks::begin_frame(nghttp2_session*, const nghttp2_frame_hd* frame,
                                       void* user) {
  h2_session& s = self(user);
  if (!is_idle(*frame) || s.spend(s.idle_frames_, "frames that carry nothing")) return 0;
  return NGHTTP2_ERR_CALLBACK_FAILURE;
}

int h2_session::callbacks::begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  h2_session& s = self(user);
  stream_state* stream = s.find(frame->hd.stream_id);
  if (!stream && s.role_ == h2_role::server && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
    stream = &s.create(frame->hd.stream_id);
  if (stream) stream->section = 0;
  return 0;
}

int h2_session::callbacks::header(nghttp2_session*, const nghttp2_frame* frame,
                                  const std::uint8_t* name, std::size_t name_size,
                                  const std::uint8_t* value, std::size_t value_size,
                                  std::uint8_t flags, void* user) {
  h2_session& s = self(user);
  stream_state* stream = s.find(frame->hd.stream_id);
  if (!stream || stream->received_all) return 0;
  stream->section += name_size + value_size + 32;  // RFC 9113 §6.5.2
  if (stream->section > s.settings_.max_field_section) stream->too_large = true;
  if (stream->too_large) return 0;  // counted, not kept
  const std::string_view key = text_of(name, name_size);
  const std::string_view text = text_of(value, value_size);
  if (!key.starts_with(':')) {
    const bool sensitive = (flags & NGHTTP2_NV_FLAG_NO_INDEX) != 0;
    stream->fields(s.role_).add_valid(key, text, sensitive);
  } else if (s.role_ == h2_role::server) {
    take_pseudo_field(stream->request, key, text);
  } else if (key == ":status") {
    // The library has checked that it is three digits.
    std::from_chars(text.data(), text.data() + text.size(), stream->response.status);
  }
  return 0;
}

int h2_session::callbacks::invalid_header(nghttp2_session*, const nghttp2_frame*,
                                          const std::uint8_t* name, std::size_t name_size,
                                          const std::uint8_t*, std::size_t, std::uint8_t,
                                          void* user) {
  std::string& said = self(user).last_words_;
  said = "a field that is not allowed: ";
  for (const char c : text_of(name, std::min<std::size_t>(name_size, 64)))
    said += c > ' ' && c < 0x7f ? c : '?';
  return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // malformed (RFC 9113 §8.2.1)
}

int h2_session::callbacks::data_chunk(nghttp2_session* library, std::uint8_t, std::int32_t id,
                                      const std::uint8_t* data, std::size_t size, void* user) {
  h2_session& s = self(user);
  stream_state* stream = s.find(id);
  if (stream && !stream->muted && !stream->stopped && !stream->received_all)
    s.take_content(*stream, {reinterpret_cast<const std::byte*>(data), size});
  else
    (void)nghttp2_session_consume_connection(library, size);
  return 0;
}

int h2_session::callbacks::frame_received(nghttp2_session*, const nghttp2_frame* frame,
                                          void* user) {
  h2_session& s = self(user);
  stream_state* stream = s.find(frame->hd.stream_id);
  switch (frame->hd.type) {
    case NGHTTP2_DATA:
      if (stream && ends_stream(frame->hd)) s.take_end(*stream);
      break;
    case NGHTTP2_HEADERS:
      if (stream) s.take_section(*stream, ends_stream(frame->hd));
      break;
    case NGHTTP2_RST_STREAM:
      if (stream) s.reset_by_peer(*stream, frame->rst_stream.error_code);
      break;
    case NGHTTP2_PING:
      if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) s.ponged(frame->ping.opaque_data);
      break;
    case NGHTTP2_GOAWAY:
      s.take_farewell(frame->goaway.error_code,
                      text_of(frame->goaway.opaque_data, frame->goaway.opaque_data_len));
      break;
    case NGHTTP2_PRIORITY_UPDATE: {
      const auto& update = *static_cast<const nghttp2_ext_priority_update*>(frame->ext.payload);
      s.take_priority(update.stream_id, text_of(update.field_value, update.field_value_len));
      break;
    }
    case NGHTTP2_SETTINGS:
    case NGHTTP2_WINDOW_UPDATE:
      s.window_opened(stream);
      break;
    default:
      break;
  }
  return s.failure_ ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

int h2_session::callbacks::invalid_frame(nghttp2_session*, const nghttp2_frame* frame, int why,
                                         void* user) {
  h2_session& s = self(user);
  stream_state* stream = s.find(frame->hd.stream_id);
  if (stream) s.broken_by_peer(*stream, s.in_words(nghttp2_strerror(why)));
  return 0;
}

int h2_session::callbacks::words(nghttp2_session*, int, const char* text, std::size_t size,
                                 void* user) {
  self(user).last_words_.assign(text, size);
  return 0;
}

int h2_session::callbacks::stream_closed(nghttp2_session*, std::int32_t id, std::uint32_t code,
                                         void* user) {
  h2_session& s = self(user);
  if (stream_state* stream = s.find(id)) s.ended_stream(*stream, code);
  return 0;
}

// Sending
// ------------------------------------------------------------------------------------------

int h2_session::callbacks::frame_sent(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  h2_session& s = self(user);
  stream_state* stream = s.find(frame->hd.stream_id);
  if (frame->hd.type == NGHTTP2_RST_STREAM) {
    s.sent_reset(stream, frame->rst_stream.error_code);
  } else if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR) {
    s.fail_connection(frame->goaway.error_code, "the peer broke HTTP/2: " + s.in_words("GOAWAY"));
  } else if (frame->hd.type == NGHTTP2_DATA) {
    s.idle_frames_.give(2);  // is answered by window updates
    if (stream) s.check_window(*stream);
  }
  if (stream && ends_stream(frame->hd)) s.end_sending(*stream);
  return 0;
}

int h2_session::callbacks::frame_not_sent(nghttp2_session* library, const nghttp2_frame* frame,
                                          int why, void* user) {
  h2_session& s = self(user);
  stream_state* stream = s.find(frame->hd.stream_id);
  if (!stream || frame->hd.type != NGHTTP2_HEADERS || stream->given_up) return 0;
  if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) return 0;  // the stream is closed
  s.last_words_ = nghttp2_strerror(why);
  return nghttp2_submit_rst_stream(library, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                   NGHTTP2_INTERNAL_ERROR);
}

nghttp2_data_provider2 h2_session::callbacks::content_of(stream_state& s) noexcept {
  return {.source = {.ptr = &s}, .read_callback = &read_content};
}

nghttp2_ssize h2_session::callbacks::read_content(nghttp2_session* library, std::int32_t id,
                                                  std::uint8_t*, std::size_t room,
                                                  std::uint32_t* flags, nghttp2_data_source* source,
                                                  void* user) {
  h2_session& s = self(user);
  stream_state& stream = *static_cast<stream_state*>(source->ptr);
  if ((stream.queue.empty() && !stream.end) || s.wait_for_more_urgent(stream)) {
    stream.deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  const std::size_t count = std::min(room, stream.queued);
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (count == stream.queued && stream.end) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!stream.out_trailers.empty()) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      auto& lines = s.lines_->all;
      h2_lines(lines, {}, stream.out_trailers);
      if (nghttp2_submit_trailer(library, id, lines.data(), lines.size()) != 0)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
  }
  return static_cast<nghttp2_ssize>(count);
}

int h2_session::callbacks::send_content(nghttp2_session*, nghttp2_frame*, const std::uint8_t* head,
                                        std::size_t size, nghttp2_data_source* source, void* user) {
  constexpr std::size_t frame_head = 9;
  h2_session& s = self(user);
  if (s.room_ == 0) return NGHTTP2_ERR_WOULDBLOCK;
  s.append({reinterpret_cast<const std::byte*>(head), frame_head});
  s.emit_content(*static_cast<stream_state*>(source->ptr), size);
  return 0;
}

void h2_session::append(bytes from) {
  room_ -= std::min(room_, from.size());
  if (out_->empty() || !frames_.extend(out_->back(), from)) out_->push_back(frames_.copy(from));
}

void h2_session::emit_content(stream_state& s, std::size_t count) {
  s.queued -= count;
  while (count != 0) {
    slice& front = s.queue.front();
    const std::size_t part = std::min(count, front.size());
    count -= part;
    if (part <= copy_up_to) {
      append(front.span().first(part));
    } else {
      room_ -= std::min(room_, part);
      out_->push_back(front.sub(0, part));
    }
    front.drop_front(part);
    if (front.empty()) s.queue.pop_front();
  }
  if (progressed_.empty() || progressed_.back() != s.id) progressed_.push_back(s.id);
  update_turn(s);
}

const nghttp2_session_callbacks* h2_session::callbacks::table() {
  static const nghttp2_session_callbacks* const made = [] {
    nghttp2_session_callbacks* c = nullptr;
    if (nghttp2_session_callbacks_new(&c) != 0) throw std::bad_alloc{};
    nghttp2_session_callbacks_set_on_begin_frame_callback(c, &begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(c, &begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(c, &header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(c, &invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, &data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, &frame_received);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(c, &invalid_frame);
    nghttp2_session_callbacks_set_error_callback2(c, &words);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, &stream_closed);
    nghttp2_session_callbacks_set_on_frame_send_callback(c, &frame_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(c, &frame_not_sent);
    nghttp2_session_callbacks_set_send_data_callback(c, &send_content);
    return c;
  }();
  return made;
}

}  // namespace weft::http
