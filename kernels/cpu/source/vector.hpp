// Lanes of float32: what the kernels' loops are written in, once for every instruction set.
//
// `Vec` is 16 floats with AVX-512, else 8: a register with AVX2, two with NEON, a plain array elsewhere. Every lane gets the same
// operations whether a vector is full or a row's tail, and sums run in one fixed order, so a row's bits depend neither
// on where it lies nor on its company. Products and sums are never fused unless `fma` is written.
// `over_lanes(count, body)` calls body(index, lanes) for each vector of a row; pass `lanes` on to `load` and `store`:
//
//     over_lanes(width, [&](int64_t i, auto lanes) { store(y + i, load(x + i, lanes) * scale, lanes); });
//
// `sum_over_lanes(count, body)` adds up a row in 16 lanes whatever a vector's width, so that every instruction set gets the
// same bits; body(index, lanes, sum) gives the sum with its vector added:
//
//     sum_over_lanes(width, [&](int64_t i, auto lanes, Vec sum) { return sum + load(x + i, lanes); });
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace penstock {

// The nearest one. `store_bf16` makes denormal numbers zeros where AVX512-BF16 does it in one instruction.
inline uint16_t bf16_from_float(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace penstock

#if defined(__AVX512F__)
#include "vector_avx512.hpp"
#elif defined(__AVX2__)
#include "vector_avx2.hpp"
#elif defined(__ARM_NEON)
#include "vector_neon.hpp"
#else
#include "vector_plain.hpp"
#endif

namespace penstock {

constexpr int64_t kLanes = Vec::kLanes;

// Four bytes as one word, wherever they lie.
inline int32_t word_at(const void* from) {
    int32_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

inline Vec operator+(Vec a, Vec b) { return add(a, b); }
inline Vec operator-(Vec a, Vec b) { return subtract(a, b); }
inline Vec operator*(Vec a, Vec b) { return multiply(a, b); }
inline Vec operator/(Vec a, Vec b) { return divide(a, b); }

// Lanes that are the tail of a row: loads give zeros beyond them, stores leave alone what lies there.
struct FirstLanes {
    int64_t count;  // in [1, kLanes)
};
struct AllLanes {};

inline Vec load(const float* from, AllLanes) { return load(from); }
inline Vec load_bf16(const uint16_t* from, AllLanes) { return load_bf16(from); }
inline Vec load_fp16(const uint16_t* from, AllLanes) { return load_fp16(from); }
inline void store(float* to, Vec x, AllLanes) { store(to, x); }
inline Vec load(const float* from, FirstLanes lanes) { return load_first(from, lanes.count); }
inline void store(float* to, Vec x, FirstLanes lanes) { store_first(to, x, lanes.count); }

inline Vec load_bf16(const uint16_t* from, FirstLanes lanes) {
    uint16_t values[kLanes] = {};
    std::memcpy(values, from, lanes.count * sizeof(uint16_t));
    return load_bf16(values);
}

inline Vec load_fp16(const uint16_t* from, FirstLanes lanes) {
    uint16_t values[kLanes] = {};
    std::memcpy(values, from, lanes.count * sizeof(uint16_t));
    return load_fp16(values);
}

inline void store_bf16(uint16_t* to, Vec x, AllLanes) { store_bf16(to, x); }
inline void store_fp16(uint16_t* to, Vec x, AllLanes) { store_fp16(to, x); }

inline void store_bf16(uint16_t* to, Vec x, FirstLanes lanes) {
    uint16_t values[kLanes];
    store_bf16(values, x);
    std::memcpy(to, values, lanes.count * sizeof(uint16_t));
}

inline void store_fp16(uint16_t* to, Vec x, FirstLanes lanes) {
    uint16_t values[kLanes];
    store_fp16(values, x);
    std::memcpy(to, values, lanes.count * sizeof(uint16_t));
}

template <class Body>
inline void over_lanes(int64_t count, const Body& body) {
    int64_t index = 0;
    for (; index + kLanes <= count; index += kLanes) body(index, AllLanes{});
    if (index < count) body(index, FirstLanes{count - index});
}

// Sums in 16 lanes: number i of a row goes to lane i % 16, and so its vector to part i / kLanes % kParts.
struct WideSum {
    static constexpr int64_t kWidth = 16, kParts = kWidth / kLanes;
    Vec parts[kParts];

    WideSum() {
        for (Vec& part : parts) part = zero();
    }
    // Lanes i and i + 8 first, then those 4, 2 and 1 apart.
    float total() const {
        if constexpr (kParts == 1) return sum(parts[0]);
        else return sum(parts[0] + parts[1]);
    }
};

template <class Body>
inline float sum_over_lanes(int64_t count, const Body& body) {
    WideSum sums;
    int64_t index = 0;
    for (; index + WideSum::kWidth <= count; index += WideSum::kWidth)
        for (int64_t part = 0; part < WideSum::kParts; ++part)
            sums.parts[part] = body(index + part * kLanes, AllLanes{}, sums.parts[part]);
    over_lanes(count - index, [&](int64_t i, auto lanes) {
        Vec& part = sums.parts[i / kLanes];
        part = body(index + i, lanes, part);
    });
    return sums.total();
}

inline float sum_of(const float* x, int64_t count) {
    return sum_over_lanes(count, [&](int64_t i, auto lanes, Vec sum) { return sum + load(x + i, lanes); });
}

inline float sum_of_squares(const float* x, int64_t count) {
    return sum_over_lanes(count, [&](int64_t i, auto lanes, Vec sum) {
        const Vec value = load(x + i, lanes);
        return fma(value, value, sum);
    });
}

// e^x to 2 units in the last place: 0 from -104 down (and for -inf), inf from 88.73 up, NaN for NaN.
inline Vec exp(Vec x) {
    // The limits come first: a minimum or maximum with NaN gives its second argument.
    const Vec within = minimum(broadcast(89.0f), maximum(broadcast(-104.0f), x));
    const Vec power = round_to_even(within * broadcast(1.44269504088896341f));
    Vec rest = fma(power, broadcast(-0.693359375f), within);
    rest = fma(power, broadcast(2.12194440e-4f), rest);
    Vec series = broadcast(1.9875691500e-4f);
    series = fma(series, rest, broadcast(1.3981999507e-3f));
    series = fma(series, rest, broadcast(8.3334519073e-3f));
    series = fma(series, rest, broadcast(4.1665795894e-2f));
    series = fma(series, rest, broadcast(1.6666665459e-1f));
    series = fma(series, rest, broadcast(5.0000001201e-1f));
    const Vec fraction = fma(series, rest * rest, rest) + broadcast(1.0f);
    return times_power_of_two(fraction, power);
}

// tanh x to 3 units in the last place: ±1 from 9 on, NaN for NaN.
inline Vec tanh(Vec x) {
    const Vec square = x * x, one = broadcast(1.0f);
    Vec series = broadcast(-5.7170428e-3f);
    series = fma(series, square, broadcast(2.0650586e-2f));
    series = fma(series, square, broadcast(-5.3743497e-2f));
    series = fma(series, square, broadcast(1.3331491e-1f));
    series = fma(series, square, broadcast(-3.3333284e-1f));
    const Vec near = fma(series * square, x, x);
    const Vec far = one - broadcast(2.0f) / (exp(absolute(x) + absolute(x)) + one);
    const Vec signed_far = where_greater(zero(), x, zero() - far, far);
    return where_greater(absolute(x), broadcast(0.625f), signed_far, near);
}

}  // namespace penstock
