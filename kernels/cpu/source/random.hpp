// Uniform random numbers by counter: each is a hash of (seed, sample, position) and of nothing else.
//
// splitmix64's finalizer, chained over the words, bit for bit as the reference does it (its `draw` is 0 here).
#pragma once
#include <cstdint>
#include <initializer_list>

namespace penstock {

inline uint64_t mixed(uint64_t state) {
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
    return state ^ (state >> 31);
}

// In [0, 1), of 52 bits: so its product with a positive total, rounded, stays below the total.
inline double uniform(int64_t seed, int64_t sample, int64_t position) {
    constexpr uint64_t step = 0x9E3779B97F4A7C15u;
    uint64_t state = mixed(static_cast<uint64_t>(seed) + step);
    for (const int64_t word : {sample, position, int64_t{0}}) {
        state = mixed(state + (static_cast<uint64_t>(word) + 1) * step);
    }
    return static_cast<double>(state >> 12) * 0x1p-52;
}

}  // namespace penstock
