#pragma once

#include <asio/any_completion_handler.hpp>
#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <weft/base/error.hpp>

namespace weft {

/// Everything of one shard runs here. Concrete, so that a coroutine step costs no virtual call.
using executor = asio::io_context::executor_type;

/// A coroutine of weft's. Starts when awaited. Parameters are taken by value unless the caller is
/// known to outlive it; a lambda coroutine captures nothing.
template <class T = void>
using task = asio::awaitable<T, executor>;

}  // namespace weft
