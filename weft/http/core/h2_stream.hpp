// Internal: what an HTTP/2 session keeps of one exchange, and where the library calls back.
#pragma once

#include <nghttp2/nghttp2.h>

#include <weft/base/slice_queue.hpp>
#include <weft/http/core/h2_session.hpp>

namespace weft::http {

struct h2_session::stream_state {
  exchange_id id = 0;

  // Receiving
  request_head request;
  response_head response;
  field_list trailers;
  std::size_t section = 0;  // size of the one under way
  bool too_large = false;
  bool head_done = false;
  bool muted = false;         // nothing of it is reported any more
  bool stopped = false;       // nobody wants its content
  bool received_all = false;  // or given up

  // Sending
  slice_queue queue;
  std::size_t queued = 0;  // bytes in `queue`
  field_list out_trailers;
  std::optional<std::uint32_t> stop_after;  // RST_STREAM once our side is sent
  std::uint8_t urgency = 3;
  bool head_sent = false;
  bool end = false;       // nothing comes after `queue`, but trailers
  bool deferred = false;  // the library waits for `resume`
  bool sent_all = false;  // or given up
  bool given_up = false;  // by us
  bool window_closed = false, has_turn = false, held = false;

  field_list& fields(h2_role role) noexcept {
    if (head_done) return trailers;
    return role == h2_role::server ? request.fields : response.fields;
  }

  void reuse() {
    request.method.clear();
    request.scheme.clear();
    request.authority.clear();
    request.path.clear();
    request.fields.clear();
    response.fields.clear();
    trailers.clear();
    out_trailers.clear();
    queue.clear();
    section = queued = 0;
    stop_after.reset();
    urgency = 3;
    too_large = head_done = muted = stopped = received_all = false;
    head_sent = end = deferred = sent_all = given_up = false;
    window_closed = has_turn = held = false;
  }
};

struct h2_session::line_list {
  std::vector<nghttp2_nv> all;
};

/// None of these may call the library's reading or writing again.
struct h2_session::callbacks {
  static const nghttp2_session_callbacks* table();
  /// Reads a stream's queue.
  static nghttp2_data_provider2 content_of(stream_state& s) noexcept;

 private:
  static int begin_frame(nghttp2_session*, const nghttp2_frame_hd* frame, void* user);
  static int begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                    std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                    std::uint8_t flags, void* user);
  static int invalid_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                            std::size_t name_size, const std::uint8_t* value,
                            std::size_t value_size, std::uint8_t flags, void* user);
  static int data_chunk(nghttp2_session*, std::uint8_t flags, std::int32_t id,
                        const std::uint8_t* data, std::size_t size, void* user);
  static int frame_received(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int invalid_frame(nghttp2_session*, const nghttp2_frame* frame, int why, void* user);
  static int frame_sent(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int frame_not_sent(nghttp2_session*, const nghttp2_frame* frame, int why, void* user);
  static int stream_closed(nghttp2_session*, std::int32_t id, std::uint32_t code, void* user);
  static int words(nghttp2_session*, int why, const char* text, std::size_t size, void* user);
  static nghttp2_ssize read_content(nghttp2_session*, std::int32_t id, std::uint8_t* buffer,
                                    std::size_t room, std::uint32_t* flags,
                                    nghttp2_data_source* source, void* user);
  static int send_content(nghttp2_session*, nghttp2_frame* frame, const std::uint8_t* head,
                          std::size_t size, nghttp2_data_source* source, void* user);
};

inline nghttp2_nv h2_line(std::string_view name, std::string_view value,
                          bool sensitive = false) noexcept {
  const auto raw = [](std::string_view text) {
    return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(text.data()));
  };
  return {.name = raw(name),
          .value = raw(value),
          .namelen = name.size(),
          .valuelen = value.size(),
          .flags = static_cast<std::uint8_t>(sensitive ? NGHTTP2_NV_FLAG_NO_INDEX
                                                       : NGHTTP2_NV_FLAG_NONE)};
}

/// Into `lines`, whose memory is used again and again.
inline void h2_lines(std::vector<nghttp2_nv>& lines, std::initializer_list<nghttp2_nv> first,
                     const field_list& fields) {
  lines.assign(first);
  for (const field each : fields) lines.push_back(h2_line(each.name, each.value, each.sensitive));
}

}  // namespace weft::http
