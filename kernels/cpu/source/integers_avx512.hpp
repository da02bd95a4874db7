// `Ints` as one AVX-512 register. Included by integers.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

struct Ints {
    __m512i lanes;
};
struct Bytes {
    __m512i groups;
};

inline Ints zero_ints() { return {_mm512_setzero_si512()}; }
inline Ints broadcast_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Ints load_ints(const int32_t* from) { return {_mm512_loadu_si512(from)}; }
inline Ints load_int16(const int16_t* from) {
    return {_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
inline Ints load_uint8(const uint8_t* from) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
inline Ints add(Ints a, Ints b) { return {_mm512_add_epi32(a.lanes, b.lanes)}; }
inline Ints subtract(Ints a, Ints b) { return {_mm512_sub_epi32(a.lanes, b.lanes)}; }
inline Ints multiply(Ints a, Ints b) { return {_mm512_mullo_epi32(a.lanes, b.lanes)}; }
inline Ints shift_left(Ints x, int bits) { return {_mm512_slli_epi32(x.lanes, bits)}; }
inline Ints maximum(Ints a, Ints b) { return {_mm512_max_epi32(a.lanes, b.lanes)}; }
inline int32_t sum(Ints x) { return _mm512_reduce_add_epi32(x.lanes); }
inline int32_t largest(Ints x) { return _mm512_reduce_max_epi32(x.lanes); }

inline Vec to_float(Ints x) { return {_mm512_cvtepi32_ps(x.lanes)}; }
inline Vec bits_to_float(Ints x) { return {_mm512_castsi512_ps(x.lanes)}; }
inline Ints round_to_int(Vec x) { return {_mm512_cvtps_epi32(x.lanes)}; }
inline Ints magnitude_bits(Vec x) {
    return {_mm512_and_si512(_mm512_castps_si512(x.lanes), _mm512_set1_epi32(0x7fffffff))};
}
inline void store(int32_t* to, Ints x) { _mm512_storeu_si512(to, x.lanes); }
inline void store_int8(int8_t* to, Ints x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x.lanes));
}

inline Bytes load_bytes(const uint8_t* from) { return {_mm512_loadu_si512(from)}; }
inline void store_bytes(uint8_t* to, Bytes x) { _mm512_storeu_si512(to, x.groups); }
inline void store_bytes(int8_t* to, Bytes x) { _mm512_storeu_si512(to, x.groups); }
inline Bytes subtract_bytes(Bytes a, Bytes b) { return {_mm512_sub_epi8(a.groups, b.groups)}; }
// Each lane's lowest byte, four times.
inline Bytes repeat_bytes(Ints x) { return {_mm512_mullo_epi32(x.lanes, _mm512_set1_epi32(0x01010101))}; }
inline Bytes load_table(const void* from) {
    return {_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(from)))};
}
inline Bytes look_up(Bytes table, Bytes nibbles) { return {_mm512_shuffle_epi8(table.groups, nibbles.groups)}; }
inline Bytes low_nibbles(Bytes x) { return {_mm512_and_si512(x.groups, _mm512_set1_epi8(0x0f))}; }
inline Bytes high_nibbles(Bytes x) {
    return {_mm512_and_si512(_mm512_srli_epi16(x.groups, 4), _mm512_set1_epi8(0x0f))};
}

#if defined(__AVX512VNNI__)
struct Inputs {
    __m512i four;
};
inline Inputs broadcast_inputs(const int8_t* four) {
    return {_mm512_set1_epi32(word_at(four))};
}
// Not the intrinsic: g++ 12 copies sums from register to register around it, at half the speed.
inline Ints dot(Ints sum, Bytes weights, Inputs inputs) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.lanes) : "v"(weights.groups), "v"(inputs.four));
    return sum;
}
#else
// Two products of 16-bit halves: bytes multiplied in pairs as they stand would saturate.
struct Inputs {
    __m512i even, odd;
};
inline Inputs broadcast_inputs(const int8_t* four) {
    const __m512i bytes = _mm512_set1_epi32(word_at(four));
    return {_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8), _mm512_srai_epi16(bytes, 8)};
}
inline Ints dot(Ints sum, Bytes weights, Inputs inputs) {
    const __m512i even = _mm512_and_si512(weights.groups, _mm512_set1_epi16(0x00ff));
    const __m512i odd = _mm512_srli_epi16(weights.groups, 8);
    const __m512i first = _mm512_add_epi32(sum.lanes, _mm512_madd_epi16(even, inputs.even));
    return {_mm512_add_epi32(first, _mm512_madd_epi16(odd, inputs.odd))};
}
#endif

// Rows that a tile has: as many as its sums, two vectors each, leave registers for.
constexpr int kTileRows = 12;
constexpr int kGroupTileRows = 6;  // where each sum has two registers

}  // namespace penstock
