#include "limits.hpp"

#include <openssl/evp.h>
#define XXH_STATIC_LINKING_ONLY  // the state of a running hash, on the stack

#include <array>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <atomic>
#include <cstring>
#include <format>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <weft/io/shard.hpp>
#include <weft/tcp/connector.hpp>
#include <weft/tcp/listener.hpp>
#include <weft/udp/socket.hpp>

#include "checksum.hpp"
#include "peer.hpp"
#include "settings.hpp"

namespace weft::bench {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view variant_name = "limit";
constexpr std::size_t tls_chunk = 64 * 1024;

double per_second(std::uint64_t amount, duration elapsed) {
  return static_cast<double>(amount) * 1e9 / static_cast<double>(elapsed.count());
}

// UDP
// -----------------------------------------------------------------------------------------------

/// Receives on its own thread and processor until told to stop; counts what arrived.
class udp_receiver {
 public:
  explicit udp_receiver(int cpu) {
    thread_ = std::jthread{[this, cpu](std::stop_token stop) { run(cpu, stop); }};
    where_ = ready_.get_future().get();
  }
  const address& where() const noexcept { return where_; }
  std::uint64_t received() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  void run(int cpu, std::stop_token stop) {
    pin_to(cpu);
    io::shard shard;
    auto socket = udp::socket::open(shard, *address::parse("127.0.0.1:0"));
    ready_.set_value(socket ? socket->local_address() : address{});
    if (!socket) return;
    while (!stop.stop_requested()) {
      auto got = socket->receive(1024, [&](const udp::train& t) {
        bytes_.fetch_add(t.payload.size(), std::memory_order_relaxed);
      });
      if (!got) return;
    }
  }

  std::promise<address> ready_;
  address where_;
  std::atomic<std::uint64_t> bytes_{0};
  std::jthread thread_;
};

/// Keeps at most `window` bytes on the way, so that nothing is dropped and every byte counts.
weft::result<double> udp_once(int receiver_cpu, std::size_t segment, duration length) {
  udp_receiver sink{receiver_cpu};
  io::shard shard;
  auto socket = udp::socket::open(shard, *address::parse("127.0.0.1:0"));
  if (!socket) return std::unexpected{std::move(socket).error()};
  const std::size_t segments = std::min(udp::max_train_bytes / segment, udp::max_train_segments);
  const std::vector<std::byte> payload(segment * segments);
  const udp::train train{{socket->local_address(), sink.where()}, ecn::not_ect, payload, segment};
  constexpr std::uint64_t window = std::uint64_t{1} << 20;
  const auto before = sink.received();
  const auto start = io::now();
  std::uint64_t sent = 0;
  while (io::now() - start < length) {
    if (sent - (sink.received() - before) > window) continue;
    if (auto done = socket->send({&train, 1}); !done)
      return std::unexpected{std::move(done).error()};
    sent += payload.size();
  }
  const auto patience = io::now() + 1s;
  while (sink.received() - before < sent && io::now() < patience) {
  }
  const auto elapsed = io::now() - start;
  if (sink.received() - before != sent)
    return weft::fail(
        errc::internal, layer::app,
        std::format("raw UDP: sent {} bytes, {} arrived", sent, sink.received() - before));
  return per_second(sent, elapsed);
}

// Encryption
// ----------------------------------------------------------------------------------------

/// AES-128-GCM as QUIC uses it: one key, a new nonce and 20 bytes of header a packet.
weft::result<double> aead_once(std::size_t size, duration length) {
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context{
      EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free};
  std::array<unsigned char, 16> key{}, tag{};
  std::array<unsigned char, 12> nonce{};
  std::array<unsigned char, 20> header{};
  std::vector<unsigned char> packet(size);
  if (EVP_EncryptInit_ex(context.get(), EVP_aes_128_gcm(), nullptr, key.data(), nonce.data()) != 1)
    return weft::fail(errc::tls, layer::app, "AES-128-GCM is not available");
  std::uint64_t packets = 0;
  const auto start = io::now();
  constexpr unsigned between_clock_reads = 256;
  while (io::now() - start < length)
    for (unsigned i = 0; i < between_clock_reads; ++i) {
      std::memcpy(nonce.data(), &++packets, sizeof packets);
      int written = 0;
      EVP_EncryptInit_ex(context.get(), nullptr, nullptr, nullptr, nonce.data());
      EVP_EncryptUpdate(context.get(), nullptr, &written, header.data(), header.size());
      EVP_EncryptUpdate(context.get(), packet.data(), &written, packet.data(),
                        static_cast<int>(size));
      EVP_EncryptFinal_ex(context.get(), packet.data() + size, &written);
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, tag.size(), tag.data());
    }
  return per_second(packets * size, io::now() - start);
}

// TLS over TCP
// --------------------------------------------------------------------------------------

struct tls_side {
  std::uint64_t bytes = 0, checksum = 0;
  weft::result<> ended{};
};

task<> tls_drain(tcp::listener& listener, tls_side& seen) {
  auto stream = co_await listener.accept();
  listener.close();
  if (!stream) {
    seen.ended = std::unexpected{std::move(stream).error()};
    co_return;
  }
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  while (true) {
    auto data = co_await (*stream)->read();
    if (!data) seen.ended = std::unexpected{std::move(data).error()};
    if (!seen.ended || data->empty()) break;
    XXH3_64bits_update(&state, data->data(), data->size());
    seen.bytes += data->size();
  }
  seen.checksum = XXH3_64bits_digest(&state);
}

task<> tls_fill(io::shard& shard, address to, tls::client_options options, duration length,
                tls_side& sent) {
  auto stream = co_await tcp::connect(shard, to, "localhost", options, io::now() + 5s);
  if (!stream) {
    sent.ended = std::unexpected{std::move(stream).error()};
    co_return;
  }
  buffer fill = buffer::allocate(tls_chunk);
  std::memset(fill.data(), 0x5a, fill.size());
  const slice chunk = std::move(fill).freeze();
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const auto start = io::now(); io::now() - start < length && sent.ended;) {
    sent.ended = co_await (*stream)->write({&chunk, 1});
    XXH3_64bits_update(&state, chunk.data(), chunk.size());
    sent.bytes += chunk.size();
  }
  if (sent.ended) sent.ended = co_await (*stream)->finish();
  // The peer's end says that it has read everything.
  if (sent.ended)
    if (auto end = co_await (*stream)->read(); !end && end.error() != errc::reset)
      sent.ended = std::unexpected{std::move(end).error()};
  sent.checksum = XXH3_64bits_digest(&state);
}

weft::result<double> tls_once(const tls::credentials& identity, int receiver_cpu, duration length) {
  std::promise<address> listening;
  tls_side seen, sent;
  std::jthread receiver{[&] {
    pin_to(receiver_cpu);
    io::shard shard;
    auto options = std::make_shared<tls::server_options>(tls::server_options{.identity = identity});
    auto listener = tcp::listener::listen(shard, *address::parse("127.0.0.1:0"), options);
    if (!listener) {
      seen.ended = std::unexpected{listener.error()};
      return listening.set_value({});
    }
    listening.set_value((*listener)->local_address());
    asio::co_spawn(shard.get_executor(), tls_drain(**listener, seen), asio::detached);
    shard.run();
  }};
  const address to = listening.get_future().get();
  auto trusted = tls::trust::pem(identity.certificate_pem());
  if (!trusted) return std::unexpected{std::move(trusted).error()};
  io::shard shard;
  const auto start = io::now();
  asio::co_spawn(shard.get_executor(),
                 tls_fill(shard, to, tls::client_options{.trusted = *trusted}, length, sent),
                 asio::detached);
  shard.run();
  receiver.join();
  const auto elapsed = io::now() - start;
  if (!sent.ended) return std::unexpected{std::move(sent.ended).error()};
  if (!seen.ended) return std::unexpected{std::move(seen.ended).error()};
  if (seen.bytes != sent.bytes || seen.checksum != sent.checksum)
    return weft::fail(errc::internal, layer::app, "bare TLS: bytes did not arrive as sent");
  return per_second(sent.bytes, elapsed);
}

weft::result<> keep(results& into, const std::string& name, weft::result<double> value) {
  if (!value) return std::unexpected{std::move(value).error()};
  into.add(name, std::string{variant_name}, "bytes_per_s", *value);
  return {};
}

}  // namespace

weft::result<> measure_limits(const limit_plan& what, results& into,
                              const std::function<void(const std::string&)>& tell) {
  auto identity = tls::credentials::development();
  if (!identity) return std::unexpected{std::move(identity).error()};
  pin_to(what.sender_cpu);
  constexpr std::size_t ethernet_aead = 1400, jumbo_segment = 16'368;
  using measurement = std::pair<std::string, std::function<weft::result<double>()>>;
  const std::vector<measurement> measurements{
      {"limit-udp-1452",
       [&] { return udp_once(what.receiver_cpu, ethernet_payload, what.measured); }},
      {"limit-udp-16368",
       [&] { return udp_once(what.receiver_cpu, jumbo_segment, what.measured); }},
      {"limit-aead-1400", [&] { return aead_once(ethernet_aead, what.measured); }},
      {"limit-aead-16384", [&] { return aead_once(std::size_t{16} * 1024, what.measured); }},
      {"limit-tls-tcp", [&] { return tls_once(*identity, what.receiver_cpu, what.measured); }},
  };
  for (unsigned repetition = 0; repetition < what.repetitions; ++repetition)
    for (const auto& [name, measure] : measurements) {
      tell(name);
      if (auto kept = keep(into, name, measure()); !kept) return kept;
    }
  return {};
}

}  // namespace weft::bench
