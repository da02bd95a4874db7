// `Ints` as one AVX2 register. Included by integers.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

struct Ints {
    __m256i lanes;
};
struct Bytes {
    __m256i groups;
};

inline Ints zero_ints() { return {_mm256_setzero_si256()}; }
inline Ints broadcast_int(int32_t x) { return {_mm256_set1_epi32(x)}; }
inline Ints load_ints(const int32_t* from) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))}; }
inline Ints load_int16(const int16_t* from) {
    return {_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
inline Ints load_uint8(const uint8_t* from) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)))};
}
inline Ints add(Ints a, Ints b) { return {_mm256_add_epi32(a.lanes, b.lanes)}; }
inline Ints subtract(Ints a, Ints b) { return {_mm256_sub_epi32(a.lanes, b.lanes)}; }
inline Ints multiply(Ints a, Ints b) { return {_mm256_mullo_epi32(a.lanes, b.lanes)}; }
inline Ints shift_left(Ints x, int bits) { return {_mm256_slli_epi32(x.lanes, bits)}; }
inline Ints maximum(Ints a, Ints b) { return {_mm256_max_epi32(a.lanes, b.lanes)}; }
inline int32_t sum(Ints x) {
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(x.lanes), _mm256_extracti128_si256(x.lanes, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
inline int32_t largest(Ints x) {
    const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(x.lanes), _mm256_extracti128_si256(x.lanes, 1));
    const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

inline Vec to_float(Ints x) { return {_mm256_cvtepi32_ps(x.lanes)}; }
inline Vec bits_to_float(Ints x) { return {_mm256_castsi256_ps(x.lanes)}; }
inline Ints round_to_int(Vec x) { return {_mm256_cvtps_epi32(x.lanes)}; }
inline Ints magnitude_bits(Vec x) {
    return {_mm256_and_si256(_mm256_castps_si256(x.lanes), _mm256_set1_epi32(0x7fffffff))};
}
inline void store(int32_t* to, Ints x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x.lanes); }
inline void store_int8(int8_t* to, Ints x) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x.lanes), _mm256_extracti128_si256(x.lanes, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
}

inline Bytes load_bytes(const uint8_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
}
inline void store_bytes(uint8_t* to, Bytes x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x.groups); }
inline Bytes load_table(const void* from) {
    return {_mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(from)))};
}
inline Bytes look_up(Bytes table, Bytes nibbles) { return {_mm256_shuffle_epi8(table.groups, nibbles.groups)}; }
inline Bytes low_nibbles(Bytes x) { return {_mm256_and_si256(x.groups, _mm256_set1_epi8(0x0f))}; }
inline Bytes high_nibbles(Bytes x) {
    return {_mm256_and_si256(_mm256_srli_epi16(x.groups, 4), _mm256_set1_epi8(0x0f))};
}

// Rows that a tile has: as many as its sums, four vectors each, leave registers for beside the weights; with two
// registers a sum some are spilled, which costs less than reading the weights once a row.
constexpr int kTileRows = 2;
constexpr int kGroupTileRows = 2;

#if defined(__AVXVNNI__)
struct Inputs {
    __m256i four;
};
inline Inputs broadcast_inputs(const int8_t* four) {
    return {_mm256_set1_epi32(word_at(four))};
}
// Not the intrinsic: g++ 12 copies sums from register to register around it.
inline Ints dot(Ints sum, Bytes weights, Inputs inputs) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.lanes) : "x"(weights.groups), "x"(inputs.four));
    return sum;
}
#else
// Two products of 16-bit halves: bytes multiplied in pairs as they stand would saturate.
struct Inputs {
    __m256i even, odd;
};
inline Inputs broadcast_inputs(const int8_t* four) {
    const __m256i bytes = _mm256_set1_epi32(word_at(four));
    return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
}
inline Ints dot(Ints sum, Bytes weights, Inputs inputs) {
    const __m256i even = _mm256_and_si256(weights.groups, _mm256_set1_epi16(0x00ff));
    const __m256i odd = _mm256_srli_epi16(weights.groups, 8);
    const __m256i first = _mm256_add_epi32(sum.lanes, _mm256_madd_epi16(even, inputs.even));
    return {_mm256_add_epi32(first, _mm256_madd_epi16(odd, inputs.odd))};
}
#endif

}  // namespace penstock
