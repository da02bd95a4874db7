// `Vec` as one AVX-512 register. Included by vector.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

struct Vec {
    static constexpr int64_t kLanes = 16;
    __m512 lanes;
};

inline Vec zero() { return {_mm512_setzero_ps()}; }
inline Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Vec load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, Vec x) { _mm512_storeu_ps(to, x.lanes); }

inline __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
inline Vec load_first(const float* from, int64_t count) { return {_mm512_maskz_loadu_ps(first_lanes(count), from)}; }
inline void store_first(float* to, Vec x, int64_t count) { _mm512_mask_storeu_ps(to, first_lanes(count), x.lanes); }

inline Vec load_bf16(const uint16_t* from) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline Vec load_fp16(const uint16_t* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
inline void store_bf16(uint16_t* to, Vec x) {
    __m256i rounded;
#if defined(__AVX512BF16__)
    rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.lanes));
#else
    const __m512i bits = _mm512_castps_si512(x.lanes);
    const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, is_odd), _mm512_set1_epi32(0x7fff));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x.lanes, x.lanes, _CMP_UNORD_Q);
    rounded = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(up, is_nan, quiet), 16));
#endif
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
}
inline void store_fp16(uint16_t* to, Vec x) {
    const __m256i rounded = _mm512_cvtps_ph(x.lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
}

// Lanes of two neighbouring bf16 numbers, and these as float32.
struct Bf16Pairs {
    __m512i lanes;
};
inline Bf16Pairs load_pairs(const uint16_t* from) { return {_mm512_loadu_si512(from)}; }
inline Vec firsts(Bf16Pairs pairs) { return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs.lanes, 16))}; }
inline Vec seconds(Bf16Pairs pairs) {
    const __m512i high = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
    return {_mm512_castsi512_ps(_mm512_and_si512(pairs.lanes, high))};
}

inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.lanes, b.lanes)}; }
inline Vec subtract(Vec a, Vec b) { return {_mm512_sub_ps(a.lanes, b.lanes)}; }
inline Vec multiply(Vec a, Vec b) { return {_mm512_mul_ps(a.lanes, b.lanes)}; }
inline Vec divide(Vec a, Vec b) { return {_mm512_div_ps(a.lanes, b.lanes)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.lanes, b.lanes, c.lanes)}; }  // a × b + c
inline Vec minimum(Vec a, Vec b) { return {_mm512_min_ps(a.lanes, b.lanes)}; }
inline Vec maximum(Vec a, Vec b) { return {_mm512_max_ps(a.lanes, b.lanes)}; }
inline Vec absolute(Vec x) { return {_mm512_abs_ps(x.lanes)}; }
inline Vec where_greater(Vec a, Vec b, Vec then, Vec otherwise) {  // lanes of `then` where a > b
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.lanes, b.lanes, _CMP_GT_OQ), otherwise.lanes, then.lanes)};
}
inline Vec round_to_even(Vec x) {
    return {_mm512_roundscale_ps(x.lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Vec times_power_of_two(Vec x, Vec power) { return {_mm512_scalef_ps(x.lanes, power.lanes)}; }

inline float sum(Vec x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.lanes), _mm512_extractf32x8_ps(x.lanes, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(Vec x) { return _mm512_reduce_max_ps(x.lanes); }

}  // namespace penstock
