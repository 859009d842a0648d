#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <asio/co_spawn.hpp>

#include <weft/http/exchange.hpp>
#include <weft/io/event.hpp>
#include <weft/io/shard.hpp>
#include <weft/rpc/broadcast.hpp>
#include <weft/rpc/call.hpp>
#include <weft/rpc/http/wire/envelope.hpp>

// For tests: exchanges and connections in memory, and handlers without generated code.

namespace weft::rpc::http::testing {

/// One direction of an exchange.
struct lane {
  std::deque<slice> parts;
  std::size_t bytes = 0;
  std::size_t capacity = 256 * 1024;
  std::size_t granularity = 64 * 1024;  ///< at most so many bytes a read
  weft::http::field_list trailers;
  bool ended = false;    ///< by the sender
  bool seen = false;     ///< the end, by the reader
  bool stopped = false;  ///< by the reader
  std::optional<error> failed;
  io::event readable, writable;
};

struct shared_exchange {
  explicit shared_exchange(io::shard& s) : shard{s} {}
  io::shard& shard;
  weft::http::connection_info connection{.version = "h3", .transport = "quic"};
  weft::http::request_head request;
  std::optional<weft::http::response_head> response;
  std::size_t heads = 0;
  std::size_t max_section = 16 * 1024;  ///< of fields, either way
  lane up, down;
  io::event head_came;
  std::move_only_function<void(const error&)> abandoned[2];  ///< client's, server's
  std::optional<weft::http::give_up> given_up[2];            ///< by client, by server
  bool stopped_reading[2] = {};
  bool early_data = false;
};

inline error gone_error(weft::http::give_up why) {
  return error{errc::reset, layer::http, std::string{to_string(why)},
               static_cast<std::uint64_t>(why)};
}

/// What one end does reaches the other with the loop's next step.
class memory_exchange final : public weft::http::exchange {
 public:
  memory_exchange(std::shared_ptr<shared_exchange> s, bool server)
      : shared_{std::move(s)},
        in_{server ? shared_->up : shared_->down},
        out_{server ? shared_->down : shared_->up},
        server_{server} {}
  ~memory_exchange() override {
    shared_->abandoned[server_] = {};
    if (server_ && out_.ended) {
      if (!in_.seen && !in_.failed) stop_reading(weft::http::give_up::no_error);
    } else if (!in_.seen || !out_.ended) {
      reset(weft::http::give_up::cancelled);
    }
  }

  const weft::http::connection_info& connection() const noexcept override {
    return shared_->connection;
  }
  const weft::http::request_head& request() const noexcept override { return shared_->request; }
  task<weft::result<>> receive_head() override {
    while (!shared_->response) {
      if (gone_) co_return gone();
      if (in_.failed) co_return std::unexpected{*in_.failed};
      const bool woken = co_await shared_->head_came.wait();
      if (!woken) co_return weft::fail(errc::cancelled, layer::http, "cancelled");
    }
    co_return weft::result<>{};
  }
  const weft::http::response_head* response() const noexcept override {
    return shared_->response ? &*shared_->response : nullptr;
  }
  std::optional<weft::result<slice>> try_read() override {
    if (gone_) return gone();
    if (in_.failed) return std::unexpected{*in_.failed};
    if (in_.parts.empty()) {
      if (!in_.ended) return std::nullopt;
      in_.seen = true;
      return slice{};
    }
    slice& front = in_.parts.front();
    slice part = front.take_front(std::min(front.size(), in_.granularity));
    if (front.empty()) in_.parts.pop_front();
    in_.bytes -= part.size();
    wake(&lane::writable, in_);
    return part;
  }
  task<weft::result<slice>> read() override {
    while (true) {
      if (auto there = try_read()) co_return std::move(*there);
      const bool woken = co_await in_.readable.wait();
      if (!woken) co_return weft::fail(errc::cancelled, layer::http, "cancelled");
    }
  }
  const weft::http::field_list& trailers() const noexcept override {
    static const weft::http::field_list none;
    return in_.seen ? in_.trailers : none;
  }

  weft::result<> send_head(const weft::http::response_head& head, bool end) override {
    if (auto fits = check_size(head.fields); !fits) return fits;
    ++shared_->heads;
    if (out_.failed) return std::unexpected{*out_.failed};
    shared_->response = head;
    shared_->shard.post([s = shared_] { s->head_came.notify(); });
    if (end) finish({}).value();
    return {};
  }
  std::optional<weft::result<>> try_write(slice data, bool end) override {
    if (gone_) return gone();
    if (out_.failed) return std::unexpected{*out_.failed};
    if (out_.ended) return weft::fail(errc::closed, layer::http, "ended already");
    if (out_.bytes >= out_.capacity) return std::nullopt;
    if (!data.empty() && !out_.stopped) {
      out_.bytes += data.size();
      out_.parts.push_back(std::move(data));
    }
    out_.ended = end;
    wake(&lane::readable, out_);
    return weft::result<>{};
  }
  task<weft::result<>> write(slice data, bool end) override {
    while (true) {
      if (auto done = try_write(data, end)) co_return std::move(*done);
      const bool woken = co_await out_.writable.wait();
      if (!woken) co_return weft::fail(errc::cancelled, layer::http, "cancelled");
    }
  }
  weft::result<> finish(const weft::http::field_list& trailers) override {
    if (auto fits = check_size(trailers); !fits) return fits;
    if (out_.failed) return std::unexpected{*out_.failed};
    EXPECT_TRUE(!server_ || shared_->response) << "trailers without a head";
    out_.trailers = trailers;
    out_.ended = true;
    wake(&lane::readable, out_);
    return {};
  }

  void stop_reading(weft::http::give_up) noexcept override {
    shared_->stopped_reading[server_] = true;
    in_.stopped = true;
    in_.parts.clear();
    in_.bytes = 0;
    wake(&lane::writable, in_);
  }
  void reset(weft::http::give_up why) noexcept override {
    if (gone_ || (out_.ended && in_.ended)) return;
    gone_ = true;
    const auto keep = shared_;
    lane &in = in_, &out = out_;
    const bool server = server_;
    keep->given_up[server] = why;
    keep->shard.post([keep, &in, &out, why, server] {
      // What was complete stays readable.
      if (!out.ended) out.failed = gone_error(why);
      in.failed = gone_error(why);
      keep->head_came.notify();
      out.readable.notify();
      in.writable.notify();
      if (auto callback = std::exchange(keep->abandoned[!server], {})) callback(gone_error(why));
    });
    // Who is resumed may destroy this.
    if (!server) keep->head_came.notify();
    in.readable.notify();
    out.writable.notify();
  }
  void on_abandoned(std::move_only_function<void(const error&)> callback) override {
    shared_->abandoned[server_] = std::move(callback);
  }
  void set_urgency(std::uint8_t) noexcept override {}
  bool early_data() const noexcept override { return shared_->early_data; }

 private:
  static std::unexpected<error> gone() {
    return weft::fail(errc::cancelled, layer::http, "given up here");
  }
  weft::result<> check_size(const weft::http::field_list& fields) const {
    if (fields.section_size() <= shared_->max_section) return {};
    return weft::fail(errc::too_large, layer::http, "the peer allows no such fields");
  }
  void wake(io::event lane::* which, lane& of) {
    shared_->shard.post([s = shared_, which, &of] { (of.*which).notify(); });
  }

  std::shared_ptr<shared_exchange> shared_;
  lane& in_;
  lane& out_;
  bool server_;
  bool gone_ = false;
};

/// A client's connection whose other end is a function.
class memory_connection final : public weft::http::client_connection {
 public:
  memory_connection(io::shard& shard, weft::http::request_handler handler)
      : shard_{shard}, handler_{std::move(handler)} {}

  const weft::http::connection_info& info() const noexcept override { return info_; }
  task<weft::result<std::unique_ptr<weft::http::exchange>>> request(weft::http::request_head head,
                                                                    bool end,
                                                                    std::uint8_t urgency) override {
    while (true) {
      if (auto done = try_request(head, end, urgency)) co_return std::move(*done);
      const bool woken = co_await credit.wait();
      if (!woken) co_return weft::fail(errc::cancelled, layer::http, "cancelled");
    }
  }
  std::optional<weft::result<std::unique_ptr<weft::http::exchange>>> try_request(
      weft::http::request_head& head, bool end, std::uint8_t) override {
    if (refuses) return weft::fail(errc::refused, layer::http, "the server is going away");
    if (blocked) return std::nullopt;
    last = std::make_shared<shared_exchange>(shard_);
    last->up.capacity = last->down.capacity = capacity;
    last->up.granularity = last->down.granularity = granularity;
    last->connection.version = version;
    last->request = std::move(head);
    last->up.ended = end;
    shard_.post([this, s = last] { handler_(std::make_unique<memory_exchange>(s, true)); });
    return std::make_unique<memory_exchange>(last, false);
  }
  bool usable() const noexcept override { return !refuses; }
  task<> drain() override {
    refuses = true;
    co_return;
  }
  void close(weft::http::give_up, std::string_view) noexcept override { refuses = true; }
  task<error> finished() override { co_return error{errc::closed, layer::http, "closed"}; }
  weft::http::connection_stats stats() const noexcept override { return {}; }
  quic::connection* quic() noexcept override { return nullptr; }

  bool refuses = false, blocked = false;
  std::size_t capacity = 256 * 1024, granularity = 64 * 1024;
  std::string_view version = "h3";
  broadcast credit;
  std::shared_ptr<shared_exchange> last;

 private:
  io::shard& shard_;
  weft::http::request_handler handler_;
  weft::http::connection_info info_{.version = "h3", .transport = "quic"};
};

/// Handlers by method.
class handlers final : public dispatcher {
 public:
  using handler = std::function<task<status>(server_call&)>;
  handlers& on(rpc::method m, handler h) {
    by_path_[std::string{m.path}] = {m, std::move(h)};
    return *this;
  }
  const rpc::method* find(std::string_view path) const noexcept override {
    const auto found = by_path_.find(path);
    return found == by_path_.end() ? nullptr : &found->second.first;
  }
  task<status> dispatch(server_call& call) override {
    const auto found = by_path_.find(call.info().path);
    if (found == by_path_.end()) co_return status{code::unimplemented, "nobody serves that"};
    ++running;
    status s = co_await found->second.second(call);
    --running;
    co_return s;
  }
  std::size_t running = 0;

 private:
  std::map<std::string, std::pair<rpc::method, handler>, std::less<>> by_path_;
};

/// A message that has both forms: text, and the same as a JSON string.
class text_message {
 public:
  explicit text_message(std::string text) : text_{std::move(text)} {}
  operator outgoing() const {
    return {this, text_.size(),
            [](const void* self, std::byte* to, std::size_t size) {
              if (size != 0)
                std::memcpy(to, static_cast<const text_message*>(self)->text_.data(), size);
            },
            [](const void* self) -> result<std::string> {
              return '"' + static_cast<const text_message*>(self)->text_ + '"';
            }};
  }

 private:
  std::string text_;
};

inline std::string text_of(const payload& p) {
  std::string text{p.flatten().text()};
  if (p.codec() == codec::json && text.size() >= 2) text = text.substr(1, text.size() - 2);
  return text;
}

/// Runs `work` on `shard` to its end; false when that took longer than half a minute.
inline bool run(io::shard& shard, task<> work) {
  bool done = false;
  std::exception_ptr thrown;
  io::timer limit;
  asio::co_spawn(shard.get_executor(), std::move(work), [&](std::exception_ptr e) {
    thrown = e;
    done = true;
    shard.stop();
  });
  shard.arm(limit, io::now() + std::chrono::seconds{30}, [&](time_point) { shard.stop(); });
  shard.run();
  if (thrown) std::rethrow_exception(thrown);
  return done;
}

/// Lets what is ready run.
inline task<> settle(io::shard& shard) {
  (void)co_await shard.sleep_until(io::now() + std::chrono::milliseconds{2});
}

// Calls and raw requests
// ------------------------------------------------------------------------------------------------

inline constexpr method echo_method{.path = "/t.S/Echo", .service = "t.S", .name = "Echo"};
inline constexpr method pure_method{
    .path = "/t.S/Pure", .service = "t.S", .name = "Pure", .level = idempotency::no_side_effects};
inline constexpr method chat_method{
    .path = "/t.S/Chat", .service = "t.S", .name = "Chat", .kind = call_kind::bidi_streaming};

/// What a raw client got.
struct reply {
  std::uint16_t status = 0;
  weft::http::field_list fields, trailers;
  std::string body;
  std::optional<error> failed;

  std::string field(std::string_view name) const {
    return std::string{fields.find(name).value_or("(none)")};
  }
  std::vector<std::string> all(std::string_view name) const {
    std::vector<std::string> values;
    for (const auto& [key, value, sensitive] : fields)
      if (key == name) values.emplace_back(value);
    return values;
  }
};

inline std::string framed(std::uint8_t flags, std::string_view content) {
  std::string text(wire::envelope_head, '\0');
  wire::write_envelope_head(reinterpret_cast<std::byte*>(text.data()), flags, content.size());
  return text.append(content);
}

/// The envelopes of a body.
inline std::vector<std::pair<int, std::string>> cut(std::string_view body) {
  wire::envelope_parser parser{1 << 20, nullptr};
  (void)parser.push(slice::copy(body));
  std::vector<std::pair<int, std::string>> all;
  while (true) {
    auto next = parser.next();
    if (!next || !*next) break;
    all.emplace_back((*next)->flags, (*next)->content.flatten().text());
  }
  EXPECT_TRUE(parser.at_boundary());
  return all;
}

inline task<> read_all(weft::http::exchange& e, reply& into) {
  while (true) {
    auto part = co_await e.read();
    if (!part) {
      into.failed = part.error();
      co_return;
    }
    if (part->empty()) break;
    into.body += part->text();
  }
  into.trailers = e.trailers();
}

inline task<reply> read_reply_of(weft::http::exchange& e) {
  reply got;
  auto head = co_await e.receive_head();
  if (!head) {
    got.failed = head.error();
    co_return got;
  }
  got.status = e.response()->status;
  got.fields = e.response()->fields;
  co_await read_all(e, got);
  co_return got;
}

inline weft::http::request_head post(std::string path, weft::http::field_list fields) {
  weft::http::request_head head;
  head.path = std::move(path);
  head.fields = std::move(fields);
  return head;
}

inline task<status> echo(server_call& call) {
  while (true) {
    auto message = co_await call.read();
    if (!message) co_return std::move(message).error();
    if (!*message) co_return status{};
    auto sent = co_await call.write(text_message{text_of(**message)});
    if (!sent) co_return std::move(sent).error();
  }
}

/// How a call went.
struct outcome {
  std::vector<std::string> messages;
  status end;
  metadata headers, trailers;
};

/// What a server that is not ours answers.
struct canned {
  std::uint16_t status = 200;
  weft::http::field_list fields;
  std::string body;
  std::optional<weft::http::give_up> reset_with{};  ///< instead of the end
  weft::http::field_list trailers{};
};

/// Reads the whole request and answers.
inline task<> play(std::unique_ptr<weft::http::exchange> e, canned answer, std::string& body) {
  while (true) {
    auto part = co_await e->read();
    if (!part || part->empty()) break;
    body += part->text();
  }
  weft::http::response_head head{.status = answer.status, .fields = answer.fields};
  (void)e->send_head(head);
  if (!answer.body.empty()) (void)e->try_write(slice::copy(answer.body), false);
  if (answer.reset_with)
    e->reset(*answer.reset_with);
  else
    (void)e->finish(answer.trailers);
}

/// One call, from its first message to its end.
inline task<> run_call(rpc::transport& t, method m, std::vector<std::string> messages,
                       call_options options, outcome& into) {
  const time_point deadline = options.timeout ? io::now() + *options.timeout : never;
  auto call = co_await t.start(m, options, deadline);
  if (!call) {
    into.end = std::move(call).error();
    co_return;
  }
  for (std::size_t i = 0; i < messages.size(); ++i)
    (void)co_await (*call)->write(text_message{messages[i]}, i + 1 == messages.size());
  if (messages.empty()) (void)co_await (*call)->finish_writing();
  while (true) {
    auto next = co_await (*call)->read();
    if (!next) into.end = std::move(next).error();
    if (!next || !*next) break;
    into.messages.push_back(text_of(**next));
  }
  into.headers = (*call)->headers();
  into.trailers = (*call)->trailers();
}

}  // namespace weft::rpc::http::testing
