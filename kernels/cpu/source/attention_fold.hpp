// How what the splits of a context gave is put together: in ascending order, by the same operations wherever it
// happens.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention.hpp"
#include "vector.hpp"

namespace penstock {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Scores are in powers of two, for the query's scale takes in what turns e^x into that. A maximum is rounded up to a
// multiple of 8: sums rarely meet a higher one, and then a product with 2^-8 or 2^-16 or … loses nothing.
constexpr float kMaximumStep = 8.0f;
inline float rounded_maximum(float score) { return std::ceil(score / kMaximumStep) * kMaximumStep; }

// 2^(x - most) for x up to `most`, a whole number, to 2 units in the last place: 0 below 2^-126 (and for -inf), NaN for
// NaN. Denormal numbers would cost some processors a hundred cycles each. Digits do not depend on `most`.
constexpr float kLog2OfE = 1.44269504088896341f;

inline Vec exp2_below(Vec x, Vec most) {
    const Vec least = most - broadcast(126.0f);
    const Vec within_range = maximum(least, x);
    const Vec power = round_to_even(within_range);
    const Vec rest = within_range - power;
    Vec series = broadcast(1.535336188319500e-4f);
    series = fma(series, rest, broadcast(1.339887440266574e-3f));
    series = fma(series, rest, broadcast(9.618437357674640e-3f));
    series = fma(series, rest, broadcast(5.550332471162809e-2f));
    series = fma(series, rest, broadcast(2.402264791363012e-1f));
    series = fma(series, rest, broadcast(6.931472028550421e-1f));
    return where_greater(least, x, zero(), times_power_of_two(fma(series, rest, broadcast(1.0f)), power - most));
}

inline float exp2_below(float x, float most) {
    float lanes[kLanes];
    store(lanes, exp2_below(broadcast(x), broadcast(most)));
    return lanes[0];
}

// What earlier splits' sums are multiplied by, and a split's own.
struct FoldFactors {
    float kept, added;
    // Lanes of all splits so far.
    Vec fold(Vec totals, Vec part) const { return fma(part, broadcast(added), totals * broadcast(kept)); }
};

// What the splits so far gave for one row: Σ 2^(score - maximum), beside it the same sum over values. Factors are exact.
struct Running {
    float maximum = kLowest;
    float sum = 0;

    // Takes in a split's maximum and sum; its values are folded with what this returns.
    FoldFactors take_in(float part_maximum, float part_sum) {
        const bool is_higher = part_maximum > maximum;  // not if it is NaN, which the sums then show
        const float highest = is_higher ? part_maximum : maximum;
        const float kept = is_higher ? exp2_below(maximum, part_maximum) : 1.0f;
        const float added = is_higher ? 1.0f : exp2_below(part_maximum, maximum);
        maximum = highest;
        sum = std::fma(part_sum, added, sum * kept);
        return {kept, added};
    }

    void fold(float* totals, const float* part, float part_maximum, float part_sum, int64_t value_dim) {
        const FoldFactors factors = take_in(part_maximum, part_sum);
        for (int64_t i = 0; i < value_dim; i += kLanes)
            store(totals + i, factors.fold(load(totals + i), load(part + i)));
    }

    void finish(float* output, const float* totals, int64_t value_dim) const {
        const Vec share = broadcast(1.0f / sum);
        for (int64_t i = 0; i < value_dim; i += kLanes) store(output + i, load(totals + i) * share);
    }
};

// What turns a query's products with keys into scores, or where those are capped, into what the cap takes.
inline float query_factor(const Attention& a) {
    return a.softcap > 0 ? a.scale / a.softcap : a.scale * kLog2OfE;
}

inline int64_t num_query_heads(const Attention& a) { return a.plan->num_heads * a.plan->num_shared; }

// What splits are folded into at first.
inline Running beginning_of(const Attention& a, int64_t head) {
    Running running;
    if (a.sinks) {
        running.maximum = rounded_maximum(a.sinks[head] * kLog2OfE);
        running.sum = exp2_below(a.sinks[head] * kLog2OfE, running.maximum);
    }
    return running;
}

inline float* part_of(const Attention& a, int64_t token, int64_t head, int64_t split) {
    return a.parts + ((a.plan->parts[token] + split) * num_query_heads(a) + head) * (a.kv.value_dim + 2);
}
inline float* output_of(const Attention& a, int64_t token, int64_t head) {
    return a.output + (token * num_query_heads(a) + head) * a.kv.value_dim;
}

}  // namespace penstock
