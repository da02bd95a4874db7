// Products of unsigned or signed codes with signed inputs, added up over a few inputs and then multiplied by an integer.
//
// A partial sum starts from what one word says, the same in all lanes. With `WidePartials` a lane is one sum of 32 bits.
// Where no instruction adds four products to 32 bits, `NarrowPartials` multiply bytes in pairs: a lane is two sums of 16
// bits, of inputs 0 and 1 and of inputs 2 and 3 of every four, and so is the word that it starts from.
// `merged(sum, partial, scale)` adds scale × partial to 32 bits. All is exact as long as nobody adds up too many.
//
// Scales come as pairs of 16 bits in each lane (`load_int8_pairs`); `first_scale` and `second_scale` make of them what
// `merged` takes. `add_pair_products(sum, pairs, word)` adds what both of a pair make with the halves of a word.
//
// With PENSTOCK_JOINS two sums that fit into 16 bits become a pair (`join_halves`), and one instruction adds what pairs
// make with pairs. `largest_sum` says what inputs of any `kWidth` neighbours add up to in size at most: those of one sign,
// or all. Of a multiple of 64 inputs, none of which is -128.
//
// Codes with a sign that fill a byte fit into 16 bits only once: narrow `add_signed` multiplies and merges in one.
#pragma once
#include "integers.hpp"

#if defined(__AVX512F__)
#include "partials_avx512.hpp"
#elif defined(__AVX2__)
#include "partials_avx2.hpp"
#elif defined(__ARM_NEON)
#include "partials_neon.hpp"
#else
#include "partials_plain.hpp"
#endif

namespace penstock {

struct WidePartials {
    static constexpr bool kIsNarrow = false;
    using Inputs = penstock::Inputs;
    static Inputs broadcast(const int8_t* four) { return broadcast_inputs(four); }
    static Ints first_scale(Ints pairs) { return high_halves(shift_left(pairs, 16)); }
    static Ints second_scale(Ints pairs) { return high_halves(pairs); }
    static Ints add_products(Ints partial, Bytes codes, Inputs inputs) { return dot(partial, codes, inputs); }
    static Ints merged(Ints sum, Ints partial, Ints scale) { return sum + partial * scale; }
};

// Compiled with PENSTOCK_WIDE_PARTIALS, what is wide can be tried where nothing makes it fast.
#if defined(__AVXVNNI__) || defined(__AVX512VNNI__) || !defined(__AVX2__) || defined(PENSTOCK_WIDE_PARTIALS)
using Partials = WidePartials;
#else
using Partials = NarrowPartials;
#endif

// Sums of 16 neighbouring inputs in the two halves of a word: of those that are first or second of every four, and of
// the others.
inline int32_t sum_in_halves(const int8_t* sixteen) {
#if defined(__SSSE3__)
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen));
    const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), values);
    const __m128i twos = _mm_add_epi16(pairs, _mm_shuffle_epi32(pairs, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi16(twos, _mm_shuffle_epi32(twos, 0xb1)));
#else
    int16_t halves[2] = {};
    for (int64_t i = 0; i < 16; ++i) halves[i % 4 / 2] = static_cast<int16_t>(halves[i % 4 / 2] + sixteen[i]);
    return word_at(halves);
#endif
}
inline int32_t low_half(int32_t word) { return static_cast<int16_t>(word); }
inline int32_t high_half(int32_t word) { return word >> 16; }
inline int32_t word_of(int32_t low, int32_t high) {
    return static_cast<int32_t>(static_cast<uint32_t>(high) << 16 | (static_cast<uint32_t>(low) & 0xffff));
}

}  // namespace penstock
