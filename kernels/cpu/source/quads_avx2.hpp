// `Quads` as one AVX2 register. Included by quads.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

struct Quads {
    __m256i lanes;
};

inline Quads zero_quads() { return {_mm256_setzero_si256()}; }
inline Quads load_quads(const void* from) { return {_mm256_loadu_si256(static_cast<const __m256i*>(from))}; }
inline void store_quads(void* to, Quads x) { _mm256_storeu_si256(static_cast<__m256i*>(to), x.lanes); }
inline Quads broadcast_quad(const void* from) {
    return {_mm256_set1_epi32(word_at(from))};
}

#if defined(__AVXVNNI__)
inline Quads dot(Quads sum, Quads u, Quads s) {
    // Not the intrinsic: g++ 12 copies sums from register to register around it.
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.lanes) : "x"(u.lanes), "x"(s.lanes));
    return sum;
}
#else
#define PENSTOCK_MULTIPLIES_PAIRS
// Bytes 0 and 2 of each lane as 16-bit numbers, and bytes 1 and 3.
inline Quads even_bytes(Quads x) { return {_mm256_and_si256(x.lanes, _mm256_set1_epi16(0xff))}; }
inline Quads odd_bytes(Quads x) { return {_mm256_srli_epi16(x.lanes, 8)}; }
inline Quads even_signed_bytes(Quads x) { return {_mm256_srai_epi16(_mm256_slli_epi16(x.lanes, 8), 8)}; }
inline Quads odd_signed_bytes(Quads x) { return {_mm256_srai_epi16(x.lanes, 8)}; }
inline Quads dot_pairs(Quads sum, Quads a, Quads b) {
    return {_mm256_add_epi32(sum.lanes, _mm256_madd_epi16(a.lanes, b.lanes))};
}
inline void store_pairs(int16_t* to, Vec x) {
    const __m256i whole = _mm256_cvtps_epi32(x.lanes);
    const __m256i chosen = _mm256_shuffle_epi8(
        whole, _mm256_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(_mm256_permute4x64_epi64(chosen, 0x08)));
}
#endif

inline Quads low_nibbles(Quads x) { return {_mm256_and_si256(x.lanes, _mm256_set1_epi8(15))}; }
inline Quads high_nibbles(Quads x) { return low_nibbles(Quads{_mm256_srli_epi16(x.lanes, 4)}); }
inline Vec first_of_pairs(Quads x) { return {_mm256_castsi256_ps(_mm256_slli_epi32(x.lanes, 16))}; }
inline Vec second_of_pairs(Quads x) {
    return {_mm256_castsi256_ps(_mm256_and_si256(x.lanes, _mm256_set1_epi32(static_cast<int>(0xffff0000))))};
}
inline Quads only_first_of_pairs(Quads x) { return {_mm256_and_si256(x.lanes, _mm256_set1_epi32(0xffff))}; }

inline Quads join_planes(Quads high, Quads low) {
    return {_mm256_add_epi32(_mm256_slli_epi32(high.lanes, 8), low.lanes)};
}
inline Quads minus(Quads x, int32_t y) { return {_mm256_sub_epi32(x.lanes, _mm256_set1_epi32(y))}; }
inline Vec to_float(Quads x) { return {_mm256_cvtepi32_ps(x.lanes)}; }

// The lowest byte of each lane, eight in a row.
inline void store_low_bytes(void* to, __m256i x) {
    const __m256i chosen = _mm256_shuffle_epi8(
        x, _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                            0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    const __m128i halves = _mm_unpacklo_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
    _mm_storel_epi64(static_cast<__m128i*>(to), halves);
}
inline void store_planes(uint8_t* high, uint8_t* low, Vec x) {
    const __m256i whole = _mm256_cvtps_epi32(x.lanes);
    store_low_bytes(low, whole);
    store_low_bytes(high, _mm256_srli_epi32(whole, 8));
}
inline void store_signed_bytes(int8_t* to, Vec x) { store_low_bytes(to, _mm256_cvtps_epi32(x.lanes)); }

inline void store_sums(float* to, const Vec (&x)[4]) {
    const auto halves = [](Vec v) {
        return _mm_add_ps(_mm256_castps256_ps128(v.lanes), _mm256_extractf128_ps(v.lanes, 1));
    };
    const auto pairs = [](__m128 a, __m128 b) { return _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a)); };
    _mm_storeu_ps(to, _mm_hadd_ps(pairs(halves(x[0]), halves(x[1])), pairs(halves(x[2]), halves(x[3]))));
}

inline Vec swap_neighbours(Vec x) { return {_mm256_permute_ps(x.lanes, 0xb1)}; }
inline Vec within(Vec x, Vec y, int64_t first, int64_t end) {
    const __m256i kept = _mm256_andnot_si256(first_lanes(std::clamp<int64_t>(first, 0, Vec::kLanes)),
                                             first_lanes(std::clamp<int64_t>(end, 0, Vec::kLanes)));
    return {_mm256_blendv_ps(y.lanes, x.lanes, _mm256_castsi256_ps(kept))};
}

}  // namespace penstock
