// Loops of a fixed length written out at once, so that arrays indexed by them live in registers.
//
// Compilers unroll such loops too, but late: an array of sums may have been given memory by then (seen with g++ 12). On the
// other hand each call here is a function until it is inlined. What is compiled for many types therefore writes
// `#pragma GCC unroll` for its inner loops, in half the time (block_tiles.hpp).
#pragma once
#include <utility>

namespace penstock {

#define PENSTOCK_INLINE __attribute__((always_inline))

template <class Body, int... Indices>
PENSTOCK_INLINE inline void call_with_each(const Body& body, std::integer_sequence<int, Indices...>) {
    (body(std::integral_constant<int, Indices>{}), ...);
}

// Calls body(0), …, body(Count - 1), each index a constant. The body itself should be PENSTOCK_INLINE.
template <int Count, class Body>
PENSTOCK_INLINE inline void unrolled(const Body& body) {
    call_with_each(body, std::make_integer_sequence<int, Count>{});
}

}  // namespace penstock
