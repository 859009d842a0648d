#include <algorithm>
#include <utility>

#include <weft/quic/core/connection_impl.hpp>

namespace weft::quic::core::detail {

// Where a connection goes: its paths, moving between them, and getting out of one that is stuck.

void connection_impl::refresh_path() noexcept {
  path_news_ = false;
  const auto* current = ngtcp2_conn_get_path2(native_);
  if (!same_path(*current, path_)) path_ = real_path(*current);
  if (!std::exchange(path_validated_, false) || path_ == known_path_) return;
  known_path_ = path_;
  ++counters_.migrations;
  signal(kind::path_changed);
}

path connection_impl::real_path(const ngtcp2_path& known) const noexcept {
  const path where = from_native(known);
  if (stand_ins_.empty()) return where;
  return {stand_ins_.real(where.local), stand_ins_.real(where.remote)};
}

/// What the library knows a path as.
path connection_impl::named(path where) const noexcept {
  address& changing = server_ ? where.remote : where.local;
  changing = stand_ins_.name_of(changing);
  return where;
}

/// When the library will have been stuck long enough (see stand_ins): its window is full, a few
/// probes' time passes without anything that leaves or enters it, and no timer of a probe runs. The
/// library does not show that timer, but its pauses double, so one that runs goes off before long.
time_point connection_impl::stuck_at(time_point now) noexcept {
  const bool matters = !server_ || !nothing_queued() || validating_;
  if (!confirmed_ || !matters || ngtcp2_conn_get_cwnd_left2(native_) > 0)
    return full_since_ = never;
  ngtcp2_conn_info info;
  ngtcp2_conn_get_conn_info2(native_, &info);
  const auto before = std::exchange(full_with_, info.bytes_in_flight);
  if (full_since_ == never || info.bytes_in_flight < before) full_since_ = still_since_ = now;
  if (info.bytes_in_flight != before) still_since_ = now;
  const duration pto = from_native_duration(ngtcp2_conn_get_pto2(native_));
  const auto next = from_native(ngtcp2_conn_get_expiry2(native_));
  if (next <= still_since_ + (still_since_ - full_since_) + 8 * pto) return never;
  // A client's way out costs it a connection id, and its server's library miscounts those while it
  // validates a new port, some 3 s: longer than that, to be sure.
  constexpr duration patience = 6s;
  return still_since_ + (server_ ? 6 * pto : std::max(patience, 6 * pto));
}

void connection_impl::begin_window_anew(time_point now) {
  full_since_ = never;
  if (!stand_ins_.rename(server_ ? path_.remote : path_.local)) return;
  // A server's library finds out by itself. Where the peer forbids a client to move, or has no
  // connection id left for it, the next datagram tries again.
  if (server_) return;
  const native_path fresh{named(path_)};
  if (ngtcp2_conn_initiate_immediate_migration(native_, fresh.get(), stamp(now)) != 0)
    stand_ins_.undo();
}

path_stats& connection_impl::stats_of(const path& where) {
  if (paths_[path_index_].path == where) return paths_[path_index_];
  for (path_index_ = 0; path_index_ < paths_.size(); ++path_index_)
    if (paths_[path_index_].path == where) return paths_[path_index_];
  // Forged source addresses must not grow this: the oldest that is not in use makes room.
  constexpr std::size_t most_paths = 16;
  if (paths_.size() >= most_paths)
    paths_.erase(std::ranges::find_if(paths_, [&](auto& p) { return p.path != path_; }));
  paths_.push_back({where});
  path_index_ = paths_.size() - 1;
  return paths_.back();
}

result<> connection_impl::migrate(const path& to, bool immediate, time_point now) {
  if (!native_) return fail(errc::closed, layer::quic, "the connection has ended");
  if (server_) return fail(errc::unsupported, layer::quic, "only a client can move a connection");
  if (!confirmed_)
    return fail(errc::exhausted, layer::quic,
                "the connection cannot move before its handshake is confirmed; try again");
  if (to == path_)
    return fail(errc::invalid_argument, layer::quic, "the connection is at this address already");
  const native_path where{named(to)};
  const auto ts = stamp(now);
  const int failed = immediate ? ngtcp2_conn_initiate_immediate_migration(native_, where.get(), ts)
                               : ngtcp2_conn_initiate_migration(native_, where.get(), ts);
  switch (failed) {
    case 0:
      break;
    case NGTCP2_ERR_INVALID_STATE:
      return fail(errc::unsupported, layer::quic,
                  ngtcp2_conn_get_remote_transport_params2(native_)->disable_active_migration
                      ? "the peer forbids its clients to move (disable_active_migration)"
                      : "the peer uses no connection ids, so the connection cannot move");
    case NGTCP2_ERR_CONN_ID_BLOCKED:
      return fail(errc::exhausted, layer::quic,
                  "the peer has given no spare connection id for a move yet; try again");
    case NGTCP2_ERR_INVALID_ARGUMENT:
      return fail(errc::invalid_argument, layer::quic, "the connection is at this address already");
    default:
      return fail(errc::internal, layer::quic, ngtcp2_strerror(failed));
  }
  refresh_path();
  control_due_ = true;
  make_dirty();
  after_library(now);
  return {};
}

}  // namespace weft::quic::core::detail
