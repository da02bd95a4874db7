// `Quads` as two NEON registers. Included by quads.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

struct Quads {
    uint32x4_t low, high;
};

inline Quads broadcast_word(uint32_t word) { return {vdupq_n_u32(word), vdupq_n_u32(word)}; }
inline Quads zero_quads() { return broadcast_word(0); }
inline Quads load_quads(const void* from) {
    const auto* bytes = static_cast<const uint8_t*>(from);
    return {vreinterpretq_u32_u8(vld1q_u8(bytes)), vreinterpretq_u32_u8(vld1q_u8(bytes + 16))};
}
inline void store_quads(void* to, Quads x) {
    auto* bytes = static_cast<uint8_t*>(to);
    vst1q_u8(bytes, vreinterpretq_u8_u32(x.low));
    vst1q_u8(bytes + 16, vreinterpretq_u8_u32(x.high));
}
inline Quads broadcast_quad(const void* from) {
    return broadcast_word(word_at(from));
}

inline uint32x4_t dot(uint32x4_t sum, uint32x4_t u, uint32x4_t s) {
    const int8x16_t factors = vreinterpretq_s8_u32(s);
    const int32x4_t before = vreinterpretq_s32_u32(sum);
#if defined(__ARM_FEATURE_MATMUL_INT8)
    return vreinterpretq_u32_s32(vusdotq_s32(before, vreinterpretq_u8_u32(u), factors));
#else
    // Both factors have a sign here: u less 128, for which twice 64 × s makes up.
    const int8x16_t less = vreinterpretq_s8_u8(veorq_u8(vreinterpretq_u8_u32(u), vdupq_n_u8(0x80)));
    const int8x16_t half = vdupq_n_s8(64);
    return vreinterpretq_u32_s32(vdotq_s32(vdotq_s32(vdotq_s32(before, less, factors), half, factors), half, factors));
#endif
}
inline Quads dot(Quads sum, Quads u, Quads s) { return {dot(sum.low, u.low, s.low), dot(sum.high, u.high, s.high)}; }

inline Quads with_bits(Quads x, uint32_t mask) {
    return {vandq_u32(x.low, vdupq_n_u32(mask)), vandq_u32(x.high, vdupq_n_u32(mask))};
}
inline Quads low_nibbles(Quads x) { return with_bits(x, 0x0f0f0f0f); }
inline Quads high_nibbles(Quads x) { return low_nibbles(Quads{vshrq_n_u32(x.low, 4), vshrq_n_u32(x.high, 4)}); }
inline Vec bits_to_float(Quads x) { return {vreinterpretq_f32_u32(x.low), vreinterpretq_f32_u32(x.high)}; }
inline Vec first_of_pairs(Quads x) { return bits_to_float(Quads{vshlq_n_u32(x.low, 16), vshlq_n_u32(x.high, 16)}); }
inline Vec second_of_pairs(Quads x) { return bits_to_float(with_bits(x, 0xffff0000)); }
inline Quads only_first_of_pairs(Quads x) { return with_bits(x, 0xffff); }

inline Quads join_planes(Quads high, Quads low) {
    return {vaddq_u32(vshlq_n_u32(high.low, 8), low.low), vaddq_u32(vshlq_n_u32(high.high, 8), low.high)};
}
inline Quads minus(Quads x, int32_t y) {
    const uint32x4_t less = vreinterpretq_u32_s32(vdupq_n_s32(y));
    return {vsubq_u32(x.low, less), vsubq_u32(x.high, less)};
}
inline Vec to_float(Quads x) {
    return {vcvtq_f32_s32(vreinterpretq_s32_u32(x.low)), vcvtq_f32_s32(vreinterpretq_s32_u32(x.high))};
}

inline Quads whole_numbers(Vec x) {
    return {vreinterpretq_u32_s32(vcvtnq_s32_f32(x.low)), vreinterpretq_u32_s32(vcvtnq_s32_f32(x.high))};
}
// The lowest byte of each lane, eight in a row.
inline uint8x8_t low_bytes(Quads x) { return vmovn_u16(vcombine_u16(vmovn_u32(x.low), vmovn_u32(x.high))); }
inline void store_planes(uint8_t* high, uint8_t* low, Vec x) {
    const Quads whole = whole_numbers(x);
    vst1_u8(low, low_bytes(whole));
    vst1_u8(high, low_bytes(Quads{vshrq_n_u32(whole.low, 8), vshrq_n_u32(whole.high, 8)}));
}
inline void store_signed_bytes(int8_t* to, Vec x) { vst1_s8(to, vreinterpret_s8_u8(low_bytes(whole_numbers(x)))); }

inline void store_sums(float* to, const Vec (&x)[4]) {
    const auto pairs = [](Vec a, Vec b) {
        const float32x4_t of_a = vaddq_f32(a.low, a.high), of_b = vaddq_f32(b.low, b.high);
        return vaddq_f32(vcombine_f32(vget_low_f32(of_a), vget_low_f32(of_b)),
                         vcombine_f32(vget_high_f32(of_a), vget_high_f32(of_b)));
    };
    vst1q_f32(to, vpaddq_f32(pairs(x[0], x[1]), pairs(x[2], x[3])));
}

inline Vec swap_neighbours(Vec x) { return {vrev64q_f32(x.low), vrev64q_f32(x.high)}; }
inline Vec within(Vec x, Vec y, int64_t first, int64_t end) {
    static constexpr int32_t kNumbers[] = {0, 1, 2, 3};
    const auto bound = [](int64_t at) { return vdupq_n_s32(static_cast<int32_t>(std::clamp<int64_t>(at, 0, Vec::kLanes))); };
    const auto chosen = [&](int32x4_t lane, float32x4_t then, float32x4_t otherwise) {
        return vbslq_f32(vandq_u32(vcgeq_s32(lane, bound(first)), vcltq_s32(lane, bound(end))), then, otherwise);
    };
    const int32x4_t lane = vld1q_s32(kNumbers);
    return {chosen(lane, x.low, y.low), chosen(vaddq_s32(lane, vdupq_n_s32(4)), x.high, y.high)};
}

}  // namespace penstock
