#include <weft/udp/socket.hpp>

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <asio/as_tuple.hpp>
#include <asio/deferred.hpp>
#include <asio/posix/basic_stream_descriptor.hpp>
#include <asio/this_coro.hpp>

#include <weft/udp/receiver.hpp>
#include <weft/udp/sender.hpp>
#include <weft/udp/socket_address.hpp>

namespace weft::udp {

namespace {

using descriptor = asio::posix::basic_stream_descriptor<executor>;

class kernel final : public message_sink {
 public:
  explicit kernel(int fd) noexcept : fd_{fd} {}

  int accept(std::span<mmsghdr> messages) noexcept override {
    if (messages.size() == 1) {
      // A lone message may be a whole train; the plain call is the cheaper one.
      const ssize_t sent = ::sendmsg(fd_, &messages[0].msg_hdr, MSG_DONTWAIT | MSG_NOSIGNAL);
      return sent < 0 ? -errno : 1;
    }
    const int taken = ::sendmmsg(fd_, messages.data(), static_cast<unsigned>(messages.size()),
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    return taken < 0 ? -errno : taken;
  }

 private:
  int fd_;
};

/// Closes a descriptor on every way out but one.
class open_file {
 public:
  explicit open_file(int fd) noexcept : fd_{fd} {}
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;
  ~open_file() {
    if (fd_ >= 0) ::close(fd_);
  }
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

bool set(int fd, int level, int name, int value) noexcept {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

/// The kernel doubles what is asked for, to cover its bookkeeping; this is comparable to the
/// request.
std::size_t set_buffer(int fd, int plain, int forced, std::size_t size) noexcept {
  const int wanted = static_cast<int>(std::min<std::size_t>(size, INT32_MAX / 2));
  if (!set(fd, SOL_SOCKET, forced, wanted)) set(fd, SOL_SOCKET, plain, wanted);
  int granted = 0;
  socklen_t length = sizeof granted;
  ::getsockopt(fd, SOL_SOCKET, plain, &granted, &length);
  return static_cast<std::size_t>(granted) / 2;
}

capabilities configure(int fd, int family, const options& opts) {
  const bool ipv6 = family == AF_INET6;
  capabilities gives;
  // An IPv6 socket carries IPv4 too and takes the options of both.
  gives.ecn =
      set(fd, IPPROTO_IP, IP_RECVTOS, 1) && (!ipv6 || set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1));
  gives.local_address =
      ipv6 ? set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1) : set(fd, IPPROTO_IP, IP_PKTINFO, 1);
  gives.mtu_probing = set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE) &&
                      (!ipv6 || set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE));
  set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
  // Asked, not set: as a socket option it would cut every packet, handshakes included.
  int segment = 0;
  socklen_t length = sizeof segment;
  gives.segmentation_offload = opts.allow_segmentation_offload &&
                               ::getsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, &length) == 0;
  gives.receive_coalescing = opts.allow_receive_coalescing && set(fd, IPPROTO_UDP, UDP_GRO, 1);
  if (opts.report_refusals) {
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    if (ipv6) set(fd, IPPROTO_IPV6, IPV6_RECVERR, 1);
  }
  gives.send_buffer = set_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE, opts.send_buffer);
  gives.receive_buffer = set_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE, opts.receive_buffer);
  return gives;
}

std::unexpected<error> cannot_open(std::string_view what, const address& local, int number) {
  if (number == EADDRINUSE || number == EADDRNOTAVAIL || number == EACCES)
    return fail_errno(layer::udp, std::string{what} + ' ' + local.to_string(), number);
  return fail_errno(layer::udp, what, number);
}

result<address> bind_to(int fd, int family, const address& local) {
  socket_address name;
  const socklen_t size = to_socket_address(local, family, name);
  if (::bind(fd, &name.any, size) != 0) return cannot_open("bind", local, errno);
  socklen_t length = sizeof name;
  if (::getsockname(fd, &name.any, &length) != 0) return cannot_open("getsockname", local, errno);
  return from_socket_address(name);
}

/// A port that is ours alone to share. Asked for any port, the kernel gives a socket with
/// SO_REUSEPORT now and then one that another server of the same user shares already. So one
/// without it takes the port, and lets `fd` join.
result<address> bind_to_new_port(int fd, int family, const address& local) {
  const int holder = ::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (holder < 0) return cannot_open("socket", local, errno);
  const open_file owner{holder};
  if (family == AF_INET6) set(holder, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const auto held = bind_to(holder, family, local);
  if (!held) return held;
  if (!set(holder, SOL_SOCKET, SO_REUSEPORT, 1)) return cannot_open("SO_REUSEPORT", *held, errno);
  return bind_to(fd, family, *held);
}

std::unexpected<error> closed() {
  return fail(errc::closed, layer::udp, "the socket is closed");
}

std::unexpected<error> cancelled() {
  return fail(errc::cancelled, layer::udp, "the wait was cancelled or the socket closed");
}

}  // namespace

struct socket::impl {
  impl(executor loop, int fd, int family, const address& bound, const udp::capabilities& given,
       const options& opts)
      : watched{loop, fd},
        bound{bound},
        gives{given},
        sink{fd},
        send{sink,
             {.family = family, .bound = bound, .multi_message = opts.allow_multi_message},
             gives,
             counts},
        receive{bound, opts.allow_multi_message, opts.report_refusals, counts} {}

  task<result<>> wait(descriptor::wait_type what);

  descriptor watched;
  address bound;
  udp::capabilities gives;
  udp::counters counts;
  kernel sink;
  sender send;
  receiver receive;
};

result<socket> socket::open(io::shard& shard, const address& local, const options& opts) {
  const address where = normalised(local);
  if (where.ip_family() == address::family::none)
    return fail(errc::invalid_argument, layer::udp, "a socket needs an address to bind to");
  const int family = where.is_ipv6() ? AF_INET6 : AF_INET;
  const int fd = ::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return cannot_open("socket", where, errno);
  open_file owner{fd};
  if (family == AF_INET6) set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (opts.reuse_port && !set(fd, SOL_SOCKET, SO_REUSEPORT, 1))
    return cannot_open("SO_REUSEPORT", where, errno);
  const auto given = configure(fd, family, opts);
  const bool new_port = opts.reuse_port && where.port() == 0;
  const auto bound = new_port ? bind_to_new_port(fd, family, where) : bind_to(fd, family, where);
  if (!bound) return std::unexpected{bound.error()};
  return socket{
      std::make_unique<impl>(shard.get_executor(), owner.release(), family, *bound, given, opts)};
}

socket::socket(std::unique_ptr<impl> state) noexcept : impl_{std::move(state)} {}
socket::socket(socket&&) noexcept = default;
socket& socket::operator=(socket&&) noexcept = default;
socket::~socket() = default;

const address& socket::local_address() const noexcept {
  return impl_->bound;
}
const capabilities& socket::capabilities() const noexcept {
  return impl_->gives;
}
const counters& socket::counters() const noexcept {
  return impl_->counts;
}
bool socket::writable() const noexcept {
  return impl_->send.writable();
}
int socket::native_handle() const noexcept {
  return impl_->watched.is_open() ? impl_->watched.native_handle() : -1;
}

result<> socket::send(std::span<const train> trains) {
  if (!impl_->watched.is_open()) return closed();
  return impl_->send.send(trains);
}

result<bool> socket::flush() {
  if (!impl_->watched.is_open()) return closed();
  return impl_->send.flush();
}

result<std::size_t> socket::receive(std::size_t max_datagrams,
                                    const std::function<void(const train&)>& on_train) {
  if (!impl_->watched.is_open()) return closed();
  const int fd = impl_->watched.native_handle();
  // An error that a send met first is not told again, but stays in the queue.
  if (impl_->send.take_met_error()) impl_->receive.read_errors(fd);
  return impl_->receive.receive(fd, max_datagrams, on_train);
}

std::vector<address> socket::take_refusals() {
  return impl_->receive.take_refusals();
}

// Touches nothing of the socket after the wait: it may be gone by then.
task<result<>> socket::impl::wait(descriptor::wait_type what) {
  const auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none || !watched.is_open())
    co_return cancelled();
  const auto [failure] = co_await watched.async_wait(what, asio::as_tuple(asio::deferred));
  if (failure) co_return cancelled();
  co_return result<>{};
}

task<result<>> socket::wait_readable() {
  return impl_->wait(descriptor::wait_read);
}
task<result<>> socket::wait_writable() {
  return impl_->wait(descriptor::wait_write);
}

void socket::close() noexcept {
  impl_->receive.stop();
  asio::error_code ignored;
  impl_->watched.close(ignored);
}

result<capabilities> probe(io::shard& shard) {
  const auto opened = socket::open(shard, address::ipv4({127, 0, 0, 1}, 0));
  if (!opened) return std::unexpected{opened.error()};
  return opened->capabilities();
}

}  // namespace weft::udp
