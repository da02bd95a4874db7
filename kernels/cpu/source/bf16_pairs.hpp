// Numbers as sums of two bf16, for tiles that multiply nothing wider.
//
//   float16 = high + low, exactly                  float32 ≈ whole + rest, to 2^-16 of it
//   product ≈ whole × low + whole × high + rest × high
//
// What is left out, rest × low, is at most 2^-16 of a product, so a sum of products is right to 2^-15 of what its terms
// add up to in size.
#pragma once
#include "integers.hpp"

#if defined(__AMX_BF16__)
namespace penstock {

// Lanes of two bf16 each.
struct HighAndLow {
    Bytes high, low;
};

// Two vectors of float16 numbers side by side. Both parts are the upper halves of what they are as float32.
inline HighAndLow apart(Vec first, Vec second) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    const auto high_of = [&](Vec x) {
        return _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x.lanes), half), upper);
    };
    const auto low_of = [](Vec x, __m512i high) {
        return _mm512_castps_si512(_mm512_sub_ps(x.lanes, _mm512_castsi512_ps(high)));
    };
    const auto side_by_side = [](__m512i a, __m512i b) { return Bytes{_mm512_or_si512(_mm512_srli_epi32(a, 16), b)}; };
    const __m512i first_high = high_of(first), second_high = high_of(second);
    return {side_by_side(first_high, second_high), side_by_side(low_of(first, first_high), low_of(second, second_high))};
}

inline void store_whole_and_rest(uint16_t* whole, uint16_t* rest, Vec x) {
    store_bf16(whole, x);
    store_bf16(rest, x - load_bf16(whole));
}

}  // namespace penstock
#endif
