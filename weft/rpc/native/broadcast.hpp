#pragma once

#include <weft/rpc/broadcast.hpp>
