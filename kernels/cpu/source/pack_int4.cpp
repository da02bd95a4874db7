// Weights as 4-bit integers in groups: w ≈ scale × (q - 8), q in 0..15, one float16 scale per group and output feature.
//
// A group's scale is searched: kCandidates ways of laying its extreme onto the range -8..7, either sign, each with the
// scale that then fits best, scale = Σ w q / Σ q²; what is kept has the least Σ (w - scale × q)², which is the
// largest (Σ w q)² / Σ q². A chunk is one panel. Its rows are read a vector's lanes of them at a time, and turned over
// group by group, so that a lane is a row and no sum crosses lanes: one search serves all of them. The order of a sum
// does not depend on how many lanes there are.
#include "int4.hpp"
#include "integers.hpp"
#include "pack.hpp"
#include "quantize.hpp"
#include "unrolled.hpp"

namespace penstock {
namespace {

constexpr int kCandidates = 10;
constexpr float kLowestRange = 5.2f;  // the extreme is laid onto ± this, and on; never halfway between two levels
constexpr float kRangeStep = 0.5f;
constexpr int kStrands = 16;  // sums that run side by side, a power of two

inline Vec nearest_level(Vec x, Vec inverse) {
    return minimum(maximum(round_to_even(x * inverse), broadcast(-8.0f)), broadcast(7.0f));
}

struct Fit {
    Vec product, square;  // Σ w q, Σ q²
};

// The fit of inputs first, first + kStep, first + 2 kStep, …: the sums of every kStrands-th, added up in pairs.
template <int kStep>
PENSTOCK_INLINE inline Fit fit_of(const float* x, int64_t first, int64_t count, Vec inverse) {
    if constexpr (kStep < kStrands) {
        const Fit ahead = fit_of<2 * kStep>(x, first, count, inverse);
        const Fit behind = fit_of<2 * kStep>(x, first + kStep, count, inverse);
        return {ahead.product + behind.product, ahead.square + behind.square};
    } else {
        Fit fit{zero(), zero()};
        for (int64_t k = first; k < count; k += kStrands) {
            const Vec value = load(x + k * kLanes);
            const Vec level = nearest_level(value, inverse);
            fit.product = fma(value, level, fit.product);
            fit.square = fma(level, level, fit.square);
        }
        return fit;
    }
}

struct Extreme {
    Vec value;    // of the greatest magnitude, with its sign
    Vec spoiled;  // NaN where something is not finite, else 0
};

Extreme extreme_of(const float* x, int64_t count) {
    Vec highest = zero(), lowest = zero(), spoiled = zero();
    for (int64_t k = 0; k < count; ++k) {
        const Vec value = load(x + k * kLanes);
        highest = maximum(highest, value);
        lowest = maximum(lowest, zero() - value);
        spoiled = fma(value, zero(), spoiled);
    }
    return {where_greater(lowest, highest, zero() - lowest, highest), spoiled};
}

// The scales for x[0..count), count a multiple of kStrands: 0 where all is 0, NaN where something is not finite.
Vec best_scales(const float* x, int64_t count) {
    const Extreme most = extreme_of(x, count);
    Vec best = zero(), best_gain = broadcast(-1.0f);
    for (int candidate = 0; candidate < kCandidates; ++candidate) {
        const float range = kLowestRange + kRangeStep * static_cast<float>(candidate);
        // Upside down, the extreme meets the side that reaches one further.
        const Fit fit = fit_of<1>(x, 0, count, broadcast(-range) / most.value);
        const Vec gain = fit.product * fit.product / fit.square;  // NaN, which is never greater, if all levels are 0
        best = where_greater(gain, best_gain, fit.product / fit.square, best);
        best_gain = maximum(gain, best_gain);
    }
    return where_greater(broadcast(kSmallest), absolute(most.value), zero(), best) + most.spoiled;
}

// The levels of inputs k..k + 7, a nibble each in the order in which they are packed.
Ints nibbles_of(const float* x, Vec inverse) {
    Ints word = zero_ints();
    for (const int k : {7, 3, 6, 2, 5, 1, 4, 0}) {
        const Ints level = round_to_int(nearest_level(load(x + k * kLanes), inverse));
        word = shift_left(word, 4) + (level + broadcast_int(kInt4Zero));
    }
    return word;
}

// `count` rows of a group, x[inputs][kLanes], to `lane` and on of the packed group.
void quantize_group(uint8_t* group, const Int4Shape& shape, int64_t lane, int64_t count, const float* x) {
    uint16_t scales[kLanes];
    store_fp16(scales, best_scales(x, shape.group_size));
    std::memcpy(group + lane * sizeof(uint16_t), scales, count * sizeof(uint16_t));
    const Vec scale = load_fp16(scales);
    const Vec inverse = where_greater(absolute(scale), zero(), broadcast(1.0f) / scale, zero());
    uint8_t* words = group + shape.header_bytes + lane * 4;
    for (int64_t k = 0; k < shape.group_size; k += 8) {
        int32_t eight[kLanes];
        store(eight, nibbles_of(x + k * kLanes, inverse));
        std::memcpy(words + k / 8 * kPanel * 4, eight, count * 4);
    }
}

// kLanes rows of a panel, and one group of them turned over.
struct Int4Rows {
    float* values;  // [kLanes][inputs, filled up to whole groups with zeros]
    float* turned;  // [group_size][kLanes]
    int64_t stride;
};

Int4Rows scratch_rows(const Int4Shape& shape) {
    const int64_t stride = shape.num_groups * shape.group_size;
    auto* memory = static_cast<float*>(thread_scratch(kLanes * (stride + shape.group_size) * sizeof(float)));
    return {memory, memory + kLanes * stride, stride};
}

// Rows that are not there are zeros.
void read_rows(const Int4Rows& rows, const Pack& pack, int64_t first, int64_t count) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
        float* row = rows.values + lane * rows.stride;
        const int64_t width = lane < count ? pack.weight.in_features : 0;
        if (width > 0) read_source(row, pack, first + lane, 0, width);
        std::fill(row + width, row + rows.stride, 0.0f);
    }
}

void turn_group(const Int4Rows& rows, int64_t first, int64_t count) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
        const float* row = rows.values + lane * rows.stride + first;
        for (int64_t k = 0; k < count; ++k) rows.turned[k * kLanes + lane] = row[k];
    }
}

void pack_panel(const Pack& pack, PanelRows panel) {
    const Int4Shape shape(pack.weight);
    const Int4Rows rows = scratch_rows(shape);
    for (int64_t first = panel.first, end = panel.first + panel.count; first < end; first += kLanes) {
        const int64_t count = std::min(kLanes, end - first), row = pack.first_row + first;
        read_rows(rows, pack, first, count);
        for (int64_t index = 0; index < shape.num_groups; ++index) {
            turn_group(rows, index * shape.group_size, shape.group_size);
            quantize_group(const_cast<uint8_t*>(shape.group(pack.weight, row, index)), shape, row % kPanel, count,
                           rows.turned);
        }
    }
}

uint16_t to_fp16(float x) {
    uint16_t bits;
    store_fp16(&bits, broadcast(x), FirstLanes{1});
    return bits;
}

void scatter_levels(uint8_t* nibbles, const uint8_t* levels, int64_t count) {
    for (int64_t k = 0; k < count; k += 8) {
        uint32_t low, high;
        std::memcpy(&low, levels + k, 4);
        std::memcpy(&high, levels + k + 4, 4);
        const uint32_t pairs = low | high << 4;
        std::memcpy(nibbles + k / 8 * kPanel * 4, &pairs, 4);
    }
}

void put_group(const Weight& weight, const Int4Shape& shape, int64_t row, int64_t index, uint16_t scale, int16_t zero,
               const uint8_t* levels) {
    uint8_t* group = const_cast<uint8_t*>(shape.group(weight, row, index));
    const int64_t lane = row % kPanel;
    reinterpret_cast<uint16_t*>(group)[lane] = scale;
    if (weight.has_zeros) reinterpret_cast<int16_t*>(group + kHeaderBytes)[lane] = zero;
    scatter_levels(group + shape.header_bytes + lane * 4, levels, shape.group_size);
}

void pack_values(const PackValues& pack, PanelRows rows) {
    const Int4Shape shape(pack.weight);
    const int64_t width = shape.num_groups * shape.group_size;
    auto* levels = static_cast<uint8_t*>(thread_scratch(width));
    std::memset(levels, 0, width);
    // What pads the inputs may be groups of its own, which the source does not have.
    const int64_t num_groups = (pack.weight.in_features + shape.group_size - 1) / shape.group_size;
    for (int64_t i = rows.first; i < rows.first + rows.count; ++i) {
        std::memcpy(levels, pack.values + i * pack.weight.in_features, pack.weight.in_features);
        for (int64_t index = 0; index < num_groups; ++index) {
            const int64_t place = i * num_groups + index;
            put_group(pack.weight, shape, pack.first_row + i, index, to_fp16(pack.scales[place]),
                      pack.zeros ? pack.zeros[place] : kInt4Zero, levels + index * shape.group_size);
        }
    }
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_pack_int4(const void* arguments) {
    const auto& pack = *static_cast<const penstock::Pack*>(arguments);
    penstock::over_panels(pack.num_rows, pack.first_row,
                          [&](penstock::PanelRows rows) { penstock::pack_panel(pack, rows); });
}
extern "C" void penstock_pack_int4_from(const void* arguments) {
    const auto& pack = *static_cast<const penstock::PackValues*>(arguments);
    penstock::over_panels(pack.num_rows, pack.first_row,
                          [&](penstock::PanelRows rows) { penstock::pack_values(pack, rows); });
}
