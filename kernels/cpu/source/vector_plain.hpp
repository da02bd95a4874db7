// `Vec` as an array that the compiler may make registers of. Included by vector.hpp alone, which says what it means.
#pragma once

namespace penstock {

struct Vec {
    static constexpr int64_t kLanes = 8;
    float lanes[kLanes];
};

template <class Function>
inline Vec each_lane(const Function& function) {
    Vec result;
    for (int64_t lane = 0; lane < Vec::kLanes; ++lane) result.lanes[lane] = function(lane);
    return result;
}

inline float float_from_bf16(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

inline float float_from_fp16(uint16_t bits) {
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 1023;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp(1.0f * fraction, -24));
}

inline uint16_t fp16_from_float(float value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (value != value) return sign | 0x7e00;
    const float size = std::fabs(value);
    if (size >= 65520.0f) return sign | 0x7c00;
    if (size < 6.103515625e-5f) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));
    int exponent;
    const float fraction = std::frexp(size, &exponent);  // in [0.5, 1)
    const int rounded = static_cast<int>(std::nearbyint(std::ldexp(fraction, 11)));  // in [1024, 2048]
    return sign | static_cast<uint16_t>(((exponent + 14) << 10) + rounded - 1024);
}

inline Vec broadcast(float x) {
    return each_lane([&](int64_t) { return x; });
}
inline Vec zero() { return broadcast(0.0f); }
inline Vec load_first(const float* from, int64_t count) {
    return each_lane([&](int64_t lane) { return lane < count ? from[lane] : 0.0f; });
}
inline Vec load(const float* from) { return load_first(from, Vec::kLanes); }
inline void store_first(float* to, Vec x, int64_t count) { std::memcpy(to, x.lanes, count * sizeof(float)); }
inline void store(float* to, Vec x) { store_first(to, x, Vec::kLanes); }
inline Vec load_bf16(const uint16_t* from) {
    return each_lane([&](int64_t lane) { return float_from_bf16(from[lane]); });
}
inline Vec load_fp16(const uint16_t* from) {
    return each_lane([&](int64_t lane) { return float_from_fp16(from[lane]); });
}
inline void store_bf16(uint16_t* to, Vec x) {
    for (int64_t lane = 0; lane < Vec::kLanes; ++lane) to[lane] = bf16_from_float(x.lanes[lane]);
}
inline void store_fp16(uint16_t* to, Vec x) {
    for (int64_t lane = 0; lane < Vec::kLanes; ++lane) to[lane] = fp16_from_float(x.lanes[lane]);
}

// Lanes of two neighbouring bf16 numbers, and these as float32.
struct Bf16Pairs {
    uint16_t lanes[2 * Vec::kLanes];
};
inline Bf16Pairs load_pairs(const uint16_t* from) {
    Bf16Pairs pairs;
    std::memcpy(pairs.lanes, from, sizeof pairs.lanes);
    return pairs;
}
inline Vec firsts(const Bf16Pairs& pairs) {
    return each_lane([&](int64_t lane) { return float_from_bf16(pairs.lanes[2 * lane]); });
}
inline Vec seconds(const Bf16Pairs& pairs) {
    return each_lane([&](int64_t lane) { return float_from_bf16(pairs.lanes[2 * lane + 1]); });
}

inline Vec add(Vec a, Vec b) {
    return each_lane([&](int64_t lane) { return a.lanes[lane] + b.lanes[lane]; });
}
inline Vec subtract(Vec a, Vec b) {
    return each_lane([&](int64_t lane) { return a.lanes[lane] - b.lanes[lane]; });
}
inline Vec multiply(Vec a, Vec b) {
    return each_lane([&](int64_t lane) { return a.lanes[lane] * b.lanes[lane]; });
}
inline Vec divide(Vec a, Vec b) {
    return each_lane([&](int64_t lane) { return a.lanes[lane] / b.lanes[lane]; });
}
inline Vec fma(Vec a, Vec b, Vec c) {  // a × b + c
    return each_lane([&](int64_t lane) { return std::fma(a.lanes[lane], b.lanes[lane], c.lanes[lane]); });
}
inline Vec minimum(Vec a, Vec b) {
    return each_lane([&](int64_t lane) { return a.lanes[lane] < b.lanes[lane] ? a.lanes[lane] : b.lanes[lane]; });
}
inline Vec maximum(Vec a, Vec b) {
    return each_lane([&](int64_t lane) { return a.lanes[lane] > b.lanes[lane] ? a.lanes[lane] : b.lanes[lane]; });
}
inline Vec absolute(Vec x) {
    return each_lane([&](int64_t lane) { return std::fabs(x.lanes[lane]); });
}
inline Vec where_greater(Vec a, Vec b, Vec then, Vec otherwise) {  // lanes of `then` where a > b
    return each_lane([&](int64_t lane) { return (a.lanes[lane] > b.lanes[lane] ? then : otherwise).lanes[lane]; });
}
inline Vec round_to_even(Vec x) {
    return each_lane([&](int64_t lane) { return std::nearbyint(x.lanes[lane]); });
}
inline Vec times_power_of_two(Vec x, Vec power) {
    return each_lane([&](int64_t lane) {
        const float exponent = power.lanes[lane];  // NaN, where x is NaN too, is no exponent
        return std::ldexp(x.lanes[lane], exponent == exponent ? static_cast<int>(exponent) : 0);
    });
}

inline float sum(Vec x) {
    for (int64_t half = Vec::kLanes / 2; half > 0; half /= 2)
        for (int64_t lane = 0; lane < half; ++lane) x.lanes[lane] += x.lanes[lane + half];
    return x.lanes[0];
}
inline float largest(Vec x) {
    float result = x.lanes[0];
    for (float lane : x.lanes) result = lane > result ? lane : result;
    return result;
}

}  // namespace penstock
