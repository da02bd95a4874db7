// From the scores of one row to its weights: maximum, exponentials, sum.
//
// Vectors of keys go in ascending order from absolute positions, and lanes that the row doesn't see give zeros, so that
// nothing depends on what other rows of the tile see.
#pragma once
#include "attention_fold.hpp"
#include "attention_formats.hpp"
#include "attention_products.hpp"

namespace penstock {

constexpr float kMostWeight = 65535.0f;

// What the integers of a split are to be multiplied by, key by key, and what is to be added.
struct SplitScales {
    alignas(64) float keys[kSplit], key_minima[kSplit], values[kSplit], value_minima[kSplit];
};

// One row of a tile: a query head of a token.
struct Row {
    int64_t token;
    int64_t head;
    Sight sight;
    int64_t first, end;   // the keys of the split at hand that it sees
    float query_scale;    // of its integers
    float query_total;    // sum of its integers
    float maximum, sum;   // of the split at hand
    float weight_scale;   // of its integer weights
    float minimum_share;  // Σ weight × minimum, where values have one
    Running running;
    FoldFactors factors;  // of the split at hand
    bool sees() const { return first < end; }
};

// The score of a vector of keys, from what the product left.
template <class Format>
inline Vec scores_at(const Row& row, const float* scores, int64_t key, const SplitScales& scales) {
    if constexpr (kIsInteger<Format>) {
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
inline void find_maximum(Row& row, float* scores, int64_t begin, int64_t end, const SplitScales& scales, float cap) {
    Vec most = broadcast(kLowest);
    for (int64_t key = begin; key < end; key += kLanes) {
        Vec score = scores_at<Format>(row, scores, key, scales);
        if constexpr (kIsCapped) score = tanh(score) * broadcast(cap);
        if (!sees_all(row, key)) score = within(score, broadcast(kLowest), row.first - key, row.end - key);
        if (kIsInteger<Format> || kIsCapped || !sees_all(row, key)) store(scores + key, score);
        most = maximum(score, most);
    }
    row.maximum = largest(most);
}

// Weights with the values' own scales in them.
template <class Format>
inline void weigh_values(Row& row, float* scores, int64_t begin, int64_t end, const SplitScales& scales) {
    Vec sums = zero(), minima = zero(), largest_weight = zero(), poison = zero();
    for (int64_t key = begin; key < end; key += kLanes) {
        const Vec weight = exp2(load(scores + key) - broadcast(row.maximum));
        sums = sums + weight;
        // Scales of keys that nobody sees may be NaN.
        const auto seen = [&](Vec x) {
            return sees_all(row, key) ? x : within(x, zero(), row.first - key, row.end - key);
        };
        const Vec scaled = seen(weight * load(scales.values + key));
        if constexpr (kHasMinimum<Format>) minima = minima + seen(weight * load(scales.value_minima + key));
        store(scores + key, scaled);
        largest_weight = maximum(scaled, largest_weight);
        poison = fma(scaled, zero(), poison);  // NaN where a value was not finite
    }
    row.sum = sum(sums);
    row.weight_scale = largest(largest_weight) / kMostWeight + sum(poison);
    row.minimum_share = sum(minima);
}

inline void quantize_weights(const Row& row, const float* scores, uint8_t* weights, int64_t begin, int64_t end) {
    const Vec inverse = broadcast(row.weight_scale > 0 ? 1.0f / row.weight_scale : 0.0f);
    for (int64_t key = begin; key < end; key += kLanes)
        store_planes(weights + key, weights + kWeightStride + key,
                     minimum(load(scores + key) * inverse, broadcast(kMostWeight)));
}

// From a row's scores to its weights; zeros for keys that only other rows see. `cap` is in powers of two; 0: none.
template <class Format>
inline void weigh(Row& row, float* scores, typename Format::Number* weights, Sight seen, const SplitScales& scales,
                  float cap) {
    const int64_t last = (seen.end + kLanes - 1) / kLanes * kLanes;
    const int64_t begin = row.sees() ? row.first / kLanes * kLanes : last;
    const int64_t end = row.sees() ? (row.end + kLanes - 1) / kLanes * kLanes : last;
    if (cap > 0) find_maximum<Format, true>(row, scores, begin, end, scales, cap);
    else find_maximum<Format, false>(row, scores, begin, end, scales, cap);
    if constexpr (kIsInteger<Format>) {
        weigh_values<Format>(row, scores, begin, end, scales);
        quantize_weights(row, scores, weights, begin, end);
    } else {
        const Vec most = broadcast(row.maximum);
        Vec sums = zero();
        for (int64_t key = begin; key < end; key += kLanes) {
            const Vec weight = exp2(load(scores + key) - most);
            sums = sums + weight;
            Format::store_numbers(weights + key, weight);
        }
        row.sum = sum(sums);
    }
    for (int64_t plane = 0; plane < Format::kPlanes; ++plane, weights += kWeightStride) {
        std::fill(weights + seen.first, weights + begin, typename Format::Number{0});
        std::fill(weights + end, weights + last, typename Format::Number{0});
    }
}

}  // namespace penstock
