// Lanes of int32, and the product of unsigned weights with signed inputs that integer kernels live on.
//
// `Ints` has as many lanes as `Vec`. `Bytes` is as many groups of four unsigned bytes. `dot(sum, weights, inputs)` adds
// Σ weights[lane][j] × inputs[j] for j in 0..3 to each lane, exactly, whatever the instruction set: `inputs` are the
// same four signed bytes for all lanes. `look_up(load_table(16 bytes), nibbles)` replaces each nibble by a byte.
#pragma once
#include "vector.hpp"

#if defined(__AVX512F__)
#include "integers_avx512.hpp"
#elif defined(__AVX2__)
#include "integers_avx2.hpp"
#elif defined(__ARM_NEON)
#include "integers_neon.hpp"
#else
#include "integers_plain.hpp"
#endif

namespace penstock {

inline Ints operator+(Ints a, Ints b) { return add(a, b); }
inline Ints operator-(Ints a, Ints b) { return subtract(a, b); }
inline Ints operator*(Ints a, Ints b) { return multiply(a, b); }

}  // namespace penstock
