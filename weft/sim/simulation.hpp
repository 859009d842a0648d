#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/sim/scenario.hpp>
#include <weft/sim/traffic.hpp>
#include <weft/sim/world.hpp>

namespace weft::sim {

/// What a run showed.
struct outcome {
  std::vector<std::string> faults;  ///< empty: all promises were kept
  std::uint64_t trace_hash = 0;
  std::uint64_t datagrams = 0;
  std::uint64_t bytes_checked = 0;
  std::uint64_t path_changes = 0;
  duration virtual_time{};
  link_stats links;
};

/// One scenario carried out: clients against a server, mixed traffic, then the proof that nothing
/// leaked. Everything follows from the seed.
class simulation final : public application {
 public:
  simulation(std::uint64_t seed, trouble kind);
  ~simulation() override;

  /// Where one line for each datagram and event goes.
  void trace_to(std::function<void(std::string_view)> sink) { world_.trace = std::move(sink); }
  /// Where both ends' qlog goes (JSON-SEQ, interleaved). Call before `run`.
  void qlog_to(const std::function<void(std::string_view)>& sink) {
    scenario_.client.qlog = scenario_.server.qlog = sink;
  }
  outcome run();
  const scenario& what() const noexcept { return scenario_; }

 private:
  /// A client, its connection and both ends of its traffic.
  struct session {
    traffic_plan plan;
    std::unique_ptr<ledger> book;
    host* machine = nullptr;
    quic::core::connection* connection = nullptr;
    std::unique_ptr<traffic_end> client;
    std::unique_ptr<traffic_end> server;
    std::uint16_t moves = 0;
  };

  void on_ready(host& at, quic::core::connection& c) override;
  void set_up();
  void add_client(std::size_t number);
  void schedule_trouble(session& s, std::size_t number);
  void rebind(session& s, std::size_t number);
  void migrate(session& s, std::size_t number);
  void carry_out();
  bool everyone(const std::function<bool(session&)>& holds);
  void demand(bool met, const std::string& what);
  void finish_orderly();
  void prove_windows();
  void finish_abruptly();
  void finish_vanishing();
  void check_ends(bool orderly);
  void check_memory();
  void tear_down();
  address client_address(std::size_t number, std::uint16_t port) const;
  address outer_address(std::size_t number, std::size_t moves) const;
  std::string describe() const;

  random random_;
  scenario scenario_;
  std::shared_ptr<memory_budget> server_memory_, client_memory_;
  world world_;
  host* server_ = nullptr;
  std::vector<std::unique_ptr<session>> sessions_;
  bool over_ = false;
  outcome outcome_;
};

}  // namespace weft::sim
