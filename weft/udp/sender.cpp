#include <weft/udp/sender.hpp>

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace weft::udp {

namespace {

/// Trains passed although `writable()` was false are kept up to here, then dropped and counted.
constexpr std::size_t kept_limit = std::size_t{1} << 20;
/// An error of an earlier datagram (ICMP) is reported once, by whatever call comes next. More of
/// them in a row are about this datagram.
constexpr int max_pending_errors = 4;

/// Appends control messages to a header.
class control_writer {
 public:
  control_writer(msghdr& header, std::span<std::byte> room) noexcept : header_{header} {
    header_.msg_control = room.data();
    header_.msg_controllen = room.size();
    next_ = CMSG_FIRSTHDR(&header_);
    header_.msg_controllen = 0;
  }

  template <class Value>
  void add(int level, int type, const Value& value) noexcept {
    next_->cmsg_level = level;
    next_->cmsg_type = type;
    next_->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(next_), &value, sizeof value);
    header_.msg_controllen += CMSG_SPACE(sizeof value);
    next_ =
        reinterpret_cast<cmsghdr*>(reinterpret_cast<std::byte*>(next_) + CMSG_SPACE(sizeof value));
  }

 private:
  msghdr& header_;
  cmsghdr* next_;
};

void add_source(control_writer& control, const address& local) noexcept {
  socket_address source;
  if (!local.is_ipv6()) {
    if (to_socket_address(local, AF_INET, source) == 0) return;
    control.add(IPPROTO_IP, IP_PKTINFO, in_pktinfo{.ipi_spec_dst = source.ipv4.sin_addr});
  } else {
    to_socket_address(local, AF_INET6, source);
    control.add(IPPROTO_IPV6, IPV6_PKTINFO,
                in6_pktinfo{.ipi6_addr = source.ipv6.sin6_addr, .ipi6_ifindex = local.scope()});
  }
}

bool same_way(const train& a, const train& b) noexcept {
  return a.ecn == b.ecn && a.path == b.path;
}

bool is_unreachable(int number) noexcept {
  switch (number) {
    case EACCES:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
    case EDESTADDRREQ:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case EINVAL:  // as for a source address that the host has lost
    case EIO:
    case ENETDOWN:
    case ENETUNREACH:
    case ENODEV:
    case ENXIO:
    case EPERM:  // as by a packet filter
      return true;
    default:
      return false;
  }
}

bool is_pending_error(int number) noexcept {
  return number == ECONNREFUSED || number == ECONNRESET || number == EPROTO;
}

}  // namespace

sender::sender(message_sink& sink, const settings& how, udp::capabilities& gives,
               udp::counters& counts)
    : sink_{sink}, how_{how}, gives_{gives}, counts_{counts} {}

result<> sender::send(std::span<const train> trains) {
  if (!kept_.empty()) {
    const auto drained = flush();
    if (!drained) return std::unexpected{drained.error()};
    if (!*drained) {
      keep(trains, {});
      return {};
    }
  }
  cursor at;
  const auto all = push(trains, at);
  if (!all) return std::unexpected{all.error()};
  if (!*all) keep(trains, at);
  return {};
}

result<bool> sender::flush() {
  if (kept_.empty()) return true;
  kept_view_.clear();
  for (const kept_train& k : kept_)
    kept_view_.push_back({k.path, k.ecn, {kept_bytes_.data() + k.offset, k.size}, k.segment});
  auto all = push(kept_view_, kept_at_);
  if (all && !*all) return false;
  kept_.clear();
  kept_bytes_.clear();
  kept_at_ = {};
  return all;
}

result<bool> sender::push(std::span<const train> trains, cursor& at) {
  plain_until_ = {};
  suspecting_offload_ = false;
  for (;;) {
    const bool refused = at < plain_until_;
    suspecting_offload_ = suspecting_offload_ && refused;
    plan(trains, at, how_.multi_message && !suspecting_offload_ ? max_messages : 1,
         gives_.segmentation_offload && !refused);
    if (planned_ == 0) return true;
    const int taken = transmit();
    if (taken > 0) {
      account(static_cast<std::size_t>(taken));
      at = messages_[static_cast<std::size_t>(taken) - 1].end;
      continue;
    }
    switch (on_refusal(at, -taken)) {
      case verdict::proceed:
        continue;
      case verdict::blocked:
        return false;
      case verdict::fatal:
        return fail_errno(layer::udp, "sendmsg", -taken);
    }
  }
}

// Planning.

void sender::plan(std::span<const train> trains, cursor at, std::size_t limit, bool offload) {
  planned_ = 0;
  pieces_used_ = 0;
  while (planned_ < limit && pieces_used_ < max_pieces) {
    while (at.train < trains.size() &&
           (at.offset >= trains[at.train].payload.size() || trains[at.train].segment == 0))
      at = {at.train + 1, 0};
    if (at.train == trains.size()) return;
    plan_message(trains, at, offload);
    at = messages_[planned_ - 1].end;
  }
}

/// Plans one message from `at` on: a run of equal sizes that may end in one shorter datagram.
void sender::plan_message(std::span<const train> trains, cursor at, bool offload) {
  message& m = messages_[planned_];
  const train& first = trains[at.train];
  m = {.segment = std::min(first.segment, first.payload.size() - at.offset)};
  const std::size_t first_piece = pieces_used_;
  const std::size_t most =
      offload ? std::clamp<std::size_t>(max_train_bytes / m.segment, 1, max_train_segments) : 1;
  for (m.end = at; m.end.train < trains.size() && pieces_used_ < max_pieces;) {
    const train& t = trains[m.end.train];
    if (m.end.train != at.train && !same_way(first, t)) break;
    if (!extend(m, t, m.end.offset, most)) break;
    m.end = {m.end.train + 1, 0};
  }
  headers_[planned_].msg_hdr = {.msg_iov = &pieces_[first_piece],
                                .msg_iovlen = pieces_used_ - first_piece};
  address_message(planned_, first);
  ++planned_;
}

/// Adds what fits of `t` from `offset` on. True: all of it, and the run may go on.
bool sender::extend(message& m, const train& t, std::size_t offset, std::size_t most) {
  const std::size_t left = t.payload.size() - offset;
  if (left == 0 || t.segment == 0) return true;
  const std::size_t unit = std::min(t.segment, left);
  // A shorter datagram ends the run; a train of shorter ones is better left whole.
  if (unit > m.segment || (unit < m.segment && left > unit) || m.datagrams == most) return false;
  std::size_t full = 0, size = unit;
  if (unit == m.segment) {
    full = std::min(left / unit, most - m.datagrams);
    size = full * unit;
    const std::size_t tail = left - size;
    const bool ends_short = tail > 0 && tail < unit;
    if (ends_short && m.datagrams + full < most) size += tail;
  }
  const std::size_t datagrams = (size + unit - 1) / unit;
  pieces_[pieces_used_++] = {const_cast<std::byte*>(t.payload.data() + offset), size};
  m.size += size;
  m.datagrams += datagrams;
  m.end.offset = offset + size;
  return size == left && size == full * unit;
}

void sender::address_message(std::size_t index, const train& t) {
  msghdr& header = headers_[index].msg_hdr;
  const message& m = messages_[index];
  header.msg_name = &names_[index];
  header.msg_namelen = to_socket_address(t.path.remote, how_.family, names_[index]);
  control_writer control{header, controls_[index].bytes};
  // IPv4 peers of an IPv6 socket take the IPv4 options (ip(7)).
  const bool ipv6 = normalised(t.path.remote).is_ipv6();
  if (t.ecn != ecn::not_ect) {
    const int bits = static_cast<int>(t.ecn);
    if (ipv6) {
      control.add(IPPROTO_IPV6, IPV6_TCLASS, bits);
    } else {
      control.add(IPPROTO_IP, IP_TOS, bits);
    }
  }
  const address local = normalised(t.path.local);
  if (!local.is_unspecified() && local.is_ipv6() == ipv6 &&
      local.with_port(how_.bound.port()) != how_.bound)
    add_source(control, local);
  if (m.datagrams > 1) {
    control.add(IPPROTO_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(m.segment));
  }
  if (header.msg_controllen == 0) header.msg_control = nullptr;
}

// What the kernel said.

int sender::transmit() {
  ++counts_.send_calls;
  return sink_.accept(std::span{headers_}.first(planned_));
}

void sender::account(std::size_t taken) {
  std::size_t datagrams = 0;
  for (std::size_t i = 0; i < taken; ++i) {
    const message& m = messages_[i];
    datagrams += m.datagrams;
    counts_.bytes_sent += m.size;
    if (m.datagrams < 2) continue;
    ++counts_.offloaded_sends;
    counts_.offloaded_datagrams += m.datagrams;
  }
  for (std::size_t i = taken; i < planned_; ++i) counts_.datagrams_resent += messages_[i].datagrams;
  counts_.datagrams_sent += datagrams;
  count_batch(counts_.send_batch, datagrams);
  pending_errors_ = 0;
  if (!std::exchange(suspecting_offload_, false)) return;
  // What was refused as a part of a train was taken by itself.
  gives_.segmentation_offload = false;
  ++counts_.offload_disabled;
}

sender::verdict sender::on_refusal(cursor& at, int number) {
  const message& refused = messages_[0];
  if (number != EAGAIN && number != EINTR) met_error_ = true;
  switch (number) {
    case EINTR:
      return verdict::proceed;
    case EAGAIN:
      ++counts_.send_blocked;
      for (std::size_t i = 0; i < planned_; ++i) counts_.datagrams_resent += messages_[i].datagrams;
      return verdict::blocked;
    case EMSGSIZE:
      if (refused.datagrams > 1) return send_plainly(refused, false);
      return lose(refused, at, counts_.oversize_dropped);
    case ENOBUFS:
    case ENOMEM:
      return lose(refused, at, counts_.send_dropped);
    case EIO:
    case EINVAL:
      if (refused.datagrams > 1) return send_plainly(refused, true);
      break;
    default:
      break;
  }
  if (is_pending_error(number) && ++pending_errors_ < max_pending_errors) return verdict::proceed;
  if (is_pending_error(number) || is_unreachable(number))
    return lose(refused, at, counts_.unreachable);
  return verdict::fatal;
}

/// The datagrams of a refused train go one by one: some may fit, or the offload may be to blame,
/// which the first one that is taken proves.
sender::verdict sender::send_plainly(const message& refused, bool suspecting_offload) noexcept {
  plain_until_ = refused.end;
  suspecting_offload_ = suspecting_offload;
  counts_.datagrams_resent += refused.datagrams;
  return verdict::proceed;
}

sender::verdict sender::lose(const message& m, cursor& at, std::uint64_t& counter) noexcept {
  counter += m.datagrams;
  at = m.end;
  pending_errors_ = 0;
  return verdict::proceed;
}

// What is kept.

void sender::keep(std::span<const train> trains, cursor at) {
  const bool full = !kept_.empty() && kept_bytes_.size() >= kept_limit;
  trim_kept();
  for (; at.train < trains.size(); at = {at.train + 1, 0}) {
    const train& t = trains[at.train];
    const bytes rest = t.payload.subspan(at.offset);
    if (rest.empty() || t.segment == 0) continue;
    if (full) {
      counts_.send_dropped += (rest.size() + t.segment - 1) / t.segment;
      continue;
    }
    kept_.push_back({t.path, t.ecn, t.segment, kept_bytes_.size(), rest.size()});
    kept_bytes_.insert(kept_bytes_.end(), rest.begin(), rest.end());
  }
}

/// Lets go of what has been sent of the kept.
void sender::trim_kept() {
  if (kept_at_.train == 0) return;
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(kept_at_.train));
  kept_at_.train = 0;
  if (kept_.empty()) return;
  const std::size_t sent = kept_.front().offset;
  kept_bytes_.erase(kept_bytes_.begin(), kept_bytes_.begin() + static_cast<std::ptrdiff_t>(sent));
  for (kept_train& k : kept_) k.offset -= sent;
}

}  // namespace weft::udp
