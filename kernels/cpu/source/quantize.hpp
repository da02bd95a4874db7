// Rows of activations as 8-bit integers: x ≈ scale × value, one scale a row, or one for each group of neighbours.
//
//   scale = max|x| / 127        value = round(x × (127 / max|x|)), to even
//
// Values are signed, weights and keys that meet them unsigned; what the offset adds is taken off again by the sums
// kept here. A row's values depend on that row alone. What has one scale and holds an infinity or a NaN gets the scale
// NaN, so that what is computed from it is seen to be wrong; with nothing above kSmallest it counts as zeros.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "partials.hpp"

namespace penstock {

constexpr int64_t kSumWidth = 32;  // a sum is kept for so many neighbouring values
constexpr int64_t kHalvedWidth = 16;  // the same of rows in groups, where a sum is in two halves (partials.hpp)
constexpr int64_t kRowAlign = 64;  // rows are filled up with zeros to a multiple of this
constexpr float kSmallest = 1e-30f;

inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

struct Quantized {
    int8_t* values;        // [rows, width], in [-127, 127]; null where nobody wants them
    float* scales;         // [rows], or [rows, groups]
    int32_t* totals;       // [rows]: sum of the row's values; without groups
    int32_t* sums;         // [rows, width / kSumWidth]: sums of neighbours; with groups [rows, width / kHalvedWidth] in halves
    int64_t width;         // the row's length, rounded up to kRowAlign
    const int32_t* order;  // null, or: value i comes from x[order[i]], as the weight's inputs were reordered
    int64_t num_ordered;   // values in that order
    int64_t group;         // neighbours that share a scale, a multiple of kSumWidth; 0: all of a row

    int64_t scales_per_row() const { return group ? (width + group - 1) / group : 1; }
    int64_t sums_per_row() const { return width / (group ? kHalvedWidth : kSumWidth); }
};

// max|x|; NaN or infinite if any of x is: as integers, the bits of both lie above those of every number.
inline float largest_magnitude(const float* x, int64_t count) {
    Ints most = zero_ints();
    over_lanes(count, [&](int64_t i, auto lanes) { most = maximum(most, magnitude_bits(load(x + i, lanes))); });
    const int32_t bits = largest(most);
    float magnitude;
    std::memcpy(&magnitude, &bits, sizeof magnitude);
    return magnitude;
}

// kSumWidth values of a row, fetched as `at(index, lanes)` says; returns their sum.
template <class Fetch>
inline int32_t quantize_neighbours(int8_t* values, int64_t start, int64_t count, float inverse, const Fetch& at) {
    Ints sums = zero_ints();
    for (int64_t i = start; i < start + kSumWidth; i += kLanes) {
        Vec x = zero();
        if (i + kLanes <= count) {
            x = at(i, AllLanes{});
        } else if (i < count) {
            x = at(i, FirstLanes{count - i});
        }
        const Ints rounded = round_to_int(x * broadcast(inverse));
        store_int8(values + i, rounded);
        sums = sums + rounded;
    }
    return sum(sums);
}

template <class Fetch>
inline int32_t quantize_values(const Quantized& to, int64_t row, int64_t count, float inverse, const Fetch& at) {
    int8_t* values = to.values + row * to.width;
    int32_t* sums = to.sums + row * (to.width / kSumWidth);
    int32_t total = 0;
    for (int64_t start = 0; start < to.width; start += kSumWidth) {
        const int32_t sum = quantize_neighbours(values, start, count, inverse, at);
        sums[start / kSumWidth] = sum;
        total += sum;
    }
    return total;
}

// One group of a row in groups, of which x has so many numbers.
inline void quantize_group(const float* x, int64_t count, int8_t* values, int64_t width, float& scale, int32_t* sums) {
    const float magnitude = largest_magnitude(x, count);
    const bool is_finite = magnitude <= std::numeric_limits<float>::max();
    if (!is_finite || magnitude < kSmallest) {
        scale = is_finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
        std::memset(values, 0, width);
        std::memset(sums, 0, width / kHalvedWidth * sizeof *sums);
        return;
    }
    const Vec inverse = broadcast(127.0f / magnitude);
    scale = magnitude / 127.0f;
    over_lanes(count, [&](int64_t i, auto lanes) { store_int8(values + i, round_to_int(load(x + i, lanes) * inverse)); });
    for (int64_t i = round_up(count, kLanes); i < width; ++i) values[i] = 0;
    for (int64_t i = 0; i < width; i += kHalvedWidth) sums[i / kHalvedWidth] = sum_in_halves(values + i);
}

inline void quantize_groups(const float* x, int64_t count, const Quantized& to, int64_t row) {
    const int64_t num_scales = to.scales_per_row();
    int8_t* values = to.values + row * to.width;
    int32_t* sums = to.sums + row * to.sums_per_row();
    for (int64_t group = 0, start = 0; group < num_scales; ++group, start += to.group) {
        const int64_t width = std::min(to.group, to.width - start), left = std::max<int64_t>(0, count - start);
        quantize_group(x + start, std::min(width, left), values + start, width, to.scales[row * num_scales + group],
                       sums + start / kHalvedWidth);
    }
}

inline void quantize_row(const float* x, int64_t count, const Quantized& to, int64_t row) {
    if (to.group) return quantize_groups(x, count, to, row);
    const float magnitude = largest_magnitude(x, count);
    const bool is_finite = magnitude <= std::numeric_limits<float>::max();
    if (!is_finite || magnitude < kSmallest) {
        to.scales[row] = is_finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
        to.totals[row] = 0;
        std::memset(to.values + row * to.width, 0, to.width);
        std::memset(to.sums + row * (to.width / kSumWidth), 0, to.width / kSumWidth * sizeof(int32_t));
        return;
    }
    const float inverse = 127.0f / magnitude;
    to.scales[row] = magnitude / 127.0f;
    if (!to.order) {
        to.totals[row] = quantize_values(to, row, count, inverse, [&](int64_t i, auto lanes) {
            return load(x + i, lanes);
        });
        return;
    }
    to.totals[row] = quantize_values(to, row, to.num_ordered, inverse, [&](int64_t i, auto lanes) {
        float gathered[kLanes] = {};
        for (int64_t j = 0; j < kLanes && i + j < to.num_ordered; ++j) gathered[j] = x[to.order[i + j]];
        return load(gathered, lanes);
    });
}

}  // namespace penstock
