#pragma once

#include <weft/rpc/core/list.hpp>
