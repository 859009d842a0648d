#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/co_spawn.hpp>

#include <weft/http/exchange.hpp>
#include <weft/io/event.hpp>
#include <weft/io/shard.hpp>
#include <weft/rpc/broadcast.hpp>
#include <weft/rpc/call.hpp>

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
    if (out_.failed) return std::unexpected{*out_.failed};
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

}  // namespace weft::rpc::http::testing
