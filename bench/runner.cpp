#include "runner.hpp"

#include <algorithm>
#include <asio/co_spawn.hpp>
#include <cstring>
#include <format>
#include <map>
#include <optional>

#include <weft/io/event.hpp>
#include <weft/rpc/host/channel.hpp>

#include "bench/v1/bench.weft.h"
#include "checksum.hpp"
#include "settings.hpp"

namespace weft::bench {
namespace {

using namespace std::chrono_literals;

constexpr double nanoseconds_per_second = 1e9;
constexpr double gigabyte = 1e9;
/// One-way calls leave no trace at the caller, so their arrival is asked for, this long at most.
constexpr duration arrival_limit = 10s;

double seconds(duration d) {
  return static_cast<double>(d.count()) / nanoseconds_per_second;
}

error failed(const rpc::status& why) {
  return {errc::internal, layer::app, "a call failed: " + why.to_string()};
}

/// A body whose bytes depend on its length, so that a mixed-up or shifted one is noticed.
std::string make_body(std::size_t size) {
  std::string body(size, '\0');
  std::uint64_t state = size + 1;
  for (auto& c : body) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(state >> 56);
  }
  return body;
}

rpc::channel_options channel_settings(variant v, bool ethernet, const std::string& certificate) {
  rpc::channel_options options;
  options.trust = tls::trust::pem(certificate).value_or(tls::trust::system_roots());
  options.server_name = "localhost";
  options.transport = transport_settings(ethernet);
  options.limits = limit_settings();
  options.lanes = v == variant::lanes;
  const bool tcp = v == variant::tls_tcp || v == variant::grpc_h2;
  options.carrier = tcp                             ? rpc::carrier::tls_tcp
                    : v == variant::quic_one_stream ? rpc::carrier::quic_one_stream
                                                    : rpc::carrier::quic;
  if (speaks_http(v))
    options.protocol = v == variant::connect_h3 ? rpc::protocol::connect : rpc::protocol::grpc;
  return options;
}

/// What one measurement saw.
struct sample {
  std::uint64_t calls = 0, bytes = 0;
  duration elapsed{};
  double cpu_seconds = 0;  ///< both processes
};

}  // namespace

struct runner::impl {
  io::shard& shard;
  const peer_ports& ports;
  plan what;
  progress tell;
  std::map<std::pair<variant, bool>, std::unique_ptr<rpc::channel>> channels;
  latencies histogram;

  rpc::channel& channel_for(variant v, bool ethernet) {
    auto& place = channels[{v, ethernet}];
    if (!place) {
      const auto port = ethernet ? ports.ethernet : ports.discovered;
      place = std::make_unique<rpc::channel>(shard, std::format("127.0.0.1:{}", port),
                                             channel_settings(v, ethernet, ports.certificate));
    }
    return *place;
  }

  task<weft::result<v1::Report>> collect(rpc::channel& via) {
    v1::BenchService::client client{via};
    auto report = co_await client.Collect(v1::ReportRequest{});
    if (!report) co_return std::unexpected{failed(report.error())};
    co_return std::move(*report);
  }

  static weft::result<> confirm(const v1::Report& got, std::uint64_t calls, std::size_t size,
                                std::uint64_t checksum) {
    if (got.calls() == calls && got.bytes() == calls * size && got.checksum() == calls * checksum)
      return {};
    return weft::fail(errc::internal, layer::app,
                      std::format("sent {} messages of {} bytes; {} messages, {} bytes arrived{}",
                                  calls, size, got.calls(), got.bytes(),
                                  got.checksum() == calls * checksum ? "" : ", checksum differs"));
  }

  // Bulk ------------------------------------------------------------------------------------------
  task<weft::result<sample>> bulk(rpc::channel& via, const scenario& s, duration length) {
    const slice body = slice::adopt(make_body(s.message));
    const auto checksum = XXH3_64bits(body.data(), body.size());
    if (auto cleared = co_await collect(via); !cleared)
      co_return std::unexpected{std::move(cleared).error()};
    const double cpu = process_cpu_seconds();
    const auto start = io::now();
    auto call = co_await via.start(bulk_service_descriptor().methods[0], {});
    if (!call) co_return std::unexpected{failed(call.error())};
    std::uint64_t sent = 0;
    for (; io::now() - start < length; ++sent)
      if (auto written = co_await (*call)->write(rpc::outgoing{body}, false); !written)
        co_return std::unexpected{failed(written.error())};
    if (auto ended = co_await (*call)->finish_writing(); !ended)
      co_return std::unexpected{failed(ended.error())};
    auto report = co_await rpc::read_reply<v1::Report>(**call);
    if (!report) co_return std::unexpected{failed(report.error())};
    sample seen{sent, report->bytes(), io::now() - start,
                process_cpu_seconds() - cpu + report->cpu_seconds()};
    if (auto arrived = confirm(*report, sent, body.size(), checksum); !arrived)
      co_return std::unexpected{std::move(arrived).error()};
    co_return seen;
  }

  // Unary -----------------------------------------------------------------------------------------
  struct closed_loop {
    const v1::Payload& request;
    time_point until;
    latencies& histogram;
    std::uint64_t calls = 0;
    unsigned running = 0;
    std::optional<error> failure;
    io::event finished;
  };

  static task<> worker(v1::BenchService::client client, closed_loop& loop) {
    time_point before = io::now();
    while (before < loop.until && !loop.failure) {
      auto reply = co_await client.Echo(loop.request);
      if (!reply) {
        loop.failure = failed(reply.error());
        break;
      }
      if (reply->body() != loop.request.body()) {
        loop.failure = error{errc::internal, layer::app, "an echo came back altered"};
        break;
      }
      const auto after = io::now();
      loop.histogram.record((after - before).count());
      ++loop.calls;
      before = after;
    }
    if (--loop.running == 0) loop.finished.notify();
  }

  task<weft::result<sample>> unary(rpc::channel& via, const scenario& s, duration length) {
    v1::Payload request;
    request.set_body(make_body(s.message));
    if (auto cleared = co_await collect(via); !cleared)
      co_return std::unexpected{std::move(cleared).error()};
    const double cpu = process_cpu_seconds();
    histogram.reset();
    const auto start = io::now();
    closed_loop loop{request, start + length, histogram};
    loop.running = s.in_flight;
    for (unsigned i = 0; i < s.in_flight; ++i)
      asio::co_spawn(shard.get_executor(), worker(v1::BenchService::client{via}, loop),
                     [](std::exception_ptr thrown) {
                       if (thrown) std::rethrow_exception(thrown);
                     });
    while (loop.running != 0) co_await loop.finished.wait();
    if (loop.failure) co_return std::unexpected{*loop.failure};
    sample seen{loop.calls, loop.calls * s.message, io::now() - start, process_cpu_seconds() - cpu};
    auto report = co_await collect(via);
    if (!report) co_return std::unexpected{std::move(report).error()};
    seen.cpu_seconds += report->cpu_seconds();
    co_return seen;
  }

  // Bidirectional stream --------------------------------------------------------------------------
  static constexpr std::uint64_t messages_a_stream = 5000;

  using chat = rpc::bidi_stream<v1::Payload, v1::Payload>;

  static task<> talk(chat& stream, const v1::Payload& message, std::optional<error>& failure) {
    rpc::result<> sent;
    for (std::uint64_t i = 0; sent && i < messages_a_stream; ++i)
      sent = co_await stream.write(message);
    if (sent) sent = co_await stream.finish_writing();
    if (!sent) failure = failed(sent.error());
  }

  /// How many came back unaltered.
  static task<weft::result<std::uint64_t>> listen(chat& stream, const v1::Payload& message) {
    for (std::uint64_t count = 0;; ++count) {
      auto reply = co_await stream.read();
      if (!reply) co_return std::unexpected{failed(reply.error())};
      if (!*reply) co_return count;
      if ((*reply)->body() != message.body())
        co_return weft::fail(errc::internal, layer::app, "an echo came back altered");
    }
  }

  task<weft::result<>> one_stream(v1::BenchService::client client, const v1::Payload& message) {
    auto stream = co_await client.Chat();
    if (!stream) co_return std::unexpected{failed(stream.error())};
    std::optional<error> failure;
    io::event said;
    bool saying = true;
    asio::co_spawn(shard.get_executor(), talk(*stream, message, failure), [&](std::exception_ptr) {
      saying = false;
      said.notify();
    });
    auto heard = co_await listen(*stream, message);
    if (!heard) stream->cancel();
    while (saying) co_await said.wait();
    if (!heard) co_return std::unexpected{std::move(heard).error()};
    if (failure) co_return std::unexpected{*failure};
    if (*heard == messages_a_stream) co_return weft::result<>{};
    co_return weft::fail(errc::internal, layer::app,
                         std::format("sent {} messages, {} came back", messages_a_stream, *heard));
  }

  task<weft::result<sample>> bidi(rpc::channel& via, const scenario& s, duration length) {
    v1::Payload message;
    message.set_body(make_body(s.message));
    if (auto cleared = co_await collect(via); !cleared)
      co_return std::unexpected{std::move(cleared).error()};
    const double cpu = process_cpu_seconds();
    const auto start = io::now();
    std::uint64_t streams = 0;
    for (; io::now() - start < length; ++streams)
      if (auto done = co_await one_stream(v1::BenchService::client{via}, message); !done)
        co_return std::unexpected{std::move(done).error()};
    const std::uint64_t messages = streams * messages_a_stream;
    sample seen{messages, messages * s.message, io::now() - start, process_cpu_seconds() - cpu};
    auto report = co_await collect(via);
    if (!report) co_return std::unexpected{std::move(report).error()};
    seen.cpu_seconds += report->cpu_seconds();
    co_return seen;
  }

  // One way ---------------------------------------------------------------------------------------
  task<weft::result<sample>> one_way(rpc::channel& via, const scenario& s, duration length) {
    v1::Payload request;
    request.set_body(make_body(s.message));
    const auto checksum = XXH3_64bits(request.body().data(), request.body().size());
    if (auto cleared = co_await collect(via); !cleared)
      co_return std::unexpected{std::move(cleared).error()};
    v1::BenchService::client client{via};
    const double cpu = process_cpu_seconds();
    const auto start = io::now();
    std::uint64_t sent = 0;
    for (; io::now() - start < length; ++sent)
      if (auto taken = co_await client.one_way().Sink(request); !taken)
        co_return std::unexpected{failed(taken.error())};
    v1::Report total;
    const auto give_up = io::now() + arrival_limit;
    do {
      auto report = co_await collect(via);
      if (!report) co_return std::unexpected{std::move(report).error()};
      total.set_calls(total.calls() + report->calls());
      total.set_bytes(total.bytes() + report->bytes());
      total.set_checksum(total.checksum() + report->checksum());
      total.set_cpu_seconds(total.cpu_seconds() + report->cpu_seconds());
    } while (total.calls() < sent && io::now() < give_up);
    sample seen{sent, total.bytes(), io::now() - start,
                process_cpu_seconds() - cpu + total.cpu_seconds()};
    if (auto arrived = confirm(total, sent, s.message, checksum); !arrived)
      co_return std::unexpected{std::move(arrived).error()};
    co_return seen;
  }

  task<weft::result<sample>> once(rpc::channel& via, const scenario& s, duration length) {
    switch (s.load) {
      case load::bulk:
        co_return co_await bulk(via, s, length);
      case load::unary:
        co_return co_await unary(via, s, length);
      case load::one_way:
        co_return co_await one_way(via, s, length);
      case load::bidi:
        co_return co_await bidi(via, s, length);
    }
    co_return weft::fail(errc::internal, layer::app, "unknown load");
  }

  void keep(results& into, const scenario& s, variant v, const sample& seen) {
    const std::string name{s.name}, variant_name{to_string(v)};
    const double elapsed = seconds(seen.elapsed);
    into.add(name, variant_name, "bytes_per_s", static_cast<double>(seen.bytes) / elapsed);
    into.add(name, variant_name, "cpu_s_per_gb",
             seen.cpu_seconds / (static_cast<double>(seen.bytes) / gigabyte));
    if (s.load == load::bulk) return;
    into.add(name, variant_name, "calls_per_s", static_cast<double>(seen.calls) / elapsed);
    if (s.load != load::unary) return;
    into.add(name, variant_name, "p50_us", histogram.microseconds_at(50));
    into.add(name, variant_name, "p99_us", histogram.microseconds_at(99));
  }

  std::vector<variant> variants_of(const scenario& s, unsigned repetition) const {
    std::vector<variant> these;
    std::ranges::copy_if(what.variants, std::back_inserter(these),
                         [&](variant v) { return applies(s, v); });
    if (!these.empty()) std::ranges::rotate(these, these.begin() + repetition % these.size());
    return these;
  }
};

runner::runner(io::shard& shard, const peer_ports& ports, plan what, progress tell)
    : impl_{new impl{shard, ports, std::move(what), std::move(tell), {}, {}}} {}
runner::~runner() = default;

task<weft::result<>> runner::run(results& into) {
  impl& self = *impl_;
  unsigned total = 0, done = 0;
  for (const auto* s : self.what.scenarios)
    total += self.what.repetitions * static_cast<unsigned>(self.variants_of(*s, 0).size());
  for (unsigned repetition = 0; repetition < self.what.repetitions; ++repetition)
    for (const auto* s : self.what.scenarios)
      for (const variant v : self.variants_of(*s, repetition)) {
        const auto name = std::format("{} {}", s->name, to_string(v));
        self.tell(done++, total, name);
        auto& via = self.channel_for(v, s->ethernet_datagrams);
        auto warm = co_await self.once(via, *s, self.what.warm_up);
        auto seen = warm ? co_await self.once(via, *s, self.what.measured) : std::move(warm);
        if (!seen)
          co_return weft::fail(seen.error().code(), layer::app,
                               std::format("{}: {}", name, seen.error().message()));
        self.keep(into, *s, v, *seen);
      }
  self.tell(total, total, "done");
  co_return weft::result<>{};
}

}  // namespace weft::bench
