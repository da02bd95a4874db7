// Lanes of 32 bits that hold two numbers of 16 bits, four of 8 or eight of 4: what packed keys and values are read as.
//
// As many lanes as `Vec`; `quads_avx512.hpp`, `quads_avx2.hpp` and `quads_neon.hpp` differ in nothing but their instructions.
//   dot(sum, u, s)            sum + Σ u × s over a lane's four bytes, u unsigned and s signed, exact
//   dot_bf16(sum, a, b)       sum + a₀ b₀ + a₁ b₁ over a lane's two bf16, where the processor has it
//   join_planes(high, low)    256 × high + low
//   join_firsts(a, b)         lanes of the first bf16 of a and of b; join_seconds: of the second ones
//   even_bytes(x)             bytes 0 and 2 of each lane as 16-bit numbers; odd_bytes: 1 and 3; signed ones likewise,
//   dot_pairs(sum, a, b)      sum + a₀ b₀ + a₁ b₁ over a lane's two 16-bit numbers, exact, and
//   store_pairs(to, x)        whole numbers as 16 bits, lanes 0, 2, 1, 3, 4, 6, 5, 7, …, where bytes are not multiplied
//   store_sums(to, four)      the sums of four vectors' lanes, of each those 8, 4, 2 and 1 apart
//   store_planes(h, l, x)     the two bytes of each of x's whole numbers in [0, 65535], apart
//   swap_neighbours(x)        lanes 1, 0, 3, 2, …
//   within(x, y, first, end)  x in the lanes [first, end), y in the others
// and `fetch(from, bytes)`, which asks for memory that will be read soon, `fetch_to_second` for it in the second cache only.
#pragma once
#include <algorithm>

#include "vector.hpp"

#if defined(__AVX512F__)
#include "quads_avx512.hpp"
#elif defined(__AVX2__)
#include "quads_avx2.hpp"
#else
#include "quads_neon.hpp"
#endif

namespace penstock {

inline void fetch(const void* from, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(from) + at);
}
// Many lines at a time, which would wait for one another on their way into the first cache.
inline void fetch_to_second(const void* from, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(from) + at, 0, 2);
}

}  // namespace penstock
