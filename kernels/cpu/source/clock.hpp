// A clock that no change of the date moves. That of std::chrono lies in libstdc++, which the kernels don't need.
#pragma once
#include <cstdint>
#include <ctime>

namespace penstock {

inline int64_t steady_nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace penstock
