#include <weft/udp/receiver.hpp>

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <weft/udp/sender.hpp>

namespace weft::udp {

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr int ecn_bits = 0b11;
/// Errors of earlier datagrams (ICMP) that one `receive` skips before it believes them.
constexpr int max_pending_errors = 16;

template <class Value>
Value value_of(const cmsghdr* control) noexcept {
  Value value;
  std::memcpy(&value, CMSG_DATA(control), sizeof value);
  return value;
}

bool is_fatal(int number) noexcept {
  return number == EBADF || number == ENOTSOCK || number == EFAULT || number == EINVAL;
}

address local_of(const in_pktinfo& info, std::uint16_t port) noexcept {
  socket_address local;
  local.ipv4 = {.sin_family = AF_INET, .sin_addr = info.ipi_addr};
  return from_socket_address(local).with_port(port);
}

address local_of(const in6_pktinfo& info, std::uint16_t port) noexcept {
  socket_address local;
  const bool needs_scope = IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr);
  local.ipv6 = {.sin6_family = AF_INET6,
                .sin6_addr = info.ipi6_addr,
                .sin6_scope_id = needs_scope ? info.ipi6_ifindex : 0};
  return from_socket_address(local).with_port(port);
}

}  // namespace

receiver::receiver(const address& bound, bool multi_message, bool errors_queue,
                   udp::counters& counts)
    : bound_{bound}, multi_message_{multi_message}, errors_queue_{errors_queue}, counts_{counts} {}

result<std::size_t> receiver::receive(int descriptor, std::size_t max_datagrams,
                                      const std::function<void(const train&)>& on_train) {
  std::size_t total = 0;
  stopped_ = false;
  for (int errors = 0; total < max_datagrams && !stopped_;) {
    const std::size_t asked = multi_message_ ? std::min(slots_, max_datagrams - total) : 1;
    prepare(asked);
    const int got = collect(descriptor, asked);
    if (got < 0) {
      if (errno == EAGAIN) break;
      const int number = errno;
      read_errors(descriptor);
      errno = number;
      if (errno != EINTR && (is_fatal(errno) || ++errors == max_pending_errors))
        return fail_errno(layer::udp, "recvmsg", errno);
      continue;
    }
    std::size_t datagrams = 0, bytes = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(got) && !stopped_; ++i) {
      bytes += headers_[i].msg_len;
      datagrams += deliver(i, on_train);
    }
    count_batch(counts_.receive_batch, std::max<std::size_t>(datagrams, 1));
    total += datagrams;
    adapt(asked, static_cast<std::size_t>(got), bytes);
    if (multi_message_ && static_cast<std::size_t>(got) < asked) break;
  }
  return total;
}

void receiver::read_errors(int descriptor) {
  if (!errors_queue_) return;
  constexpr std::size_t most_refusals = 16;
  for (;;) {
    socket_address to;
    control room;
    msghdr header{.msg_name = &to,
                  .msg_namelen = sizeof to,
                  .msg_control = &room,
                  .msg_controllen = sizeof room};
    if (::recvmsg(descriptor, &header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if ((c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_RECVERR) &&
          (c->cmsg_level != IPPROTO_IPV6 || c->cmsg_type != IPV6_RECVERR))
        continue;
      const auto what = value_of<sock_extended_err>(c);
      if (what.ee_errno != ECONNREFUSED || what.ee_origin == SO_EE_ORIGIN_LOCAL ||
          refusals_.size() >= most_refusals)
        continue;
      refusals_.push_back(from_socket_address(to));
    }
  }
}

int receiver::collect(int descriptor, std::size_t slots) {
  ++counts_.receive_calls;
  if (slots > 1)
    return ::recvmmsg(descriptor, headers_.data(), static_cast<unsigned>(slots), MSG_DONTWAIT,
                      nullptr);
  const ssize_t size = ::recvmsg(descriptor, &headers_[0].msg_hdr, MSG_DONTWAIT);
  if (size < 0) return -1;
  headers_[0].msg_len = static_cast<unsigned>(size);
  return 1;
}

void receiver::prepare(std::size_t slots) {
  if (!memory_) {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(huge_page, max_slots * slot_bytes)));
    if (!memory_) throw std::bad_alloc{};
    ::madvise(memory_.get(), max_slots * slot_bytes, MADV_HUGEPAGE);
  }
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (; touched_slots_ < slots; ++touched_slots_)
    for (std::size_t at = 0; at < slot_bytes; at += page)
      memory_.get()[touched_slots_ * slot_bytes + at] = std::byte{};
  for (std::size_t i = 0; i < slots; ++i) {
    pieces_[i] = {memory_.get() + i * slot_bytes, slot_bytes};
    headers_[i].msg_hdr = {.msg_name = &names_[i],
                           .msg_namelen = sizeof names_[i],
                           .msg_iov = &pieces_[i],
                           .msg_iovlen = 1,
                           .msg_control = &controls_[i],
                           .msg_controllen = control_bytes};
  }
}

std::size_t receiver::deliver(std::size_t slot, const std::function<void(const train&)>& on_train) {
  msghdr& header = headers_[slot].msg_hdr;
  const std::size_t size = headers_[slot].msg_len;
  train t{.path = {.local = bound_, .remote = from_socket_address(names_[slot])},
          .payload = {memory_.get() + slot * slot_bytes, size},
          .segment = size};
  read_control(header, t);
  const std::size_t datagrams = std::max<std::size_t>(t.datagrams(), 1);
  counts_.datagrams_received += datagrams;
  counts_.bytes_received += size;
  if (datagrams > 1) ++counts_.coalesced_trains;
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    ++counts_.truncated;
  } else if (size > 0) {
    on_train(t);
  }
  return datagrams;
}

void receiver::read_control(msghdr& header, train& t) {
  const std::uint16_t port = bound_.port();
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
      // An int, although the option that asks for it takes one too and UDP_SEGMENT takes 16 bits.
      if (const int segment = value_of<int>(c); segment > 0)
        t.segment = std::min(static_cast<std::size_t>(segment), t.payload.size());
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
      t.ecn = static_cast<ecn>(value_of<std::uint8_t>(c) & ecn_bits);
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
      t.ecn = static_cast<ecn>(value_of<int>(c) & ecn_bits);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      t.path.local = local_of(value_of<in_pktinfo>(c), port);
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      t.path.local = local_of(value_of<in6_pktinfo>(c), port);
    } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
      // The kernel's own count, 32 bits wide.
      const auto drops = value_of<std::uint32_t>(c);
      counts_.kernel_drops += drops - std::exchange(kernel_drops_, drops);
    }
  }
}

/// As many slots as the traffic fills: the memory of unused ones is not touched.
void receiver::adapt(std::size_t asked, std::size_t got, std::size_t bytes) noexcept {
  const std::size_t most = bytes / got >= large_train ? max_large_slots : max_slots;
  if (got == asked) {
    slots_ = std::min(slots_ * 2, most);
  } else if (got * 4 <= asked) {
    slots_ = std::max(slots_ / 2, min_slots);
  }
}

}  // namespace weft::udp
