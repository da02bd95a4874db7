// `Vec` as one AVX2 register. Included by vector.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

struct Vec {
    static constexpr int64_t kLanes = 8;
    __m256 lanes;
};

inline Vec zero() { return {_mm256_setzero_ps()}; }
inline Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
inline Vec load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store(float* to, Vec x) { _mm256_storeu_ps(to, x.lanes); }

inline __m256i first_lanes(int64_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(count)), lane);
}
inline Vec load_first(const float* from, int64_t count) { return {_mm256_maskload_ps(from, first_lanes(count))}; }
inline void store_first(float* to, Vec x, int64_t count) { _mm256_maskstore_ps(to, first_lanes(count), x.lanes); }

inline Vec load_bf16(const uint16_t* from) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}
inline Vec load_fp16(const uint16_t* from) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
inline void store_bf16(uint16_t* to, Vec x) {
    const __m256i bits = _mm256_castps_si256(x.lanes);
    const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, is_odd), _mm256_set1_epi32(0x7fff));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x.lanes, x.lanes, _CMP_UNORD_Q));
    const __m256i rounded = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, is_nan), 16);
    const __m128i low = _mm256_castsi256_si128(rounded), high = _mm256_extracti128_si256(rounded, 1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packus_epi32(low, high));
}
inline void store_fp16(uint16_t* to, Vec x) {
    const __m128i rounded = _mm256_cvtps_ph(x.lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), rounded);
}

// Lanes of two neighbouring bf16 numbers, and these as float32.
struct Bf16Pairs {
    __m256i lanes;
};
inline Bf16Pairs load_pairs(const uint16_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
}
inline Vec firsts(Bf16Pairs pairs) { return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs.lanes, 16))}; }
inline Vec seconds(Bf16Pairs pairs) {
    const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000));
    return {_mm256_castsi256_ps(_mm256_and_si256(pairs.lanes, high))};
}

inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.lanes, b.lanes)}; }
inline Vec subtract(Vec a, Vec b) { return {_mm256_sub_ps(a.lanes, b.lanes)}; }
inline Vec multiply(Vec a, Vec b) { return {_mm256_mul_ps(a.lanes, b.lanes)}; }
inline Vec divide(Vec a, Vec b) { return {_mm256_div_ps(a.lanes, b.lanes)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.lanes, b.lanes, c.lanes)}; }  // a × b + c
inline Vec minimum(Vec a, Vec b) { return {_mm256_min_ps(a.lanes, b.lanes)}; }
inline Vec maximum(Vec a, Vec b) { return {_mm256_max_ps(a.lanes, b.lanes)}; }
inline Vec absolute(Vec x) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.lanes)}; }
inline Vec where_greater(Vec a, Vec b, Vec then, Vec otherwise) {  // lanes of `then` where a > b
    return {_mm256_blendv_ps(otherwise.lanes, then.lanes, _mm256_cmp_ps(a.lanes, b.lanes, _CMP_GT_OQ))};
}
inline Vec round_to_even(Vec x) { return {_mm256_round_ps(x.lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }

// In two steps, for 2^power itself may be too small or too large for a float32; only the second can round.
inline Vec times_power_of_two(Vec x, Vec power) {
    const __m256i whole = _mm256_cvtps_epi32(power.lanes);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return {_mm256_mul_ps(_mm256_mul_ps(x.lanes, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second))};
}

inline float sum(Vec x) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x.lanes), _mm256_extractf128_ps(x.lanes, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(Vec x) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x.lanes), _mm256_extractf128_ps(x.lanes, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace penstock
