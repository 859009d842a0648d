#include <algorithm>
#include <new>

#include <weft/http/core/h2_stream.hpp>

namespace weft::http {
namespace {

constexpr std::size_t spare_streams = 64;
constexpr std::uint8_t default_urgency = 3, least_urgent = 7;  // RFC 9218 §4.1

std::int32_t number(exchange_id id) noexcept {
  return static_cast<std::int32_t>(id);
}

std::uint32_t window_of(std::size_t size) noexcept {
  return static_cast<std::uint32_t>(std::min<std::size_t>(size, NGHTTP2_MAX_WINDOW_SIZE));
}

nghttp2_option* options() {
  nghttp2_option* made = nullptr;
  if (nghttp2_option_new(&made) != 0) throw std::bad_alloc{};
  nghttp2_option_set_no_auto_window_update(made, 1);
  nghttp2_option_set_no_closed_streams(made, 1);
  nghttp2_option_set_builtin_recv_extension_type(made, NGHTTP2_PRIORITY_UPDATE);
  // Ours knows the time that it is given, and asks who waits for an answer.
  nghttp2_option_set_stream_reset_rate_limit(made, 1'000'000, 1'000'000);
  nghttp2_option_set_max_send_header_block_length(made, std::size_t{1} << 20);
  return made;
}

/// What an RFC 9218 `priority` field says.
std::uint8_t urgency_in(std::string_view text) {
  nghttp2_extpri wanted{.urgency = default_urgency, .inc = 0};
  if (nghttp2_extpri_parse_priority(&wanted, reinterpret_cast<const std::uint8_t*>(text.data()),
                                    text.size()) != 0)
    return default_urgency;
  return static_cast<std::uint8_t>(wanted.urgency);
}

std::string printable(std::string_view text, std::size_t most) {
  std::string shown;
  for (const char c : text.substr(0, most)) shown += c >= ' ' && c < 0x7f ? c : '?';
  return shown;
}

}  // namespace

h2_session::h2_session(h2_role role, const h2_settings& settings)
    : role_{role},
      settings_{settings},
      sections_{role == h2_role::server ? std::size_t{NGHTTP2_CLIENT_MAGIC_LEN} : 0},
      lines_{std::make_unique<line_list>()} {
  const std::unique_ptr<nghttp2_option, decltype(&nghttp2_option_del)> wanted{options(),
                                                                              &nghttp2_option_del};
  const auto create =
      role == h2_role::client ? &nghttp2_session_client_new2 : &nghttp2_session_server_new2;
  if (create(&session_, callbacks::table(), this, wanted.get()) != 0) throw std::bad_alloc{};
  std::vector<nghttp2_settings_entry> told{
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window_of(settings.exchange_window)},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
       static_cast<std::uint32_t>(std::min<std::size_t>(settings.max_field_section, UINT32_MAX))},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
  };
  if (role == h2_role::client)
    told.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
  else
    told.push_back(
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
         static_cast<std::uint32_t>(std::min<std::size_t>(settings.max_concurrent, UINT32_MAX))});
  (void)nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, told.data(), told.size());
  (void)nghttp2_session_set_local_window_size(
      session_, NGHTTP2_FLAG_NONE, 0,
      static_cast<std::int32_t>(window_of(settings.connection_window)));
}

h2_session::~h2_session() {
  nghttp2_session_del(session_);
}

h2_session::stream_state* h2_session::find(exchange_id id) const noexcept {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second.get();
}

h2_session::stream_state& h2_session::create(exchange_id id) {
  std::unique_ptr<stream_state> made;
  if (spare_.empty()) {
    made = std::make_unique<stream_state>();
  } else {
    made = std::move(spare_.back());
    spare_.pop_back();
  }
  made->id = id;
  return *streams_.insert_or_assign(id, std::move(made)).first->second;
}

void h2_session::remove(exchange_id id) {
  auto node = streams_.extract(id);
  if (node.empty() || spare_.size() == spare_streams) return;
  node.mapped()->reuse();
  spare_.push_back(std::move(node.mapped()));
}

// Receiving
// ----------------------------------------------------------------------------------------

result<> h2_session::receive(const slice& arrived, time_point now) {
  if (failure_) return std::unexpected{*failure_};
  if (terminated_) return {};
  now_ = now;
  sections_.take(arrived.span(), now);
  arriving_ = &arrived;
  const auto consumed = nghttp2_session_mem_recv2(
      session_, reinterpret_cast<const std::uint8_t*>(arrived.data()), arrived.size());
  arriving_ = nullptr;
  if (consumed == NGHTTP2_ERR_BAD_CLIENT_MAGIC)
    fail_connection(NGHTTP2_PROTOCOL_ERROR,
                    "the peer does not speak HTTP/2 with prior knowledge (RFC 9113 §3.4): \"" +
                        printable(arrived.text(), 24) + '"');
  else if (consumed == NGHTTP2_ERR_FLOODED || consumed == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS)
    fail_connection(NGHTTP2_ENHANCE_YOUR_CALM,
                    "the peer floods: " + in_words(nghttp2_strerror(static_cast<int>(consumed))));
  else if (consumed < 0)
    fail_connection(NGHTTP2_INTERNAL_ERROR,
                    "receiving HTTP/2: " + in_words(nghttp2_strerror(static_cast<int>(consumed))));
  if (failure_) return std::unexpected{*failure_};
  return {};
}

/// The library's account of what was wrong, where it gave one.
std::string h2_session::in_words(std::string_view fallback) const {
  return last_words_.empty() ? std::string{fallback} : last_words_;
}

void h2_session::fail_connection(std::uint32_t code, std::string message) {
  if (failure_ || terminated_) return;
  failure_ = error{code == NGHTTP2_ENHANCE_YOUR_CALM ? errc::exhausted : errc::protocol,
                   layer::http, std::move(message), code};
  (void)nghttp2_session_terminate_session(session_, code);
}

bool h2_session::spend(h2_allowance& allowance, std::string_view what) {
  if (allowance.take(1, now_)) return true;
  fail_connection(NGHTTP2_ENHANCE_YOUR_CALM, "the peer sends too many " + std::string{what});
  return false;
}

slice h2_session::shared(bytes from) {
  // A short piece must not keep all that arrived with it.
  constexpr std::size_t least_share = 4;
  const bool lasting = from.size() >= arriving_->size() / least_share;
  if (!lasting) return pieces_.copy(from);
  return arriving_->sub(static_cast<std::size_t>(from.data() - arriving_->data()), from.size());
}

void h2_session::take_content(stream_state& s, bytes content) {
  if (content.empty()) return;
  if (!events_.empty() && events_.back().id == s.id)
    if (auto* before = std::get_if<event::content>(&events_.back().what);
        before && pieces_.extend(before->data, content))
      return;
  report(s.id, event::content{shared(content)});
}

void h2_session::take_section(stream_state& s, bool end) {
  if (s.too_large && !s.received_all && !s.muted) return refuse_too_large(s);
  if (s.muted || s.received_all) return;
  if (!s.head_done && role_ == h2_role::client && s.response.status < 200) {
    s.response.fields.clear();  // interim
    return;
  }
  if (!s.head_done) {
    s.head_done = true;
    if (role_ == h2_role::client) {
      report(s.id, event::response{std::move(s.response)});
    } else {
      set_urgency(s.id, urgency_in(s.request.fields.find("priority").value_or("")));
      report(s.id, event::request{std::move(s.request), s.urgency});
    }
  }
  if (end) take_end(s);
}

void h2_session::take_end(stream_state& s) {
  if (s.received_all) return;
  if (!s.muted) report(s.id, event::end{std::move(s.trailers)});
  end_receiving(s);
}

void h2_session::end_receiving(stream_state& s) {
  s.received_all = true;
}

void h2_session::refuse_too_large(stream_state& s) {
  const bool answer = role_ == h2_role::server && !s.head_done;
  if (!answer) {
    broken_by_peer(s, {}, errc::too_large);
    return give_up_stream(s, NGHTTP2_ENHANCE_YOUR_CALM);
  }
  s.head_done = s.muted = true;
  const response_head head{.status = 431, .fields = {}};  // RFC 6585 §5
  if (!submit_response(s, head, true)) return give_up_stream(s, NGHTTP2_INTERNAL_ERROR);
  stop(s.id, give_up::no_error);
}

/// Reports, once, that what came of the peer is of no use.
void h2_session::broken_by_peer(stream_state& s, std::string_view words, errc code) {
  const bool known = role_ == h2_role::client || s.head_done;
  if (known && !s.muted && !(s.received_all && s.sent_all) && !terminated_) {
    std::string message;
    give_up why = give_up::protocol;
    if (code == errc::too_large) {
      why = give_up::excessive_load;
      message = "the peer's field section of " + std::to_string(s.section) +
                " bytes or more exceeds the limit of " +
                std::to_string(settings_.max_field_section);
    } else if (code == errc::refused) {
      why = give_up::rejected;
      message = "the server is going away and did not look at the request";
    } else {
      message = "the exchange broke: " + std::string{words};
    }
    report(s.id, event::failed{error{code, layer::http, std::move(message),
                                     static_cast<std::uint64_t>(why)}});
  }
  s.muted = true;
}

void h2_session::reset_by_peer(stream_state& s, std::uint32_t code) {
  const give_up why = from_h2(code);
  const bool known = role_ == h2_role::client || s.head_done;
  const bool wasted = role_ == h2_role::server && why != give_up::no_error && !s.sent_all;
  if (known && !s.muted) {
    if (!s.received_all) report(s.id, event::reset{why});
    if (!s.sent_all) report(s.id, event::stopped{why});
  }
  s.muted = true;
  if (wasted) (void)spend(resets_, "requests that it gives up");
}

/// The library lets go of the stream.
void h2_session::ended_stream(stream_state& s, std::uint32_t code) {
  const bool over = s.given_up || (s.received_all && s.sent_all);
  if (!over) {
    const bool refused = role_ == h2_role::client && code == NGHTTP2_REFUSED_STREAM;
    broken_by_peer(s, in_words(nghttp2_http2_strerror(code)),
                   refused ? errc::refused : errc::protocol);
  }
  s.queued = 0;
  s.queue.clear();
  update_turn(s);
  remove(s.id);
}

void h2_session::take_farewell(std::uint32_t code, std::string_view reason) {
  peer_going_away_ = true;
  if (code == NGHTTP2_NO_ERROR || (farewell_ && reason.empty())) return;
  std::string message = "the peer ended the connection: ";
  message += nghttp2_http2_strerror(code);
  if (!reason.empty()) message += ", \"" + printable(reason, 200) + '"';
  farewell_ = error{errc::reset, layer::http, std::move(message), code};
}

void h2_session::consume(exchange_id id, std::size_t count) {
  const stream_state* s = find(id);
  if (s && !s->stopped)
    (void)nghttp2_session_consume(session_, number(id), count);
  else
    (void)nghttp2_session_consume_connection(session_, count);
}

// Sending
// ------------------------------------------------------------------------------------------

void h2_session::collect(std::vector<slice>& out, std::size_t most) {
  out_ = &out;
  room_ = most;
  while (room_ != 0) {
    const std::uint8_t* data = nullptr;
    const auto count = nghttp2_session_mem_send2(session_, &data);
    if (count > 0) {
      append({reinterpret_cast<const std::byte*>(data), static_cast<std::size_t>(count)});
    } else if (count < 0) {
      fail_connection(NGHTTP2_INTERNAL_ERROR,
                      std::string{"sending HTTP/2: "} + nghttp2_strerror(static_cast<int>(count)));
      break;
    } else if (!release_held()) {
      break;
    }
  }
  out_ = nullptr;
}

bool h2_session::wants_to_send() const noexcept {
  return nghttp2_session_want_write(session_) != 0 || !held_.empty();
}

std::size_t h2_session::backlog() const noexcept {
  return nghttp2_session_get_outbound_queue_size(session_);
}

bool h2_session::may_request() const noexcept {
  if (failure_ || terminated_ || peer_going_away_) return false;
  const auto limit =
      nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
  return streams_.size() < limit && has_identifiers();
}

bool h2_session::has_identifiers() const noexcept {
  return nghttp2_session_get_next_stream_id(session_) < std::uint32_t{1} << 31;
}

namespace {

result<> check(const request_head& head) {
  const auto raw = [](std::string_view text) {
    return reinterpret_cast<const std::uint8_t*>(text.data());
  };
  const bool fine = nghttp2_check_method(raw(head.method), head.method.size()) != 0 &&
                    !head.path.empty() &&
                    nghttp2_check_path(raw(head.path), head.path.size()) != 0 &&
                    nghttp2_check_authority(raw(head.authority), head.authority.size()) != 0 &&
                    (head.scheme == "https" || head.scheme == "http");
  if (fine) return {};
  return fail(errc::invalid_argument, layer::http,
              "not a request: \"" + printable(head.method, 16) + ' ' + printable(head.scheme, 16) +
                  "://" + printable(head.authority, 80) + printable(head.path, 80) +
                  "\"; it needs a method, http or https, a host and a path that begins with /");
}

}  // namespace

result<exchange_id> h2_session::request(const request_head& head, bool end, std::uint8_t urgency) {
  if (auto checked = check(head); !checked) return std::unexpected{std::move(checked).error()};
  auto& lines = lines_->all;
  h2_lines(lines,
           {h2_line(":method", head.method), h2_line(":scheme", head.scheme),
            h2_line(":authority", head.authority), h2_line(":path", head.path)},
           head.fields);
  urgency = std::min(urgency, least_urgent);
  const char priority[] = {'u', '=', static_cast<char>('0' + urgency)};
  if (urgency != default_urgency && !head.fields.find("priority"))
    lines.push_back(h2_line("priority", {priority, sizeof priority}));
  if (auto fits = check_size("the request"); !fits) return std::unexpected{std::move(fits).error()};
  const auto next = static_cast<exchange_id>(nghttp2_session_get_next_stream_id(session_));
  stream_state& s = create(next);
  s.urgency = urgency;
  s.head_sent = true;
  s.end = end;
  const nghttp2_data_provider2 content = callbacks::content_of(s);
  const std::int32_t id = nghttp2_submit_request2(session_, nullptr, lines.data(), lines.size(),
                                                  end ? nullptr : &content, nullptr);
  if (id == next) return next;
  remove(next);
  return fail(errc::exhausted, layer::http,
              std::string{"the request cannot be sent: "} + nghttp2_strerror(id));
}

/// Of the section in `lines_`.
result<> h2_session::check_size(std::string_view what) const {
  std::size_t size = 0;
  for (const nghttp2_nv& each : lines_->all) size += each.namelen + each.valuelen + 32;
  const auto limit =
      nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE);
  if (size <= limit) return {};
  return std::unexpected{beyond_peers_limit(what, size, limit)};
}

result<> h2_session::submit_response(stream_state& s, const response_head& head, bool end) {
  const char status[] = {static_cast<char>('0' + head.status / 100),
                         static_cast<char>('0' + head.status / 10 % 10),
                         static_cast<char>('0' + head.status % 10)};
  auto& lines = lines_->all;
  h2_lines(lines, {h2_line(":status", {status, sizeof status})}, head.fields);
  if (auto fits = check_size("the response"); !fits) return fits;
  const nghttp2_data_provider2 content = callbacks::content_of(s);
  if (const int failed = nghttp2_submit_response2(session_, number(s.id), lines.data(),
                                                  lines.size(), end ? nullptr : &content);
      failed != 0)
    return fail(errc::internal, layer::http,
                std::string{"the response cannot be sent: "} + nghttp2_strerror(failed));
  s.head_sent = true;
  s.end = end;
  return {};
}

result<> h2_session::respond(exchange_id id, const response_head& head, bool end) {
  stream_state* s = find(id);
  if (!s || s->muted || s->sent_all)
    return fail(errc::stopped, layer::http, "nobody waits for the response any more");
  if (s->head_sent)
    return fail(errc::invalid_argument, layer::http, "the response's head was sent already");
  if (head.status < 200 || head.status > 999)
    return fail(errc::invalid_argument, layer::http,
                "a response's status is from 200 to 999, not " + std::to_string(head.status));
  return submit_response(*s, head, end);
}

void h2_session::send(exchange_id id, slice data, bool end) {
  stream_state* s = find(id);
  if (!s || s->sent_all || s->end) return;
  s->queued += data.size();
  if (!data.empty()) s->queue.push_back(std::move(data));
  s->end = end;
  resume(*s);
}

result<> h2_session::send_trailers(exchange_id id, const field_list& trailers) {
  stream_state* s = find(id);
  if (!s || s->sent_all || s->end) return {};
  h2_lines(lines_->all, {}, trailers);
  if (auto fits = check_size("the trailers"); !fits) return fits;
  s->out_trailers = trailers;
  s->end = true;
  resume(*s);
  return {};
}

std::size_t h2_session::unsent(exchange_id id) const noexcept {
  const stream_state* s = find(id);
  return s ? s->queued : 0;
}

void h2_session::resume(stream_state& s) {
  update_turn(s);
  if (s.held || !std::exchange(s.deferred, false)) return;
  (void)nghttp2_session_resume_data(session_, number(s.id));
}

void h2_session::end_sending(stream_state& s) {
  s.sent_all = true;
  update_turn(s);
  if (s.stop_after && !s.received_all) give_up_stream(s, *s.stop_after);
}

// Giving up
// ----------------------------------------------------------------------------------------

void h2_session::give_up_stream(stream_state& s, std::uint32_t code) {
  if (std::exchange(s.given_up, true)) return;
  // Its queue stays until the library lets go of the stream: a frame may be half on its way.
  s.muted = s.received_all = s.sent_all = true;
  update_turn(s);
  (void)nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, number(s.id), code);
}

void h2_session::stop(exchange_id id, give_up why) {
  stream_state* s = find(id);
  if (!s || s->received_all) return;
  s->stopped = true;
  if (s->sent_all) return give_up_stream(*s, to_h2(why));
  s->stop_after = to_h2(why);
}

void h2_session::reset(exchange_id id, give_up why) {
  stream_state* s = find(id);
  if (!s || s->given_up) return;
  const bool delivered = s->end && (role_ == h2_role::server || s->sent_all || fits_window(*s));
  if (delivered) return stop(id, why);
  give_up_stream(*s, to_h2(why));
}

bool h2_session::fits_window(const stream_state& s) const noexcept {
  auto window = nghttp2_session_get_stream_remote_window_size(session_, number(s.id));
  if (window < 0)
    window = static_cast<std::int32_t>(
        nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE));
  window = std::min(window, nghttp2_session_get_remote_window_size(session_));
  return s.queued <= static_cast<std::size_t>(std::max(window, 0));
}

void h2_session::sent_reset(const stream_state* s, std::uint32_t code) {
  if (role_ == h2_role::client || (s && s->given_up)) return;
  if (!s && code == NGHTTP2_REFUSED_STREAM) ++rejected_;
  // What a client makes us reset is as bad as what it resets itself.
  (void)spend(resets_, "requests that cannot be served");
}

// Urgency
// ------------------------------------------------------------------------------------------

void h2_session::set_urgency(exchange_id id, std::uint8_t urgency) {
  stream_state* s = find(id);
  if (!s) return;
  urgency = std::min(urgency, least_urgent);
  if (role_ == h2_role::server) {
    s->urgency = urgency;
    // Equals share.
    const nghttp2_extpri priority{.urgency = urgency, .inc = 1};
    (void)nghttp2_session_change_extpri_stream_priority(session_, number(id), &priority, 1);
    return;
  }
  if (urgency == s->urgency) return;
  if (s->has_turn) --with_turn_[s->urgency], ++with_turn_[urgency];
  s->urgency = urgency;
  const std::uint8_t text[] = {'u', '=', static_cast<std::uint8_t>('0' + urgency)};
  (void)nghttp2_submit_priority_update(session_, NGHTTP2_FLAG_NONE, number(id), text, sizeof text);
}

void h2_session::take_priority(exchange_id id, std::string_view text) {
  set_urgency(id, urgency_in(text));
}

/// The library orders by urgency what a server sends, but not what a client does.
void h2_session::update_turn(stream_state& s) {
  if (role_ == h2_role::server) return;
  const bool now = s.queued != 0 && !s.window_closed && !s.sent_all;
  if (now == s.has_turn) return;
  s.has_turn = now;
  now ? ++with_turn_[s.urgency] : --with_turn_[s.urgency];
}

bool h2_session::goes_first(const stream_state& s) const noexcept {
  return std::all_of(with_turn_.begin(), with_turn_.begin() + s.urgency,
                     [](std::uint32_t count) { return count == 0; });
}

bool h2_session::wait_for_more_urgent(stream_state& s) {
  if (role_ == h2_role::server || goes_first(s)) return false;
  s.held = true;
  held_.push_back(s.id);
  return true;
}

/// Lets those go on that nobody more urgent keeps back. False: none.
bool h2_session::release_held() {
  bool any = false;
  std::erase_if(held_, [&](exchange_id id) {
    stream_state* s = find(id);
    if (s && !goes_first(*s)) return false;
    if (!s || !s->held) return true;
    s->held = false;
    resume(*s);
    any = true;
    return true;
  });
  return any;
}

void h2_session::check_window(stream_state& s) {
  if (role_ == h2_role::server) return;
  // -1 while the request's head has not left.
  s.window_closed = nghttp2_session_get_stream_remote_window_size(session_, number(s.id)) == 0;
  update_turn(s);
}

/// Of `s`, or of any.
void h2_session::window_opened(stream_state* s) {
  if (role_ == h2_role::server) return;
  if (s) return check_window(*s);
  for (auto& [id, each] : streams_) check_window(*each);
}

// Ending
// -------------------------------------------------------------------------------------------

/// Tell the answers to both kinds of PING apart.
constexpr std::uint8_t sign_of_life[8] = {1}, leaving[8] = {2};

void h2_session::ping() {
  (void)nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, sign_of_life);
}

void h2_session::ponged(const std::uint8_t* payload) {
  ++pongs_;
  const bool knows = std::ranges::equal(std::span{payload, sizeof leaving}, leaving);
  if (!knows || gone_away_ || role_ == h2_role::client) return;
  // A library may answer a PING before it sends what was queued already: what comes before the
  // answer to the second was all there was.
  if (!std::exchange(client_knows_, true)) {
    (void)nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, leaving);
    return;
  }
  gone_away_ = true;
  (void)nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                              nullptr, 0);
}

void h2_session::go_away() {
  if (std::exchange(going_away_, true)) return;
  if (role_ == h2_role::client) {
    gone_away_ = true;
    (void)nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, nullptr, 0);
    return;
  }
  (void)nghttp2_submit_shutdown_notice(session_);
  (void)nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, leaving);
}

void h2_session::terminate(give_up why, std::string_view reason) {
  if (failure_ || std::exchange(terminated_, true)) return;
  (void)nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(session_), to_h2(why),
                              reinterpret_cast<const std::uint8_t*>(reason.data()), reason.size());
  (void)nghttp2_session_terminate_session(session_, to_h2(why));
}

}  // namespace weft::http
