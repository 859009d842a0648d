#include <weft/quic/core/stream.hpp>

#include <utility>

#include <weft/quic/core/connection_impl.hpp>

namespace weft::quic::core {

detail::connection_impl& stream::owner() const noexcept {
  return static_cast<detail::connection_impl&>(*connection_);
}
bool stream::can_send() const noexcept {
  return is_bidirectional(id_) || local_;
}
bool stream::can_receive() const noexcept {
  return is_bidirectional(id_) || !local_;
}
bool stream::send_open() const noexcept {
  return connection_ && !closed_ && can_send() && !reset_sent_ && !fin_sent_;
}

slice stream::read(std::size_t limit) {
  if (connection_) return owner().read(*this, limit);
  if (receive_queue_.empty() || limit == 0) return {};
  slice piece = receive_queue_.front().size() <= limit ? receive_queue_.pop_front()
                                                       : receive_queue_.front().take_front(limit);
  receive_buffered_ -= piece.size();
  return piece;
}

void stream::stop_sending(std::uint64_t code) {
  if (connection_) return owner().stop_sending(*this, code);
  receive_queue_.clear();
  receive_buffered_ = 0;
}

std::size_t stream::writable() const noexcept {
  if (!connection_) return 0;
  const std::size_t room = owner().writable(*this);
  if (room == 0 && send_open() && !finish_asked_) owner().wait_for_room(const_cast<stream&>(*this));
  return room;
}

result<> stream::write(slice data) {
  if (!connection_) return fail(errc::closed, layer::stream, "the connection has ended");
  return owner().write(*this, std::move(data));
}

result<> stream::finish() {
  if (!connection_) return fail(errc::closed, layer::stream, "the connection has ended");
  return owner().finish(*this);
}

void stream::reset(std::uint64_t code) {
  if (connection_) owner().reset(*this, code);
}

void stream::set_priority(std::uint8_t urgency, bool incremental) {
  if (connection_) owner().set_priority(*this, urgency, incremental);
}

std::uint8_t stream::take_events() noexcept {
  if (connection_)
    owner().events_taken(*this);
  else
    reported_ = false;
  return std::exchange(events_, std::uint8_t{0});
}

}  // namespace weft::quic::core
