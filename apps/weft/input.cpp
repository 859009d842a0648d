#include "input.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

#include <asio/as_tuple.hpp>
#include <asio/deferred.hpp>

namespace weft::app {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

weft::result<std::string> read_file(const std::string& name) {
  std::ifstream file{name, std::ios::binary};
  std::stringstream all;
  all << file.rdbuf();
  if (!file) return weft::fail(errc::invalid_argument, layer::app, "cannot read " + name);
  return all.str();
}

}  // namespace

// Values
// ----------------------------------------------------------------------------------------------

void json_splitter::feed(std::string_view more) {
  text_.erase(0, begin_);
  at_ -= std::exchange(begin_, 0);
  text_ += more;
}

std::optional<std::string> json_splitter::next() {
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    const bool word_before = at_ > begin_;
    if (in_string_) {
      if (std::exchange(escaped_, false)) continue;
      escaped_ = c == '\\';
      in_string_ = c != '"';
      if (!in_string_ && depth_ == 0) return take(at_ + 1);
    } else if (depth_ == 0 && word_before && (is_space(c) || c == '"' || c == '{' || c == '[')) {
      return take(at_);
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      if (depth_ > 0) --depth_;
      if (depth_ == 0) return take(at_ + 1);
    } else if (depth_ == 0 && is_space(c)) {
      begin_ = at_ + 1;
    }
  }
  return std::nullopt;
}

std::optional<std::string> json_splitter::rest() {
  depth_ = 0;
  in_string_ = escaped_ = false;
  if (begin_ == text_.size()) return std::nullopt;
  return take(text_.size());
}

std::string json_splitter::take(std::size_t end) {
  at_ = end;
  const std::size_t begin = std::exchange(begin_, end);
  return text_.substr(begin, end - begin);
}

// Standard input
// --------------------------------------------------------------------------------------

// The loop would make standard input non-blocking, for whoever shares it too, and refuses files. An
// epoll set of its own is as readable as what is in it; files cannot be in it, and never wait.
standard_input::standard_input(io::shard& shard) : ready_{shard.get_executor()} {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  if (set < 0) return;
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(set, EPOLL_CTL_ADD, STDIN_FILENO, &event) == 0)
    ready_.assign(set);
  else
    close(set);
}

task<weft::result<std::string>> standard_input::read() {
  if (ready_.is_open()) {
    const auto [failure] = co_await ready_.async_wait(asio::posix::descriptor_base::wait_read,
                                                      asio::as_tuple(asio::deferred));
    if (failure)
      co_return weft::fail(errc::cancelled, layer::app, "reading standard input was cancelled");
  }
  std::string text(64 * 1024, '\0');
  const auto got = ::read(STDIN_FILENO, text.data(), text.size());
  if (got < 0 && errno == EBADF) co_return std::string{};  // closed: nothing to say
  if (got < 0) co_return weft::fail_errno(layer::app, "reading standard input", errno);
  text.resize(static_cast<std::size_t>(got));
  co_return text;
}

// Messages
// --------------------------------------------------------------------------------------------

message_source::message_source(io::shard& shard, std::vector<std::string> data)
    : data_{std::move(data)}, shard_{shard} {}

task<weft::result<std::optional<std::string>>> message_source::next() {
  for (;;) {
    if (auto value = values_.next()) co_return value;
    if (current_ == data_.size()) co_return std::optional<std::string>{};
    auto more = co_await refill();
    if (!more) co_return std::unexpected{std::move(more).error()};
    if (*more) continue;
    ++current_;
    if (auto value = values_.rest()) co_return value;
  }
}

/// False at the end of the current argument.
task<weft::result<bool>> message_source::refill() {
  std::string& from = data_[current_];
  if (from == "-" || from == "@-") {
    if (!input_) input_.emplace(shard_);
    auto text = co_await input_->read();
    if (!text) co_return std::unexpected{std::move(text).error()};
    values_.feed(*text);
    co_return !text->empty();
  }
  if (from.empty()) co_return false;
  const std::string given = std::exchange(from, {});
  if (!given.starts_with('@')) {
    values_.feed(given);
    co_return true;
  }
  auto text = read_file(given.substr(1));
  if (!text) co_return std::unexpected{std::move(text).error()};
  values_.feed(*text);
  co_return true;
}

}  // namespace weft::app
