// The instructions of AVX-512 that the kernels use, made of AVX2's and of plain loops, for processors that lack them.
//
// Included before a source of the kernels, it gives each intrinsic another meaning: `_mm512_add_ps` is
// `emulated::add_ps`. What AVX2 has goes through the two halves of a register, so its bits are a processor's; the rest
// are loops over lanes.
#pragma once
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>

namespace emulated {

// A register as lanes of another type, and back.
template <class Lane, class Register>
struct LanesOf {
    Lane of[sizeof(Register) / sizeof(Lane)];
    explicit LanesOf(Register x) { std::memcpy(of, &x, sizeof x); }
};
template <class Register>
inline Register load(const void* from) {
    Register x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
template <class Lane>
using Lanes = LanesOf<Lane, __m512i>;
using Floats = LanesOf<float, __m512>;

inline __m512 join(__m256 low, __m256 high) { return load<__m512>(std::array{low, high}.data()); }
inline __m512i join(__m256i low, __m256i high) { return load<__m512i>(std::array{low, high}.data()); }
inline __m256 half(__m512 x, int which) { return LanesOf<__m256, __m512>(x).of[which]; }
inline __m256i half(__m512i x, int which) { return LanesOf<__m256i, __m512i>(x).of[which]; }

// --- both halves alike ------------------------------------------------------------------------------------------------

#define OF_ONE(name, type, half_of_result)                                       \
    inline type name(type a) {                                                   \
        const auto part = [&](int which) {                                       \
            const auto x = half(a, which);                                       \
            return half_of_result;                                               \
        };                                                                       \
        return join(part(0), part(1));                                           \
    }
#define OF_TWO(name, type, instruction)                                          \
    inline type name(type a, type b) {                                           \
        return join(instruction(half(a, 0), half(b, 0)), instruction(half(a, 1), half(b, 1))); \
    }
#define SHIFT(name, instruction)                                                 \
    inline __m512i name(__m512i a, int bits) { return join(instruction(half(a, 0), bits), instruction(half(a, 1), bits)); }

OF_TWO(add_ps, __m512, _mm256_add_ps)
OF_TWO(sub_ps, __m512, _mm256_sub_ps)
OF_TWO(mul_ps, __m512, _mm256_mul_ps)
OF_TWO(div_ps, __m512, _mm256_div_ps)
OF_TWO(min_ps, __m512, _mm256_min_ps)
OF_TWO(max_ps, __m512, _mm256_max_ps)
OF_ONE(abs_ps, __m512, _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff))))
OF_ONE(rounded, __m512, _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
OF_TWO(add_epi32, __m512i, _mm256_add_epi32)
OF_TWO(sub_epi32, __m512i, _mm256_sub_epi32)
OF_TWO(mullo_epi32, __m512i, _mm256_mullo_epi32)
OF_TWO(max_epi32, __m512i, _mm256_max_epi32)
OF_TWO(add_epi16, __m512i, _mm256_add_epi16)
OF_TWO(sub_epi16, __m512i, _mm256_sub_epi16)
OF_TWO(mullo_epi16, __m512i, _mm256_mullo_epi16)
OF_TWO(sub_epi8, __m512i, _mm256_sub_epi8)
OF_TWO(max_epi8, __m512i, _mm256_max_epi8)
OF_TWO(and_si512, __m512i, _mm256_and_si256)
OF_TWO(or_si512, __m512i, _mm256_or_si256)
OF_TWO(xor_si512, __m512i, _mm256_xor_si256)
OF_TWO(madd_epi16, __m512i, _mm256_madd_epi16)
OF_TWO(maddubs_epi16, __m512i, _mm256_maddubs_epi16)
OF_TWO(shuffle_epi8, __m512i, _mm256_shuffle_epi8)
OF_ONE(abs_epi8, __m512i, _mm256_abs_epi8(x))
SHIFT(slli_epi32, _mm256_slli_epi32)
SHIFT(srli_epi32, _mm256_srli_epi32)
SHIFT(srai_epi32, _mm256_srai_epi32)
SHIFT(slli_epi16, _mm256_slli_epi16)
SHIFT(srli_epi16, _mm256_srli_epi16)
SHIFT(srai_epi16, _mm256_srai_epi16)
#undef OF_ONE
#undef OF_TWO
#undef SHIFT

inline __m512 fmadd_ps(__m512 a, __m512 b, __m512 c) {
    return join(_mm256_fmadd_ps(half(a, 0), half(b, 0), half(c, 0)), _mm256_fmadd_ps(half(a, 1), half(b, 1), half(c, 1)));
}
inline __m512 roundscale_ps(__m512 x, int) { return rounded(x); }

// --- one number in all lanes, memory, and other types of the same bits -----------------------------------------------

inline __m512 set1_ps(float x) { return join(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
inline __m512i set1_epi32(int x) { return join(_mm256_set1_epi32(x), _mm256_set1_epi32(x)); }
inline __m512i set1_epi16(short x) { return join(_mm256_set1_epi16(x), _mm256_set1_epi16(x)); }
inline __m512i set1_epi8(char x) { return join(_mm256_set1_epi8(x), _mm256_set1_epi8(x)); }
inline __m512 setzero_ps() { return set1_ps(0); }
inline __m512i setzero_si512() { return set1_epi32(0); }
template <class... Lane>
inline __m512i setr_epi32(Lane... lanes) {
    const int all[16] = {lanes...};
    return load<__m512i>(all);
}
inline __m512i broadcast_i32x4(__m128i x) { return join(_mm256_set_m128i(x, x), _mm256_set_m128i(x, x)); }
inline __m512 loadu_ps(const void* from) { return load<__m512>(from); }
inline __m512i loadu_si512(const void* from) { return load<__m512i>(from); }
inline void storeu_ps(void* to, __m512 x) { std::memcpy(to, &x, sizeof x); }
inline void storeu_si512(void* to, __m512i x) { std::memcpy(to, &x, sizeof x); }
inline __m512 castsi512_ps(__m512i x) { return load<__m512>(&x); }
inline __m512i castps_si512(__m512 x) { return load<__m512i>(&x); }
inline __m128 castps512_ps128(__m512 x) { return load<__m128>(&x); }
inline __m256 castps512_ps256(__m512 x) { return half(x, 0); }
inline __m256 extractf32x8_ps(__m512 x, int which) { return half(x, which); }

// --- other widths -----------------------------------------------------------------------------------------------------

#define WIDER(name, result, source, instruction)                                 \
    inline result name(source x) {                                               \
        const LanesOf<__m128i, source> quarters(x);                              \
        return join(instruction(quarters.of[0]), instruction(quarters.of[1]));   \
    }
WIDER(cvtph_ps, __m512, __m256i, _mm256_cvtph_ps)
WIDER(cvtepi16_epi32, __m512i, __m256i, _mm256_cvtepi16_epi32)
WIDER(cvtepu16_epi32, __m512i, __m256i, _mm256_cvtepu16_epi32)
WIDER(cvtepi8_epi16, __m512i, __m256i, _mm256_cvtepi8_epi16)
#undef WIDER

inline __m512 cvtepi32_ps(__m512i x) { return join(_mm256_cvtepi32_ps(half(x, 0)), _mm256_cvtepi32_ps(half(x, 1))); }
inline __m512i cvtps_epi32(__m512 x) { return join(_mm256_cvtps_epi32(half(x, 0)), _mm256_cvtps_epi32(half(x, 1))); }
inline __m256i cvtps_ph(__m512 x, int) {
    return _mm256_set_m128i(_mm256_cvtps_ph(half(x, 1), 0), _mm256_cvtps_ph(half(x, 0), 0));
}
inline __m512i cvtepu8_epi32(__m128i x) {
    const LanesOf<uint8_t, __m128i> narrow(x);
    int wide[16];
    for (int lane = 0; lane < 16; ++lane) wide[lane] = narrow.of[lane];
    return load<__m512i>(wide);
}
template <class Lane, class Register>
inline Register narrowed(__m512i x) {
    const Lanes<int> wide(x);
    Lane narrow[16];
    for (int lane = 0; lane < 16; ++lane) narrow[lane] = static_cast<Lane>(wide.of[lane]);
    return load<Register>(narrow);
}
inline __m128i cvtepi32_epi8(__m512i x) { return narrowed<int8_t, __m128i>(x); }
inline __m256i cvtepi32_epi16(__m512i x) { return narrowed<int16_t, __m256i>(x); }
inline __m128i cvtsepi32_epi8(__m512i x) {
    Lanes<int> wide(x);
    for (int& lane : wide.of) lane = std::clamp(lane, -128, 127);
    return cvtepi32_epi8(load<__m512i>(wide.of));
}

// --- masks ------------------------------------------------------------------------------------------------------------

// Lanes of `then` where the mask has a bit, else of `otherwise`.
template <class Lane, class Register>
inline Register blended(uint64_t mask, Register otherwise, Register then) {
    LanesOf<Lane, Register> result(otherwise);
    const LanesOf<Lane, Register> chosen(then);
    for (size_t lane = 0; lane < sizeof(Register) / sizeof(Lane); ++lane)
        if (mask >> lane & 1) result.of[lane] = chosen.of[lane];
    return load<Register>(result.of);
}
inline __m512 mask_blend_ps(__mmask16 mask, __m512 a, __m512 b) { return blended<float>(mask, a, b); }
inline __m512i mask_blend_epi16(__mmask32 mask, __m512i a, __m512i b) { return blended<int16_t>(mask, a, b); }
inline __m512i mask_mov_epi32(__m512i a, __mmask16 mask, __m512i b) { return blended<int>(mask, a, b); }
inline __m512i mask_sub_epi8(__m512i otherwise, __mmask64 mask, __m512i a, __m512i b) {
    return blended<int8_t>(mask, otherwise, sub_epi8(a, b));
}
inline __mmask64 movepi8_mask(__m512i x) {
    const auto bits = [&](int which) { return static_cast<uint32_t>(_mm256_movemask_epi8(half(x, which))); };
    return bits(0) | static_cast<uint64_t>(bits(1)) << 32;
}
// Memory beyond the mask is neither read nor written.
inline __m512 maskz_loadu_ps(__mmask16 mask, const void* from) {
    float lanes[16] = {};
    for (int lane = 0; lane < 16; ++lane)
        if (mask >> lane & 1) lanes[lane] = static_cast<const float*>(from)[lane];
    return load<__m512>(lanes);
}
inline void mask_storeu_ps(void* to, __mmask16 mask, __m512 x) {
    const Floats lanes(x);
    for (int lane = 0; lane < 16; ++lane)
        if (mask >> lane & 1) static_cast<float*>(to)[lane] = lanes.of[lane];
}
inline __mmask16 cmp_ps_mask(__m512 a, __m512 b, int comparison) {
    const Floats x(a), y(b);
    unsigned mask = 0;
    for (int lane = 0; lane < 16; ++lane) {
        const float left = x.of[lane], right = y.of[lane];
        const bool holds = comparison == _CMP_GT_OQ   ? left > right
                           : comparison == _CMP_GE_OQ ? left >= right
                                                      : std::isnan(left) || std::isnan(right);  // _CMP_UNORD_Q
        mask |= static_cast<unsigned>(holds) << lane;
    }
    return static_cast<__mmask16>(mask);
}
inline __mmask16 mask_cmp_ps_mask(__mmask16 mask, __m512 a, __m512 b, int comparison) {
    return mask & cmp_ps_mask(a, b, comparison);
}
template <class Lane, class Register>
inline Register compressed(__mmask16 mask, Register x) {
    const LanesOf<Lane, Register> lanes(x);
    Lane kept[16] = {};
    int count = 0;
    for (int lane = 0; lane < 16; ++lane)
        if (mask >> lane & 1) kept[count++] = lanes.of[lane];
    return load<Register>(kept);
}
inline __m512 maskz_compress_ps(__mmask16 mask, __m512 x) { return compressed<float>(mask, x); }
inline __m512i maskz_compress_epi32(__mmask16 mask, __m512i x) { return compressed<int>(mask, x); }

// --- lanes that change places, and what goes through all of them ------------------------------------------------------

inline __m512 permute_ps(__m512 x, int order) {
    const Floats lanes(x);
    float result[16];
    for (int lane = 0; lane < 16; ++lane) result[lane] = lanes.of[lane / 4 * 4 + (order >> 2 * (lane % 4) & 3)];
    return load<__m512>(result);
}
inline __m512 shuffle_f32x4(__m512 a, __m512 b, int order) {
    const LanesOf<__m128, __m512> first(a), second(b);
    __m128 result[4];
    for (int quarter = 0; quarter < 4; ++quarter)
        result[quarter] = (quarter < 2 ? first : second).of[order >> 2 * quarter & 3];
    return load<__m512>(result);
}
inline __m512i shuffle_epi32(__m512i x, int order) { return castps_si512(permute_ps(castsi512_ps(x), order)); }
inline __m512i shuffle_i64x2(__m512i a, __m512i b, int order) {
    return castps_si512(shuffle_f32x4(castsi512_ps(a), castsi512_ps(b), order));
}
inline int reduce_add_epi32(__m512i x) {
    const Lanes<unsigned> lanes(x);
    return static_cast<int>(std::accumulate(lanes.of, lanes.of + 16, 0u));
}
inline int reduce_max_epi32(__m512i x) {
    const Lanes<int> lanes(x);
    return *std::max_element(lanes.of, lanes.of + 16);
}
inline float reduce_max_ps(__m512 x) {
    Floats lanes(x);
    for (int width = 8; width; width /= 2)
        for (int lane = 0; lane < width; ++lane)
            lanes.of[lane] = lanes.of[lane] > lanes.of[lane + width] ? lanes.of[lane] : lanes.of[lane + width];
    return lanes.of[0];
}
inline __m512 scalef_ps(__m512 x, __m512 power) {
    Floats lanes(x);
    const Floats powers(power);
    for (int lane = 0; lane < 16; ++lane) {
        const float exponent = std::fmin(std::fmax(std::floor(powers.of[lane]), -400.0f), 400.0f);
        const bool is_nan = std::isnan(powers.of[lane]);
        lanes.of[lane] = is_nan ? NAN : static_cast<float>(std::ldexp(1.0 * lanes.of[lane], static_cast<int>(exponent)));
    }
    return load<__m512>(lanes.of);
}

// --- VNNI and bfloat16, whose units take denormal numbers for zeros ---------------------------------------------------

inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
inline float from_bf16(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    return flushed(load<float>(&wide));
}
inline uint16_t to_bf16(float x) {
    x = flushed(x);
    const uint32_t bits = load<uint32_t>(&x);
    return static_cast<uint16_t>(std::isnan(x) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline __m256bh cvtneps_pbh(__m512 x) {
    const Floats lanes(x);
    uint16_t rounded[16];
    for (int lane = 0; lane < 16; ++lane) rounded[lane] = to_bf16(lanes.of[lane]);
    return load<__m256bh>(rounded);
}
template <class Pairs>
inline __m512 dpbf16_ps(__m512 sum, Pairs a, Pairs b) {
    Floats sums(sum);
    const LanesOf<uint16_t, Pairs> x(a), y(b);
    for (int lane = 0; lane < 16; ++lane)
        for (int part : {2 * lane + 1, 2 * lane})
            sums.of[lane] = flushed(std::fma(from_bf16(x.of[part]), from_bf16(y.of[part]), flushed(sums.of[lane])));
    return load<__m512>(sums.of);
}
// Unsigned bytes by signed ones.
inline __m512i dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
    Lanes<int> sums(sum);
    const Lanes<uint8_t> x(a);
    const Lanes<int8_t> y(b);
    for (int byte = 0; byte < 64; ++byte) sums.of[byte / 4] += x.of[byte] * y.of[byte];
    return load<__m512i>(sums.of);
}
inline __m512i dpwssd_epi32(__m512i sum, __m512i a, __m512i b) { return add_epi32(sum, madd_epi16(a, b)); }

}  // namespace emulated
