#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/posix/basic_stream_descriptor.hpp>

#include <weft/base/error.hpp>
#include <weft/io/shard.hpp>

namespace weft::app {

/// Cuts text into JSON values, which follow each other with or without white space between. What is
/// no JSON is cut somewhere, and left to the parser to complain about.
class json_splitter {
 public:
  void feed(std::string_view more);
  /// The next value that is whole.
  std::optional<std::string> next();
  /// At the end of the text: a number or word that nothing follows, or part of a value.
  std::optional<std::string> rest();

 private:
  std::string take(std::size_t end);

  std::string text_;
  std::size_t begin_ = 0, at_ = 0;
  std::size_t depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

/// Standard input, which may be a terminal, a pipe, a socket or a file.
class standard_input {
 public:
  explicit standard_input(io::shard& shard);
  /// What has come; empty at the end.
  task<weft::result<std::string>> read();

 private:
  /// Readable when standard input is; not open where reading never waits.
  asio::posix::basic_stream_descriptor<executor> ready_;
};

/// The request messages of a call: JSON values from arguments, files and standard input, in order.
class message_source {
 public:
  /// Each of `data` holds JSON values, or is "@FILE", or "-" or "@-" for standard input.
  message_source(io::shard& shard, std::vector<std::string> data);
  /// The next message; nothing at the end.
  task<weft::result<std::optional<std::string>>> next();

 private:
  task<weft::result<bool>> refill();

  std::vector<std::string> data_;
  std::size_t current_ = 0;
  json_splitter values_;
  io::shard& shard_;
  std::optional<standard_input> input_;
};

}  // namespace weft::app
