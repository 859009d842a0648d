#pragma once

#include <weft/rpc/core/pooled.hpp>
