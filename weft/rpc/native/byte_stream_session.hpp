#pragma once

#include <memory>

#include <weft/io/byte_stream.hpp>
#include <weft/rpc/native/mux.hpp>
#include <weft/rpc/native/wire/control.hpp>

// What both ends of a session over one byte stream do alike: read, write, control frames.

namespace weft::rpc::native {

/// Owns the stream and the mux on it. Kept alive by its reader until the connection is over.
class byte_stream_carrier : public mux_owner {
 public:
  byte_stream_carrier(std::unique_ptr<io::byte_stream> stream, io::shard& shard,
                      std::shared_ptr<memory_budget> memory, std::size_t max_unread,
                      bool is_server);
  virtual ~byte_stream_carrier();

  bool over() const noexcept { return over_; }

 protected:
  /// Once, as soon as the session can be referred to. `self` owns `*this`.
  void begin(std::shared_ptr<void> self, const wire::settings& own);
  /// Ends all that runs, with `why`, and the stream. Idempotent.
  void shut(const error& why) noexcept;
  /// Sends our end once all that was written before has left; then `shut`.
  task<> finish_orderly();
  void send(const wire::control_event& event);

  virtual weft::result<> on_control(const wire::control_event& event) = 0;
  /// The carrier is over: once.
  virtual void on_over(const error& why) noexcept = 0;

  weft::result<> control_bytes(bytes content) override;
  void send_cancel(std::uint64_t number, std::uint64_t code) noexcept override;
  void send_credit(std::uint64_t number, std::uint64_t bytes) override;
  void link_failed(const error& why) noexcept override { shut(why); }

  io::shard& shard_;
  std::shared_ptr<mux> mux_;
  /// The state that `drained` and `finished` wait for may have changed.
  broadcast over_event_;

 private:
  static task<> read_loop(std::shared_ptr<void> self_keeper, byte_stream_carrier& self);
  weft::result<> feed(slice arrived);

  std::shared_ptr<io::byte_stream> stream_;
  wire::control_parser control_;
  wire::record_parser records_;
  std::vector<std::byte> scratch_;
  bool over_ = false;
};

}  // namespace weft::rpc::native
