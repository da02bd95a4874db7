// `Ints` as two NEON registers. Included by integers.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

struct Ints {
    int32x4_t low, high;
};
struct Bytes {
    uint8x16_t low, high;
};

inline Ints broadcast_int(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
inline Ints zero_ints() { return broadcast_int(0); }
inline Ints widened(int16x8_t x) { return {vmovl_s16(vget_low_s16(x)), vmovl_s16(vget_high_s16(x))}; }
inline Ints load_int16(const int16_t* from) { return widened(vld1q_s16(from)); }
inline Ints load_uint8(const uint8_t* from) { return widened(vreinterpretq_s16_u16(vmovl_u8(vld1_u8(from)))); }
inline Ints add(Ints a, Ints b) { return {vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)}; }
inline Ints subtract(Ints a, Ints b) { return {vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high)}; }
inline Ints multiply(Ints a, Ints b) { return {vmulq_s32(a.low, b.low), vmulq_s32(a.high, b.high)}; }
inline Ints shift_left(Ints x, int bits) {
    return {vshlq_s32(x.low, vdupq_n_s32(bits)), vshlq_s32(x.high, vdupq_n_s32(bits))};
}
inline Ints maximum(Ints a, Ints b) { return {vmaxq_s32(a.low, b.low), vmaxq_s32(a.high, b.high)}; }
inline int32_t sum(Ints x) { return vaddvq_s32(vaddq_s32(x.low, x.high)); }
inline int32_t largest(Ints x) { return vmaxvq_s32(vmaxq_s32(x.low, x.high)); }

inline Vec to_float(Ints x) { return {vcvtq_f32_s32(x.low), vcvtq_f32_s32(x.high)}; }
inline Vec bits_to_float(Ints x) { return {vreinterpretq_f32_s32(x.low), vreinterpretq_f32_s32(x.high)}; }
inline Ints round_to_int(Vec x) { return {vcvtnq_s32_f32(x.low), vcvtnq_s32_f32(x.high)}; }
inline Ints magnitude_bits(Vec x) {
    return {vreinterpretq_s32_f32(vabsq_f32(x.low)), vreinterpretq_s32_f32(vabsq_f32(x.high))};
}
inline void store(int32_t* to, Ints x) {
    vst1q_s32(to, x.low);
    vst1q_s32(to + 4, x.high);
}
inline void store_int8(int8_t* to, Ints x) {
    vst1_s8(to, vqmovn_s16(vcombine_s16(vqmovn_s32(x.low), vqmovn_s32(x.high))));
}

inline Bytes load_bytes(const uint8_t* from) { return {vld1q_u8(from), vld1q_u8(from + 16)}; }
inline void store_bytes(uint8_t* to, Bytes x) {
    vst1q_u8(to, x.low);
    vst1q_u8(to + 16, x.high);
}
inline Bytes load_table(const void* from) {
    const uint8x16_t table = vld1q_u8(static_cast<const uint8_t*>(from));
    return {table, table};
}
inline Bytes look_up(Bytes table, Bytes nibbles) {
    return {vqtbl1q_u8(table.low, nibbles.low), vqtbl1q_u8(table.high, nibbles.high)};
}
inline Bytes low_nibbles(Bytes x) {
    return {vandq_u8(x.low, vdupq_n_u8(0x0f)), vandq_u8(x.high, vdupq_n_u8(0x0f))};
}
inline Bytes high_nibbles(Bytes x) { return {vshrq_n_u8(x.low, 4), vshrq_n_u8(x.high, 4)}; }

// Rows that a tile has: as many as its sums, eight registers each, leave registers for beside the weights.
constexpr int kTileRows = 2;
constexpr int kGroupTileRows = 2;

#if defined(__ARM_FEATURE_MATMUL_INT8)
struct Inputs {
    int8x16_t four;
};
inline Inputs broadcast_inputs(const int8_t* four) {
    return {vreinterpretq_s8_s32(vdupq_n_s32(word_at(four)))};
}
inline Ints dot(Ints sum, Bytes weights, Inputs inputs) {
    return {vusdotq_s32(sum.low, weights.low, inputs.four), vusdotq_s32(sum.high, weights.high, inputs.four)};
}
#else
// Both factors have a sign here: weights less 128, for which 128 × Σ inputs makes up.
struct Inputs {
    int8x16_t four;
    int32x4_t made_up;
};
inline Inputs broadcast_inputs(const int8_t* four) {
    const int32_t made_up = 128 * (four[0] + four[1] + four[2] + four[3]);
    return {vreinterpretq_s8_s32(vdupq_n_s32(word_at(four))), vdupq_n_s32(made_up)};
}
inline int32x4_t dot(int32x4_t sum, uint8x16_t weights, const Inputs& inputs) {
    const int8x16_t less = vreinterpretq_s8_u8(veorq_u8(weights, vdupq_n_u8(0x80)));
    return vdotq_s32(vaddq_s32(sum, inputs.made_up), less, inputs.four);
}
inline Ints dot(Ints sum, Bytes weights, Inputs inputs) {
    return {dot(sum.low, weights.low, inputs), dot(sum.high, weights.high, inputs)};
}
#endif

}  // namespace penstock
