#include <weft/http/core/h3_session.hpp>

#include <algorithm>
#include <charconv>

#include <nghttp3/nghttp3.h>

#include <weft/base/slice_queue.hpp>

namespace weft::http {
namespace {

constexpr std::size_t most_parts = 16;  // of one write
constexpr std::size_t spare_streams = 64;
// Content this short is copied behind its frame header: one part costs less than two.
constexpr std::size_t copy_up_to = 2048;

const std::uint8_t* raw(std::string_view text) noexcept {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

std::string_view text_of(nghttp3_rcbuf* from) noexcept {
  const nghttp3_vec at = nghttp3_rcbuf_get_buf(from);
  return {reinterpret_cast<const char*>(at.base), at.len};
}

nghttp3_nv line(std::string_view name, std::string_view value, bool sensitive = false) noexcept {
  return {.name = raw(name),
          .value = raw(value),
          .namelen = name.size(),
          .valuelen = value.size(),
          .flags = static_cast<std::uint8_t>(sensitive ? NGHTTP3_NV_FLAG_NEVER_INDEX
                                                       : NGHTTP3_NV_FLAG_NONE)};
}

/// Emptied; its memory serves one field section after another. For one at a time.
std::vector<nghttp3_nv>& fresh_lines() {
  static thread_local std::vector<nghttp3_nv> lines;
  lines.clear();
  return lines;
}

void append(std::vector<nghttp3_nv>& to, const field_list& fields) {
  for (const field each : fields) to.push_back(line(each.name, each.value, each.sensitive));
}

result<> check_size(const std::vector<nghttp3_nv>& lines, std::string_view what,
                    std::uint64_t limit) {
  std::size_t size = 0;
  for (const nghttp3_nv& each : lines) size += each.namelen + each.valuelen + 32;
  if (size <= limit) return {};
  return std::unexpected{beyond_peers_limit(what, size, limit)};
}

std::unexpected<error> broken(nghttp3_ssize failure, std::string_view doing) {
  const int code = static_cast<int>(failure);
  return fail(code == NGHTTP3_ERR_H3_EXCESSIVE_LOAD ? errc::exhausted : errc::protocol, layer::http,
              "HTTP/3: " + std::string{doing} + ": " + nghttp3_strerror(code),
              nghttp3_err_infer_quic_app_error_code(code));
}

}  // namespace

/// One request stream.
struct h3_session::stream_state {
  exchange_id id = 0;
  h3_session* owner = nullptr;

  // Receiving
  request_head request;
  response_head response;
  field_list trailers;
  std::size_t section = 0;  // bytes of the field section under way
  bool too_large = false;
  bool head_done = false;
  bool received_all = false;                       // or given up
  std::uint8_t urgency = NGHTTP3_DEFAULT_URGENCY;  // as the client wants it

  // Sending
  slice_queue queue;
  std::size_t queued = 0;        // bytes in `queue`
  std::size_t handed_parts = 0;  // of `queue`, to the library
  std::size_t front_acked = 0;   // bytes of the first part that are done with
  field_list out_trailers;
  bool head_sent = false;
  bool end = false;  // nothing comes after `queue`, but trailers
  bool end_handed = false;
  bool blocked = false;
  bool sent_all = false;  // or given up

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
    section = queued = handed_parts = front_acked = 0;
    urgency = NGHTTP3_DEFAULT_URGENCY;
    too_large = head_done = received_all = head_sent = end = end_handed = blocked = sent_all =
        false;
  }
};

/// Where the library calls back. None of these may call the library's reading or writing again.
struct h3_session::callbacks {
  static h3_session& self(void* user) noexcept { return *static_cast<h3_session*>(user); }

  static int begin_headers(nghttp3_conn*, std::int64_t id, void* user, void*) {
    h3_session& s = self(user);
    stream_state* stream = s.find(id);
    if (!stream) stream = &s.create(id);
    stream->section = 0;
    return 0;
  }

  static int recv_header(nghttp3_conn*, std::int64_t id, std::int32_t token, nghttp3_rcbuf* name,
                         nghttp3_rcbuf* value, std::uint8_t, void* user, void*) {
    h3_session& s = self(user);
    stream_state* stream = s.find(id);
    if (!stream || !counted(s, *stream, name, value)) return 0;
    if (s.side_ == end_of::server)
      take_request_line(stream->request, token, text_of(name), text_of(value));
    else
      take_response_line(stream->response, token, text_of(name), text_of(value));
    return 0;
  }

  static int recv_trailer(nghttp3_conn*, std::int64_t id, std::int32_t, nghttp3_rcbuf* name,
                          nghttp3_rcbuf* value, std::uint8_t, void* user, void*) {
    h3_session& s = self(user);
    stream_state* stream = s.find(id);
    if (!stream || !counted(s, *stream, name, value)) return 0;
    stream->trailers.add_valid(text_of(name), text_of(value));
    return 0;
  }

  /// False: beyond the limit; counted, not kept.
  static bool counted(const h3_session& s, stream_state& stream, nghttp3_rcbuf* name,
                      nghttp3_rcbuf* value) {
    stream.section += text_of(name).size() + text_of(value).size() + 32;  // RFC 9114 §4.2.2
    if (stream.section > s.settings_.max_field_section) stream.too_large = true;
    return !stream.too_large;
  }

  static void take_request_line(request_head& to, std::int32_t token, std::string_view name,
                                std::string_view value) {
    switch (token) {
      case NGHTTP3_QPACK_TOKEN__METHOD:
        to.method = value;
        return;
      case NGHTTP3_QPACK_TOKEN__SCHEME:
        to.scheme = value;
        return;
      case NGHTTP3_QPACK_TOKEN__AUTHORITY:
        to.authority = value;
        return;
      case NGHTTP3_QPACK_TOKEN__PATH:
        to.path = value;
        return;
      default:
        to.fields.add_valid(name, value);
    }
  }

  static void take_response_line(response_head& to, std::int32_t token, std::string_view name,
                                 std::string_view value) {
    if (token != NGHTTP3_QPACK_TOKEN__STATUS) return to.fields.add_valid(name, value);
    // The library has checked that it is three digits.
    std::from_chars(value.data(), value.data() + value.size(), to.status);
  }

  static int end_headers(nghttp3_conn*, std::int64_t id, int, void* user, void*) {
    h3_session& s = self(user);
    stream_state* stream = s.find(id);
    if (!stream || stream->head_done) return 0;
    if (s.side_ == end_of::client && stream->response.status < 200 && !stream->too_large) {
      stream->response.fields.clear();  // interim
      return 0;
    }
    stream->head_done = true;
    if (stream->too_large) {
      s.too_large_.push_back(id);
      return 0;
    }
    if (s.side_ == end_of::client) {
      s.report(id, event::response{std::move(stream->response)});
    } else {
      s.report(id, event::request{std::move(stream->request), stream->urgency});
    }
    return 0;
  }

  static int begin_trailers(nghttp3_conn*, std::int64_t id, void* user, void*) {
    if (stream_state* stream = self(user).find(id)) stream->section = 0;
    return 0;
  }
  static int end_trailers(nghttp3_conn*, std::int64_t id, int, void* user, void*) {
    h3_session& s = self(user);
    stream_state* stream = s.find(id);
    if (stream && stream->too_large) s.too_large_.push_back(id);
    return 0;
  }

  static int recv_data(nghttp3_conn*, std::int64_t id, const std::uint8_t* data, std::size_t size,
                       void* user, void*) {
    h3_session& s = self(user);
    stream_state* stream = s.find(id);
    if (!stream || stream->received_all || size == 0) return 0;
    s.report(id, event::content{s.shared(data, size)});
    return 0;
  }

  static int end_stream(nghttp3_conn*, std::int64_t id, void* user, void*) {
    h3_session& s = self(user);
    stream_state* stream = s.find(id);
    if (!stream || stream->received_all || stream->too_large) return 0;
    s.report(id, event::end{std::move(stream->trailers)});
    s.end_receiving(*stream);
    return 0;
  }

  /// The library found the message malformed, or rejects the stream while going away.
  static int stop_sending(nghttp3_conn*, std::int64_t id, std::uint64_t code, void* user, void*) {
    h3_session& s = self(user);
    s.command(id, h3_command::what::stop_sending, code);
    if (stream_state* stream = s.find(id)) {
      s.refused_message(*stream, code);
      s.end_receiving(*stream);
    }
    return 0;
  }
  static int reset_stream(nghttp3_conn*, std::int64_t id, std::uint64_t code, void* user, void*) {
    h3_session& s = self(user);
    s.command(id, h3_command::what::reset, code);
    if (stream_state* stream = s.find(id)) {
      s.refused_message(*stream, code);
      s.end_sending(*stream);
    }
    return 0;
  }

  static int shutdown(nghttp3_conn*, std::int64_t id, void* user) {
    h3_session& s = self(user);
    s.peer_going_away_ = true;
    if (s.side_ == end_of::client && id != NGHTTP3_SHUTDOWN_NOTICE_STREAM_ID)
      s.refused_from_ = std::min(s.refused_from_, id);
    return 0;
  }

  static int recv_settings(nghttp3_conn*, const nghttp3_proto_settings* settings, void* user) {
    self(user).peer_max_section_ = settings->max_field_section_size;
    return 0;
  }

  /// Content is done with as soon as the transport shares it.
  static int acked(nghttp3_conn*, std::int64_t id, std::uint64_t size, void* user, void*) {
    stream_state* stream = self(user).find(id);
    if (!stream) return 0;
    std::size_t left = static_cast<std::size_t>(size);
    while (left != 0 && !stream->queue.empty()) {
      const std::size_t part = stream->queue.front().size() - stream->front_acked;
      const std::size_t done = std::min(part, left);
      left -= done;
      stream->front_acked += done;
      stream->queued -= done;
      if (done < part) break;
      stream->queue.pop_front();
      stream->front_acked = 0;
      --stream->handed_parts;
    }
    return 0;
  }

  static nghttp3_ssize read_data(nghttp3_conn* conn, std::int64_t id, nghttp3_vec* vec,
                                 std::size_t room, std::uint32_t* flags, void* user, void*) {
    h3_session& s = self(user);
    stream_state* stream = s.find(id);
    s.ran_dry_ = true;
    if (!stream) return NGHTTP3_ERR_WOULDBLOCK;
    std::size_t count = 0;
    while (count < room && stream->handed_parts < stream->queue.size()) {
      const slice& part = stream->queue[stream->handed_parts++];
      vec[count++] = {const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(part.data())),
                      part.size()};
    }
    const bool all = stream->end && stream->handed_parts == stream->queue.size();
    if (!all) return count != 0 ? static_cast<nghttp3_ssize>(count) : NGHTTP3_ERR_WOULDBLOCK;
    *flags |= NGHTTP3_DATA_FLAG_EOF;
    stream->end_handed = true;
    if (!stream->out_trailers.empty()) {
      *flags |= NGHTTP3_DATA_FLAG_NO_END_STREAM;
      auto& lines = fresh_lines();
      append(lines, stream->out_trailers);
      if (nghttp3_conn_submit_trailers(conn, id, lines.data(), lines.size()) != 0)
        return NGHTTP3_ERR_CALLBACK_FAILURE;
    }
    return static_cast<nghttp3_ssize>(count);
  }

  static const nghttp3_callbacks& table() {
    static const nghttp3_callbacks made = [] {
      nghttp3_callbacks c{};
      c.acked_stream_data = &acked;
      c.recv_data = &recv_data;
      c.begin_headers = &begin_headers;
      c.recv_header = &recv_header;
      c.end_headers = &end_headers;
      c.begin_trailers = &begin_trailers;
      c.recv_trailer = &recv_trailer;
      c.end_trailers = &end_trailers;
      c.stop_sending = &stop_sending;
      c.end_stream = &end_stream;
      c.reset_stream = &reset_stream;
      c.shutdown = &shutdown;
      c.recv_settings2 = &recv_settings;
      return c;
    }();
    return made;
  }
  static constexpr nghttp3_data_reader reader{&read_data};
};

// Life
// ---------------------------------------------------------------------------------------------

h3_session::h3_session(end_of side, const h3_settings& settings)
    : side_{side}, settings_{settings} {}

h3_session::~h3_session() {
  nghttp3_conn_del(conn_);
}

result<std::unique_ptr<h3_session>> h3_session::make(end_of side, const h3_settings& wanted) {
  std::unique_ptr<h3_session> made{new h3_session{side, wanted}};
  nghttp3_settings settings;
  nghttp3_settings_default(&settings);
  settings.max_field_section_size = wanted.max_field_section;
  settings.qpack_max_dtable_capacity = wanted.qpack_table;
  settings.qpack_encoder_max_dtable_capacity = wanted.qpack_table;
  // A field section that needs a table entry still under way would wait for it, and so would its
  // call, behind another's loss. None may: what is not acknowledged is sent as literals.
  settings.qpack_blocked_streams = 0;
  const auto create = side == end_of::client ? &nghttp3_conn_client_new_versioned
                                             : &nghttp3_conn_server_new_versioned;
  if (const int failed = create(&made->conn_, NGHTTP3_CALLBACKS_VERSION, &callbacks::table(),
                                NGHTTP3_SETTINGS_VERSION, &settings, nullptr, made.get());
      failed != 0)
    return broken(failed, "starting a session");
  if (side == end_of::server) {
    nghttp3_conn_set_max_concurrent_streams(made->conn_, wanted.max_concurrent);
    made->expect_requests_from(0);
  }
  return made;
}

result<> h3_session::bind(std::int64_t control, std::int64_t encoder, std::int64_t decoder) {
  if (const int failed = nghttp3_conn_bind_control_stream(conn_, control); failed != 0)
    return broken(failed, "opening the control stream");
  if (const int failed = nghttp3_conn_bind_qpack_streams(conn_, encoder, decoder); failed != 0)
    return broken(failed, "opening the QPACK streams");
  return {};
}

h3_session::stream_state* h3_session::find(exchange_id id) const noexcept {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second.get();
}

h3_session::stream_state& h3_session::create(exchange_id id) {
  std::unique_ptr<stream_state> made;
  if (spare_.empty()) {
    made = std::make_unique<stream_state>();
  } else {
    made = std::move(spare_.back());
    spare_.pop_back();
  }
  made->id = id;
  ++open_;
  if (side_ == end_of::server) expect_requests_from(id);
  return *streams_.insert_or_assign(id, std::move(made)).first->second;
}

/// Up to which stream a PRIORITY_UPDATE may name requests that have not come (RFC 9218 §7.2): the
/// library keeps something for each, and knows nothing of QUIC's limit.
void h3_session::expect_requests_from(std::int64_t stream) {
  constexpr std::int64_t step = 4;  // RFC 9000 §2.1
  constexpr std::uint64_t spare = 1'000;
  const std::uint64_t most = static_cast<std::uint64_t>(stream / step) +
                             std::max<std::uint64_t>(settings_.max_concurrent, spare);
  if (most <= expected_requests_) return;
  expected_requests_ = most + spare;
  nghttp3_conn_set_max_client_streams_bidi(conn_, expected_requests_);
}

void h3_session::end_receiving(stream_state& s) {
  if (std::exchange(s.received_all, true)) return;
  if (s.sent_all) finished_.push_back(s.id);
}

void h3_session::end_sending(stream_state& s) {
  if (std::exchange(s.sent_all, true)) return;
  if (s.received_all) finished_.push_back(s.id);
}

/// Not inside a callback: the library lets go of the streams.
void h3_session::close_finished() {
  for (const exchange_id id : finished_) {
    (void)nghttp3_conn_close_stream(conn_, id, NGHTTP3_H3_NO_ERROR);
    auto node = streams_.extract(id);
    if (node.empty()) continue;
    --open_;
    if (spare_.size() == spare_streams) continue;
    node.mapped()->reuse();
    spare_.push_back(std::move(node.mapped()));
  }
  finished_.clear();
}

// Receiving
// ----------------------------------------------------------------------------------------

slice h3_session::shared(const std::uint8_t* data, std::size_t size) const {
  const auto* from = reinterpret_cast<const std::byte*>(data);
  if (arriving_ && std::greater_equal<>{}(from, arriving_->data()) &&
      std::less_equal<>{}(from + size, arriving_->data() + arriving_->size()))
    return arriving_->sub(static_cast<std::size_t>(from - arriving_->data()), size);
  return slice::copy(bytes{from, size});  // waited for QPACK inside the library
}

result<> h3_session::receive(std::int64_t stream, const slice& data, bool fin, time_point now) {
  arriving_ = &data;
  const auto consumed = nghttp3_conn_read_stream2(
      conn_, stream, reinterpret_cast<const std::uint8_t*>(data.data()), data.size(), fin,
      static_cast<nghttp3_tstamp>(now.time_since_epoch().count()));
  arriving_ = nullptr;
  if (consumed < 0) return broken(consumed, "the peer broke the protocol");
  for (const exchange_id id : std::exchange(too_large_, {}))
    if (stream_state* s = find(id)) refuse_too_large(*s);
  if (side_ == end_of::server) {
    for (event& each : events_)
      if (auto* begun = std::get_if<event::request>(&each.what); begun && each.id == stream)
        if (stream_state* s = find(stream)) begun->urgency = s->urgency = urgency_of(stream);
    if (is_peers_control(stream, data)) take_urgencies();
  }
  close_finished();
  return {};
}

/// What the `priority` field or PRIORITY_UPDATE of the client says (RFC 9218), the latter having
/// precedence.
std::uint8_t h3_session::urgency_of(exchange_id id) const noexcept {
  nghttp3_pri priority{.urgency = NGHTTP3_DEFAULT_URGENCY, .inc = 0};
  if (nghttp3_conn_get_stream_priority2(conn_, &priority, id) != 0) return NGHTTP3_DEFAULT_URGENCY;
  return static_cast<std::uint8_t>(priority.urgency);
}

/// `data`: the next of it.
bool h3_session::is_peers_control(std::int64_t stream, const slice& data) {
  constexpr std::int64_t unidirectional = 2;  // RFC 9000 §2.1
  constexpr std::byte control{0};             // its first byte (RFC 9114 §6.2.1)
  if (peer_control_ >= 0 || (stream & unidirectional) == 0) return stream == peer_control_;
  if (data.empty() || std::ranges::contains(other_streams_, stream)) return false;
  if (data.span().front() == control)
    peer_control_ = stream;
  else
    other_streams_.push_back(stream);
  return stream == peer_control_;
}

/// The library tells of no PRIORITY_UPDATE. They come on the control stream, where little else
/// does.
void h3_session::take_urgencies() {
  for (const auto& [id, s] : streams_) {
    if (!s->head_done || s->sent_all) continue;
    const std::uint8_t wanted = urgency_of(id);
    if (std::exchange(s->urgency, wanted) == wanted) continue;
    command(id, h3_command::what::prioritise, wanted);
  }
}

result<> h3_session::receive_reset(std::int64_t stream, std::uint64_t code) {
  stream_state* s = find(stream);
  if (!s) {
    // Only our own and the peer's critical streams matter beside requests.
    const int failed = nghttp3_conn_close_stream(conn_, stream, code);
    if (failed != 0 && failed != NGHTTP3_ERR_STREAM_NOT_FOUND)
      return broken(failed, "the peer closed a stream that must stay open");
    return {};
  }
  if (s->received_all) return {};
  if (const int failed = nghttp3_conn_shutdown_stream_read(conn_, stream); failed != 0)
    return broken(failed, "giving a stream up");
  report(stream, event::reset{from_h3(code)});
  end_receiving(*s);
  close_finished();
  return {};
}

void h3_session::receive_stop(std::int64_t stream, std::uint64_t code) {
  stream_state* s = find(stream);
  if (!s || s->sent_all) return;
  nghttp3_conn_shutdown_stream_write(conn_, stream);
  report(stream, event::stopped{from_h3(code)});
  end_sending(*s);
  close_finished();
}

void h3_session::refused_message(stream_state& s, std::uint64_t code) {
  const bool known = side_ == end_of::client || s.head_done;
  if (!known || s.received_all || s.too_large) return;
  const bool rejected = code == NGHTTP3_H3_REQUEST_REJECTED;
  report(s.id, event::failed{error{rejected ? errc::refused : errc::protocol, layer::http,
                                   rejected ? "the request was rejected unprocessed"
                                            : "the peer's message is malformed (RFC 9114 §4.1.2)",
                                   static_cast<std::uint64_t>(from_h3(code))}});
}

void h3_session::refuse_too_large(stream_state& s) {
  const std::string limit = std::to_string(settings_.max_field_section);
  const bool answer = side_ == end_of::server && !s.head_sent && !s.sent_all;
  const bool known = side_ == end_of::client || !answer;
  if (known && !s.received_all)
    report(s.id, event::failed{error{errc::too_large, layer::http,
                                     "the peer's field section of " + std::to_string(s.section) +
                                         " bytes exceeds the limit of " + limit}});
  if (answer) {
    response_head head{.status = 431};  // RFC 6585 §5
    if (!submit(s, head, true)) return reset(s.id, give_up::internal);
    return stop(s.id, give_up::no_error);
  }
  reset(s.id, give_up::excessive_load);
}

// Sending
// ------------------------------------------------------------------------------------------

result<> h3_session::request(std::int64_t stream, const request_head& head, bool end,
                             std::uint8_t urgency) {
  auto& lines = fresh_lines();
  lines.reserve(head.fields.size() + 5);
  lines.push_back(line(":method", head.method));
  lines.push_back(line(":scheme", head.scheme));
  lines.push_back(line(":authority", head.authority));
  lines.push_back(line(":path", head.path));
  append(lines, head.fields);
  const std::string priority = "u=" + std::to_string(urgency);
  if (urgency != NGHTTP3_DEFAULT_URGENCY) lines.push_back(line("priority", priority));
  if (auto fits = check_size(lines, "the request", peer_max_section_); !fits) return fits;
  stream_state& s = create(stream);
  s.head_sent = true;
  s.end = s.end_handed = end;
  if (const int failed = nghttp3_conn_submit_request(conn_, stream, lines.data(), lines.size(),
                                                     end ? nullptr : &callbacks::reader, nullptr);
      failed != 0) {
    streams_.erase(stream);
    --open_;
    return broken(failed, "sending a request");
  }
  return {};
}

result<> h3_session::submit(stream_state& s, const response_head& head, bool end) {
  const std::string status = std::to_string(head.status);
  auto& lines = fresh_lines();
  lines.reserve(head.fields.size() + 1);
  lines.push_back(line(":status", status));
  append(lines, head.fields);
  if (auto fits = check_size(lines, "the response", peer_max_section_); !fits) return fits;
  if (const int failed = nghttp3_conn_submit_response(conn_, s.id, lines.data(), lines.size(),
                                                      end ? nullptr : &callbacks::reader);
      failed != 0)
    return broken(failed, "sending a response");
  s.head_sent = true;
  s.end = s.end_handed = end;
  return {};
}

result<> h3_session::respond(exchange_id id, const response_head& head, bool end) {
  stream_state* s = find(id);
  if (!s || s->sent_all)
    return fail(errc::stopped, layer::http, "nobody waits for the response any more");
  if (s->head_sent)
    return fail(errc::invalid_argument, layer::http, "the response's head was sent already");
  return submit(*s, head, end);
}

void h3_session::send(exchange_id id, slice data, bool end) {
  stream_state* s = find(id);
  if (!s || s->sent_all || s->end) return;
  s->queued += data.size();
  if (!data.empty()) s->queue.push_back(std::move(data));
  s->end = end;
  resume(*s);
}

result<> h3_session::send_trailers(exchange_id id, const field_list& trailers) {
  stream_state* s = find(id);
  if (!s || s->sent_all || s->end) return {};
  if (trailers.section_size() > peer_max_section_)
    return std::unexpected{
        beyond_peers_limit("the trailers", trailers.section_size(), peer_max_section_)};
  s->out_trailers = trailers;
  s->end = true;
  resume(*s);
  return {};
}

bool h3_session::is_receiving(exchange_id id) const noexcept {
  const stream_state* s = find(id);
  return !s || !s->received_all;
}

std::size_t h3_session::unsent(exchange_id id) const noexcept {
  const stream_state* s = find(id);
  return s ? s->queued : 0;
}

/// The bytes at `data` as a part that may outlive the library's: shared where they are content.
slice h3_session::joined(const stream_state* s, const void* data, std::size_t size) const {
  const auto* from = static_cast<const std::byte*>(data);
  if (s)
    for (std::size_t i = 0; i < s->handed_parts; ++i) {
      const slice& part = s->queue[i];
      if (std::greater_equal<>{}(from, part.data()) &&
          std::less_equal<>{}(from + size, part.data() + part.size()))
        return part.sub(static_cast<std::size_t>(from - part.data()), size);
    }
  return slice::copy(bytes{from, size});
}

result<h3_write*> h3_session::next_write() {
  std::array<nghttp3_vec, most_parts> found;
  h3_write& write = write_;
  write.stream = -1;
  write.parts.clear();
  int fin = 0;
  nghttp3_ssize count = 0;
  // The library gives nothing when the stream whose turn it is has nothing more, though others
  // have.
  do {
    ran_dry_ = false;
    count = nghttp3_conn_writev_stream(conn_, &write.stream, &fin, found.data(), found.size());
  } while (count == 0 && write.stream < 0 && ran_dry_);
  if (count < 0) return broken(count, "writing");
  if (write.stream < 0) return nullptr;
  write.fin = fin != 0;
  const std::span parts{found.data(), static_cast<std::size_t>(count)};
  std::size_t total = 0;
  for (const nghttp3_vec& each : parts) total += each.len;
  if (total <= copy_up_to) {
    buffer all = buffer::allocate(total);
    std::byte* target = all.data();
    for (const nghttp3_vec& each : parts) {
      if (each.len != 0) std::memcpy(target, each.base, each.len);
      target += each.len;
    }
    if (total != 0) write.parts.push_back(std::move(all).freeze());
    return &write;
  }
  const stream_state* s = find(write.stream);
  for (const nghttp3_vec& each : parts)
    if (each.len != 0) write.parts.push_back(joined(s, each.base, each.len));
  return &write;
}

result<> h3_session::taken(const h3_write& written) {
  std::size_t total = 0;
  for (const slice& part : written.parts) total += part.size();
  if (const int failed = nghttp3_conn_add_write_offset(conn_, written.stream, total); failed != 0)
    return broken(failed, "writing");
  if (const int failed = nghttp3_conn_add_ack_offset(conn_, written.stream, total); failed != 0)
    return broken(failed, "writing");
  if (stream_state* s = find(written.stream); s && written.fin) {
    end_sending(*s);
    close_finished();
  }
  return {};
}

/// There is more for the library to read. Not for one that is blocked: that would unblock it.
void h3_session::resume(const stream_state& s) {
  if (!s.blocked) (void)nghttp3_conn_resume_stream(conn_, s.id);
}

void h3_session::block(std::int64_t stream) {
  nghttp3_conn_block_stream(conn_, stream);
  if (stream_state* s = find(stream)) s->blocked = true;
}

void h3_session::unblock(std::int64_t stream) {
  (void)nghttp3_conn_unblock_stream(conn_, stream);
  stream_state* s = find(stream);
  if (!s) return;
  s->blocked = false;
  resume(*s);
}

// Giving up
// ----------------------------------------------------------------------------------------

void h3_session::stop(exchange_id id, give_up why) {
  stream_state* s = find(id);
  if (!s || s->received_all) return;
  (void)nghttp3_conn_shutdown_stream_read(conn_, id);
  command(id, h3_command::what::stop_sending, to_h3(why));
  end_receiving(*s);
  close_finished();
}

void h3_session::reset(exchange_id id, give_up why) {
  stream_state* s = find(id);
  if (!s) return;
  if (!s->sent_all && !s->end) {
    nghttp3_conn_shutdown_stream_write(conn_, id);
    command(id, h3_command::what::reset, to_h3(why));
    end_sending(*s);
  }
  if (!s->received_all) return stop(id, why);
  close_finished();
}

void h3_session::set_urgency(exchange_id id, std::uint8_t urgency) {
  if (side_ == end_of::server) {
    const nghttp3_pri priority{.urgency = urgency, .inc = 1};
    (void)nghttp3_conn_set_server_stream_priority(conn_, id, &priority);
    if (stream_state* s = find(id)) s->urgency = urgency;
    return;
  }
  const std::string value = "u=" + std::to_string(urgency);
  (void)nghttp3_conn_set_client_stream_priority(conn_, id, raw(value), value.size());
}

void h3_session::announce_departure() {
  if (side_ == end_of::client || going_away_ || std::exchange(announced_, true)) return;
  (void)nghttp3_conn_submit_shutdown_notice(conn_);
}

void h3_session::go_away() {
  if (std::exchange(going_away_, true)) return;
  (void)nghttp3_conn_shutdown(conn_);
}

}  // namespace weft::http
