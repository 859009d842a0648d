#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <asio/co_spawn.hpp>

#include <weft/io/event.hpp>
#include <weft/io/shard.hpp>
#include <weft/rpc/native/session.hpp>

// For tests: a byte stream in memory, and handlers without generated code.

namespace weft::rpc::native::testing {

/// One direction of a stream in memory.
struct channel {
  std::deque<slice> parts;
  std::size_t bytes = 0;
  std::size_t capacity = 256 * 1024;
  /// At most so many bytes a read; splits frames everywhere.
  std::size_t granularity = 64 * 1024;
  bool ended = false, broken = false, stalled = false;
  io::event readable, writable;
};

struct wire_pair {
  channel up, down;
  std::size_t writes = 0;
};

class memory_stream final : public io::byte_stream {
 public:
  memory_stream(std::shared_ptr<wire_pair> wires, bool client)
      : wires_{std::move(wires)},
        in_{client ? wires_->down : wires_->up},
        out_{client ? wires_->up : wires_->down} {}
  ~memory_stream() override { abort(); }

  task<weft::result<slice>> read() override {
    while (in_.parts.empty() || in_.stalled) {
      if (in_.broken) co_return weft::fail(errc::reset, layer::tcp, "broken");
      if (in_.ended && !in_.stalled) co_return slice{};
      if (!co_await in_.readable.wait())
        co_return weft::fail(errc::cancelled, layer::tcp, "cancelled");
    }
    slice& front = in_.parts.front();
    const std::size_t count = std::min(front.size(), in_.granularity);
    slice part = front.take_front(count);
    if (front.empty()) in_.parts.pop_front();
    in_.bytes -= count;
    if (in_.bytes < in_.capacity) in_.writable.notify();
    co_return part;
  }
  task<weft::result<>> write(std::span<const slice> parts) override {
    ++wires_->writes;
    buffer all = buffer::allocate([&] {
      std::size_t size = 0;
      for (const auto& p : parts) size += p.size();
      return size;
    }());
    std::size_t at = 0;
    for (const auto& p : parts) {
      std::memcpy(all.data() + at, p.data(), p.size());
      at += p.size();
    }
    while (out_.bytes >= out_.capacity && !out_.broken)
      if (!co_await out_.writable.wait())
        co_return weft::fail(errc::cancelled, layer::tcp, "cancelled");
    if (out_.broken) co_return weft::fail(errc::reset, layer::tcp, "broken");
    if (all.size() != 0) {
      out_.bytes += all.size();
      out_.parts.push_back(std::move(all).freeze());
    }
    out_.readable.notify();
    co_return weft::result<>{};
  }
  task<weft::result<>> finish() override {
    out_.ended = true;
    out_.readable.notify();
    co_return weft::result<>{};
  }
  void abort() noexcept override {
    auto keep = wires_;
    for (channel* c : {&keep->up, &keep->down}) {
      c->broken = true;
      c->readable.notify();
      c->writable.notify();
    }
  }

 private:
  std::shared_ptr<wire_pair> wires_;
  channel& in_;
  channel& out_;
};

/// Handlers by path.
class handlers final : public dispatcher {
 public:
  using handler = std::function<task<status>(server_call&)>;
  handlers& on(std::string path, handler h) {
    by_path_[std::move(path)] = std::move(h);
    return *this;
  }
  task<status> dispatch(server_call& call) override {
    ++dispatched;
    auto found = by_path_.find(std::string{call.info().path});
    if (found == by_path_.end()) co_return status{code::unimplemented, "nobody serves that"};
    ++running;
    status s = co_await found->second(call);
    --running;
    co_return s;
  }
  std::size_t dispatched = 0, running = 0;

 private:
  std::map<std::string, handler> by_path_;
};

inline task<status> echo(server_call& call) {
  while (true) {
    auto message = co_await call.read();
    if (!message) co_return std::move(message).error();
    if (!*message) co_return status{};
    if (auto sent = co_await call.write(outgoing{(*message)->flatten()}); !sent)
      co_return std::move(sent).error();
  }
}

/// Runs `work` on `shard` to its end; false when that took more than ten seconds.
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

inline rpc::method method_of(std::string_view path) {
  return {.path = path, .service = "test", .name = path};
}

inline std::string text_of(const payload& p) {
  return std::string{p.flatten().text()};
}

/// One message there, one back.
inline task<result<std::string>> unary(transport& t, rpc::method m, std::string request,
                                       call_options options = {}, time_point deadline = never) {
  auto call = co_await t.start(m, options, deadline);
  if (!call) co_return std::unexpected{std::move(call).error()};
  (void)co_await (*call)->write(outgoing{as_bytes(request)}, true);
  auto reply = co_await (*call)->read();
  if (!reply) co_return std::unexpected{std::move(reply).error()};
  if (!*reply) co_return fail(code::unimplemented, "no reply");
  auto end = co_await (*call)->read();
  if (!end) co_return std::unexpected{std::move(end).error()};
  co_return text_of(**reply);
}

}  // namespace weft::rpc::native::testing
