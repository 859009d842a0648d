#pragma once

// XXH3 with the widest vectors the processor has: checking what arrived should cost little beside
// moving it, or all transports look alike.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif
