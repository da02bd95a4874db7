// What wide partial sums need, on NEON registers. Included by partials.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

inline Ints load_int8_pairs(const int8_t* from) {
    const int8x16_t pairs = vld1q_s8(from);
    return {vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(pairs))), vreinterpretq_s32_s16(vmovl_s8(vget_high_s8(pairs)))};
}
inline Ints high_halves(Ints x) { return {vshrq_n_s32(x.low, 16), vshrq_n_s32(x.high, 16)}; }
inline Ints add_pair_products(Ints sum, Ints pairs, int32_t word) {
    const Ints first = high_halves(shift_left(pairs, 16)), second = high_halves(pairs);
    const int32_t low = static_cast<int16_t>(word), high = word >> 16;
    return {vmlaq_n_s32(vmlaq_n_s32(sum.low, first.low, low), second.low, high),
            vmlaq_n_s32(vmlaq_n_s32(sum.high, first.high, low), second.high, high)};
}

template <int kLeft>
inline Bytes shifted(Bytes x) {
    return {vshlq_u8(x.low, vdupq_n_s8(kLeft)), vshlq_u8(x.high, vdupq_n_s8(kLeft))};
}
inline Bytes keep_bits(Bytes x, int mask) {
    const uint8x16_t kept = vdupq_n_u8(static_cast<uint8_t>(mask));
    return {vandq_u8(x.low, kept), vandq_u8(x.high, kept)};
}
inline Bytes join_bits(Bytes a, Bytes b) { return {vorrq_u8(a.low, b.low), vorrq_u8(a.high, b.high)}; }
inline Bytes flip_bits(Bytes x, int mask) {
    const uint8x16_t flipped = vdupq_n_u8(static_cast<uint8_t>(mask));
    return {veorq_u8(x.low, flipped), veorq_u8(x.high, flipped)};
}

}  // namespace penstock
