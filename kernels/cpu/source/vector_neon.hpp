// `Vec` as two NEON registers. Included by vector.hpp alone, which says what the functions mean.
//
// Sums are added in the order of vector_avx2.hpp.
#pragma once

namespace penstock {

struct Vec {
    static constexpr int64_t kLanes = 8;
    float32x4_t low, high;
};

inline Vec broadcast(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
inline Vec zero() { return broadcast(0.0f); }
inline Vec load(const float* from) { return {vld1q_f32(from), vld1q_f32(from + 4)}; }
inline void store(float* to, Vec x) {
    vst1q_f32(to, x.low);
    vst1q_f32(to + 4, x.high);
}
inline Vec load_first(const float* from, int64_t count) {
    float values[Vec::kLanes] = {};
    std::memcpy(values, from, count * sizeof(float));
    return load(values);
}
inline void store_first(float* to, Vec x, int64_t count) {
    float values[Vec::kLanes];
    store(values, x);
    std::memcpy(to, values, count * sizeof(float));
}

inline Vec load_bf16(const uint16_t* from) {
    const uint16x8_t halves = vld1q_u16(from);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 16)),
            vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(halves), 16))};
}
inline Vec load_fp16(const uint16_t* from) {
    const uint16x8_t halves = vld1q_u16(from);
    return {vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves))),
            vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(halves)))};
}
inline uint16x4_t rounded_to_bf16(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t is_odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(vaddq_u32(bits, is_odd), vdupq_n_u32(0x7fff));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), up, quiet), 16);
}
inline void store_bf16(uint16_t* to, Vec x) {
    vst1q_u16(to, vcombine_u16(rounded_to_bf16(x.low), rounded_to_bf16(x.high)));
}
inline void store_fp16(uint16_t* to, Vec x) {
    vst1q_u16(to, vcombine_u16(vreinterpret_u16_f16(vcvt_f16_f32(x.low)), vreinterpret_u16_f16(vcvt_f16_f32(x.high))));
}

// Lanes of two neighbouring bf16 numbers, and these as float32.
struct Bf16Pairs {
    uint32x4_t low, high;
};
inline Bf16Pairs load_pairs(const uint16_t* from) {
    return {vreinterpretq_u32_u16(vld1q_u16(from)), vreinterpretq_u32_u16(vld1q_u16(from + 8))};
}
inline Vec firsts(Bf16Pairs pairs) {
    return {vreinterpretq_f32_u32(vshlq_n_u32(pairs.low, 16)), vreinterpretq_f32_u32(vshlq_n_u32(pairs.high, 16))};
}
inline Vec seconds(Bf16Pairs pairs) {
    const uint32x4_t high = vdupq_n_u32(0xffff0000);
    return {vreinterpretq_f32_u32(vandq_u32(pairs.low, high)), vreinterpretq_f32_u32(vandq_u32(pairs.high, high))};
}

inline Vec add(Vec a, Vec b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
inline Vec subtract(Vec a, Vec b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
inline Vec multiply(Vec a, Vec b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
inline Vec divide(Vec a, Vec b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)}; }  // a × b + c
inline Vec where_greater(Vec a, Vec b, Vec then, Vec otherwise) {  // lanes of `then` where a > b
    return {vbslq_f32(vcgtq_f32(a.low, b.low), then.low, otherwise.low),
            vbslq_f32(vcgtq_f32(a.high, b.high), then.high, otherwise.high)};
}
// Not vminq and vmaxq, which give NaN whichever argument is NaN.
inline Vec minimum(Vec a, Vec b) { return where_greater(b, a, a, b); }
inline Vec maximum(Vec a, Vec b) { return where_greater(a, b, a, b); }
inline Vec absolute(Vec x) { return {vabsq_f32(x.low), vabsq_f32(x.high)}; }
inline Vec round_to_even(Vec x) { return {vrndnq_f32(x.low), vrndnq_f32(x.high)}; }

// In two steps, for 2^power itself may be too small or too large for a float32; only the second can round.
inline float32x4_t times_power_of_two(float32x4_t x, float32x4_t power) {
    const int32x4_t whole = vcvtnq_s32_f32(power), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    const int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
    return vmulq_f32(vmulq_f32(x, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
}
inline Vec times_power_of_two(Vec x, Vec power) {
    return {times_power_of_two(x.low, power.low), times_power_of_two(x.high, power.high)};
}

inline float sum(Vec x) {
    const float32x4_t four = vaddq_f32(x.low, x.high);
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float largest(Vec x) { return vmaxnmvq_f32(vmaxnmq_f32(x.low, x.high)); }

}  // namespace penstock
