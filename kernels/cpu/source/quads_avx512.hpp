// `Quads` as one AVX-512 register. Included by quads.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

struct Quads {
    __m512i lanes;
};

inline Quads zero_quads() { return {_mm512_setzero_si512()}; }
inline Quads load_quads(const void* from) { return {_mm512_loadu_si512(from)}; }
inline void store_quads(void* to, Quads x) { _mm512_storeu_si512(to, x.lanes); }
inline Quads broadcast_quad(const void* from) {
    return {_mm512_set1_epi32(word_at(from))};
}

#if defined(__AVX512VNNI__)
inline Quads dot(Quads sum, Quads u, Quads s) {
    // Not the intrinsic: g++ 12 copies sums from register to register around it, at half the speed.
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.lanes) : "v"(u.lanes), "v"(s.lanes));
    return sum;
}
#else
#define PENSTOCK_MULTIPLIES_PAIRS
// Bytes 0 and 2 of each lane as 16-bit numbers, and bytes 1 and 3.
inline Quads even_bytes(Quads x) { return {_mm512_and_si512(x.lanes, _mm512_set1_epi16(0xff))}; }
inline Quads odd_bytes(Quads x) { return {_mm512_srli_epi16(x.lanes, 8)}; }
inline Quads even_signed_bytes(Quads x) { return {_mm512_srai_epi16(_mm512_slli_epi16(x.lanes, 8), 8)}; }
inline Quads odd_signed_bytes(Quads x) { return {_mm512_srai_epi16(x.lanes, 8)}; }
inline Quads dot_pairs(Quads sum, Quads a, Quads b) {
    return {_mm512_add_epi32(sum.lanes, _mm512_madd_epi16(a.lanes, b.lanes))};
}
inline void store_pairs(int16_t* to, Vec x) {
    const __m512i whole = _mm512_shuffle_epi32(_mm512_cvtps_epi32(x.lanes), static_cast<_MM_PERM_ENUM>(0xd8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(whole));
}
#endif
#if defined(__AVX512BF16__)
inline Vec dot_bf16(Vec sum, Quads a, Quads b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.lanes) : "v"(a.lanes), "v"(b.lanes));
    return sum;
}
#endif

#if defined(__AVX512BF16__)
inline Quads join_firsts(Quads a, Quads b) {
    return {_mm512_mask_blend_epi16(0xaaaaaaaa, a.lanes, _mm512_slli_epi32(b.lanes, 16))};
}
inline Quads join_seconds(Quads a, Quads b) {
    return {_mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a.lanes, 16), b.lanes)};
}
#endif

inline Quads low_nibbles(Quads x) { return {_mm512_and_si512(x.lanes, _mm512_set1_epi8(15))}; }
inline Quads high_nibbles(Quads x) { return low_nibbles(Quads{_mm512_srli_epi16(x.lanes, 4)}); }
inline Vec first_of_pairs(Quads x) { return {_mm512_castsi512_ps(_mm512_slli_epi32(x.lanes, 16))}; }
inline Vec second_of_pairs(Quads x) {
    return {_mm512_castsi512_ps(_mm512_and_si512(x.lanes, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000))))};
}
inline Quads only_first_of_pairs(Quads x) { return {_mm512_and_si512(x.lanes, _mm512_set1_epi32(0xffff))}; }

inline Quads join_planes(Quads high, Quads low) {
    return {_mm512_add_epi32(_mm512_slli_epi32(high.lanes, 8), low.lanes)};
}
inline Quads minus(Quads x, int32_t y) { return {_mm512_sub_epi32(x.lanes, _mm512_set1_epi32(y))}; }
inline Vec to_float(Quads x) { return {_mm512_cvtepi32_ps(x.lanes)}; }

inline void store_planes(uint8_t* high, uint8_t* low, Vec x) {
    const __m512i whole = _mm512_cvtps_epi32(x.lanes);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm512_cvtepi32_epi8(whole));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm512_cvtepi32_epi8(_mm512_srli_epi32(whole, 8)));
}
inline void store_signed_bytes(int8_t* to, Vec x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x.lanes)));
}

inline void store_sums(float* to, const Vec (&x)[4]) {
    const auto halves = [](Vec a, Vec b) {
        return _mm512_add_ps(_mm512_shuffle_f32x4(a.lanes, b.lanes, 0x44), _mm512_shuffle_f32x4(a.lanes, b.lanes, 0xee));
    };
    const __m512 first = halves(x[0], x[1]), last = halves(x[2], x[3]);
    // Four lanes each of the four.
    __m512 sums = _mm512_add_ps(_mm512_shuffle_f32x4(first, last, 0x88), _mm512_shuffle_f32x4(first, last, 0xdd));
    sums = _mm512_add_ps(sums, _mm512_permute_ps(sums, 0x4e));
    sums = _mm512_add_ps(sums, _mm512_permute_ps(sums, 0xb1));
    _mm_storeu_ps(to, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, sums)));
}

inline Vec swap_neighbours(Vec x) { return {_mm512_permute_ps(x.lanes, 0xb1)}; }
inline Vec within(Vec x, Vec y, int64_t first, int64_t end) {
    const uint32_t kept = first_lanes(std::clamp<int64_t>(end, 0, Vec::kLanes)) &
                          ~first_lanes(std::clamp<int64_t>(first, 0, Vec::kLanes));
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(kept), y.lanes, x.lanes)};
}

}  // namespace penstock
