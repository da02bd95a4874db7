// From the scores of one row to its weights, stretch by stretch: maximum, exponentials, sum.
//
// Vectors of keys go in ascending order from absolute positions, and lanes that the row doesn't see give zeros, so that
// nothing depends on what other rows of the tile see. Sums have sixteen lanes whatever a vector's width.
#pragma once
#include <limits>

#include "attention_fold.hpp"
#include "attention_formats.hpp"
#include "attention_products.hpp"

namespace penstock {

// Products of whole weights with the values of a stretch add up to less than 2^31.
constexpr float kMostWeight = 32767.0f;

// What the integers of a stretch are to be multiplied by, key by key, and what is to be added.
struct StretchScales {
    alignas(64) float keys[kStretch], key_minima[kStretch], values[kStretch], value_minima[kStretch];
    // Of latents `values` are the scales of both, and `keys` those of the rotated keys behind them.
};

// One row of a tile: a query head of a token.
struct Row {
    int64_t token;
    int64_t head;
    Sight sight;
    int64_t first, end;   // the keys of the stretch at hand that it sees
    float query_scale;    // of its integers
    float query_total;    // sum of its integers
    // Of latents in bytes: the same of what meets the rotated key, and the products with it.
    float rotated_scale, rotated_total;
    const float* rotated_scores;
    float maximum, sum;   // of the split so far
    float weight_scale;   // of its integer weights
    float minimum_share;  // Σ weight × minimum, where values have one
    Running running;
    bool sees() const { return first < end; }
    // Whether it sees anything of the split.
    bool sees(int64_t split) const { return sight.first < split_begin(split + 1) && sight.end > split_begin(split); }
};

// The score of a vector of keys, from what the product left.
template <class Format>
inline Vec scores_at(const Row& row, const float* scores, int64_t key, const StretchScales& scales) {
    if constexpr (kIsLatentBytes<Format>) {
        const auto part = [&](const float* whole, float total, const float* scale, float query_scale) {
            const Vec products = to_float(load_quads(whole + key));
            return fma(broadcast(total), broadcast(-1.0f * Format::kKeyZero), products) * load(scale + key) *
                   broadcast(query_scale);
        };
        return part(scores, row.query_total, scales.values, row.query_scale) +
               part(row.rotated_scores, row.rotated_total, scales.keys, row.rotated_scale);
    } else if constexpr (kIsInteger<Format>) {
        const Vec products = to_float(load_quads(scores + key));
        const Vec offset = broadcast(row.query_total);
        const Vec scale = load(scales.keys + key);
        if constexpr (kHasMinimum<Format>)
            return fma(products, scale, load(scales.key_minima + key) * offset) * broadcast(row.query_scale);
        return fma(offset, broadcast(-1.0f * Format::kKeyZero), products) * scale * broadcast(row.query_scale);
    } else {
        return load(scores + key);
    }
}

inline bool sees_all(const Row& row, int64_t key) { return row.first <= key && key + kLanes <= row.end; }

// Leaves scores that the row doesn't see at -inf.
template <class Format, bool kIsCapped>
inline float find_maximum(const Row& row, float* scores, Sight keys, const StretchScales& scales, float cap) {
    Vec most = broadcast(kLowest);
    for (int64_t key = keys.first; key < keys.end; key += kLanes) {
        Vec score = scores_at<Format>(row, scores, key, scales);
        if constexpr (kIsCapped) score = tanh(score) * broadcast(cap);
        if (!sees_all(row, key)) score = within(score, broadcast(kLowest), row.first - key, row.end - key);
        if (kIsInteger<Format> || kIsCapped || !sees_all(row, key)) store(scores + key, score);
        most = maximum(score, most);
    }
    return largest(most);
}

// Sums so far are those of weights beside a maximum that may be too low now; NaN is none, which the sums then show.
inline void raise_maximum(Row& row, float highest, float* sums, int64_t value_dim) {
    const float rounded = rounded_maximum(highest);
    if (!(rounded > row.maximum)) return;
    if (row.maximum == kLowest && row.sum == 0) {  // all sums are zeros yet
        row.maximum = rounded;
        return;
    }
    const float kept = exp2_below(row.maximum, rounded);
    row.maximum = rounded;
    row.sum *= kept;
    for (int64_t i = 0; i < value_dim; i += kLanes) store(sums + i, load(sums + i) * broadcast(kept));
}

// Calls body(key, part) for each vector of keys: the part of a `WideSum` that it belongs to.
template <class Body>
inline void over_keys(Sight keys, const Body& body) {
    for (int64_t key = keys.first; key < keys.end; key += WideSum::kWidth)
        for (int64_t part = 0; part < WideSum::kParts; ++part) body(key + part * kLanes, part);
}

// Weights with the values' own scales in them.
template <class Format>
inline void weigh_values(Row& row, float* scores, Sight keys, const StretchScales& scales) {
    WideSum sums, minima;
    Vec largest_weight = zero(), poison = zero();
    const Vec most = broadcast(row.maximum);
    over_keys(keys, [&](int64_t key, int64_t part) {
        const Vec weight = exp2_below(load(scores + key), most);
        sums.parts[part] = sums.parts[part] + weight;
        // Scales of keys that nobody sees may be NaN.
        const auto seen = [&](Vec x) {
            return sees_all(row, key) ? x : within(x, zero(), row.first - key, row.end - key);
        };
        const Vec scaled = seen(weight * load(scales.values + key));
        if constexpr (kHasMinimum<Format>)
            minima.parts[part] = minima.parts[part] + seen(weight * load(scales.value_minima + key));
        store(scores + key, scaled);
        largest_weight = maximum(scaled, largest_weight);
        poison = fma(scaled, zero(), poison);  // NaN where a value was not finite
    });
    row.sum += sums.total();
    row.weight_scale = largest(largest_weight) / kMostWeight + sum(poison);
    row.minimum_share = minima.total();
}

template <class Format>
inline void quantize_weights(const Row& row, const float* scores, typename Format::Number* weights, Sight keys) {
    // Of a smaller scale the inverse may be infinite, and its weights are too small to tell from 0.
    const bool has_inverse = row.weight_scale >= std::numeric_limits<float>::min();
    const Vec inverse = broadcast(has_inverse ? 1.0f / row.weight_scale : 0.0f);
    for (int64_t key = keys.first; key < keys.end; key += kLanes)
        Format::store_weights(weights + key, minimum(load(scores + key) * inverse, broadcast(kMostWeight)));
}

template <class Format>
inline void weigh_keys(Row& row, float* scores, typename Format::Number* weights, Sight keys,
                       const StretchScales& scales) {
    if constexpr (kIsInteger<Format>) {
        weigh_values<Format>(row, scores, keys, scales);
        quantize_weights<Format>(row, scores, weights, keys);
    } else {
        WideSum sums;
        const Vec most = broadcast(row.maximum);
        over_keys(keys, [&](int64_t key, int64_t part) {
            const Vec weight = exp2_below(load(scores + key), most);
            sums.parts[part] = sums.parts[part] + weight;
            Format::store_numbers(weights + key, weight);
        });
        row.sum += sums.total();
    }
}

// The vectors of keys that a row sees, in whole sums.
inline Sight keys_of(const Row& row) {
    constexpr int64_t kWidth = WideSum::kWidth;
    return {row.first / kWidth * kWidth, (row.end + kWidth - 1) / kWidth * kWidth};
}

// Takes a row's scores into its maximum. `sums` are the split's so far, `cap` is in powers of two; 0: none.
template <class Format>
inline void take_maximum(Row& row, float* scores, const StretchScales& scales, float cap, float* sums, int64_t value_dim) {
    if (!row.sees()) return;
    const float highest = cap > 0 ? find_maximum<Format, true>(row, scores, keys_of(row), scales, cap)
                                  : find_maximum<Format, false>(row, scores, keys_of(row), scales, cap);
    raise_maximum(row, highest, sums, value_dim);
}

// From a row's scores to its weights, which may take their place; zeros for keys that only other rows see.
template <class Format>
inline void weigh(Row& row, float* scores, typename Format::Number* weights, Sight seen, const StretchScales& scales) {
    const int64_t last = (seen.end + WideSum::kWidth - 1) / WideSum::kWidth * WideSum::kWidth;
    const Sight keys = row.sees() ? keys_of(row) : Sight{last, last};
    if (row.sees()) weigh_keys<Format>(row, scores, weights, keys, scales);
    for (int64_t plane = 0; plane < Format::kPlanes; ++plane, weights += kRowStride) {
        std::fill(weights + seen.first, weights + keys.first, typename Format::Number{0});
        std::fill(weights + keys.end, weights + last, typename Format::Number{0});
    }
}

}  // namespace penstock
