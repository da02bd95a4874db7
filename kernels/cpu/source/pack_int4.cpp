// Weights as 4-bit integers in groups: w ≈ scale × (q - 8), q in 0..15, one float16 scale per group and output feature.
//
// A group's scale is searched: kCandidates ways of laying its extreme onto the range -8..7, either sign, each with the
// scale that then fits best, scale = Σ w q / Σ q²; what is kept has the least Σ (w - scale × q)², which is the
// largest (Σ w q)² / Σ q². A chunk is one panel, a row of which is read, quantized and scattered at a time.
#include "int4.hpp"
#include "integers.hpp"
#include "pack.hpp"
#include "quantize.hpp"

namespace penstock {
namespace {

constexpr int kCandidates = 10;
constexpr float kLowestRange = 5.2f;  // the extreme is laid onto ± this, and on; never halfway between two levels
constexpr float kRangeStep = 0.5f;

uint16_t to_fp16(float x) {
    uint16_t bits;
    store_fp16(&bits, broadcast(x), FirstLanes{1});
    return bits;
}

float from_fp16(uint16_t bits) {
    float x;
    store(&x, load_fp16(&bits, FirstLanes{1}), FirstLanes{1});
    return x;
}

inline Vec nearest_level(Vec x, float inverse) {
    return minimum(maximum(round_to_even(x * broadcast(inverse)), broadcast(-8.0f)), broadcast(7.0f));
}

// The value of the greatest magnitude, with its sign.
float extreme(const float* x, int64_t count) {
    Vec highest = zero(), lowest = zero();
    for (int64_t i = 0; i < count; i += kLanes) {
        highest = maximum(highest, load(x + i));
        lowest = maximum(lowest, zero() - load(x + i));
    }
    const float high = largest(highest), low = largest(lowest);
    return high >= low ? high : -low;
}

struct Fit {
    float product, square;  // Σ w q, Σ q²
};

Fit fit_of(const float* x, int64_t count, float inverse) {
    Vec products = zero(), squares = zero();
    for (int64_t i = 0; i < count; i += kLanes) {
        const Vec value = load(x + i);
        const Vec level = nearest_level(value, inverse);
        products = fma(value, level, products);
        squares = fma(level, level, squares);
    }
    return {sum(products), sum(squares)};
}

// The scale for x[0..count), a multiple of kSumWidth: 0 if all is 0, NaN if something is not finite.
float best_scale(const float* x, int64_t count) {
    const float magnitude = largest_magnitude(x, count);
    if (!(magnitude <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::quiet_NaN();
    if (magnitude < kSmallest) return 0.0f;
    const float most = extreme(x, count);
    float best = 0.0f, best_gain = -1.0f;
    for (int candidate = 0; candidate < kCandidates; ++candidate) {
        const float range = kLowestRange + kRangeStep * static_cast<float>(candidate);
        // Upside down, the extreme meets the side that reaches one further.
        const Fit fit = fit_of(x, count, -range / most);
        const float gain = fit.product * fit.product / fit.square;
        if (fit.square > 0 && gain > best_gain) {
            best_gain = gain;
            best = fit.product / fit.square;
        }
    }
    return best;
}

struct Int4Row {
    float* values;    // [groups × group_size], zeros beyond the weight's inputs
    uint8_t* levels;  // as many
};

void scatter_levels(uint8_t* nibbles, const uint8_t* levels, int64_t count) {
    for (int64_t k = 0; k < count; k += 8) {
        uint32_t low, high;
        std::memcpy(&low, levels + k, 4);
        std::memcpy(&high, levels + k + 4, 4);
        const uint32_t pairs = low | high << 4;
        std::memcpy(nibbles + k / 8 * kPanel * 4, &pairs, 4);
    }
}

void quantize_group(const Int4Row& row, int64_t first, int64_t count, float scale) {
    const float inverse = scale > 0.0f || scale < 0.0f ? 1.0f / scale : 0.0f;
    for (int64_t i = first; i < first + count; i += kLanes) {
        const Ints level = round_to_int(nearest_level(load(row.values + i), inverse));
        store_int8(reinterpret_cast<int8_t*>(row.levels) + i, level + broadcast_int(kInt4Zero));
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

// Memory for one row, all zeros.
Int4Row scratch_row(const Int4Shape& shape) {
    const int64_t count = shape.num_groups * shape.group_size;
    auto* memory = static_cast<uint8_t*>(thread_scratch(count * (sizeof(float) + 1)));
    std::memset(memory, 0, count * (sizeof(float) + 1));
    return {reinterpret_cast<float*>(memory), memory + count * sizeof(float)};
}

void pack_panel(const Pack& pack, PanelRows rows) {
    const Int4Shape shape(pack.weight);
    const Int4Row row = scratch_row(shape);
    for (int64_t i = rows.first; i < rows.first + rows.count; ++i) {
        read_source(row.values, pack, i, 0, pack.weight.in_features);
        for (int64_t index = 0; index < shape.num_groups; ++index) {
            const int64_t first = index * shape.group_size;
            const uint16_t scale = to_fp16(best_scale(row.values + first, shape.group_size));
            quantize_group(row, first, shape.group_size, from_fp16(scale));
            put_group(pack.weight, shape, pack.first_row + i, index, scale, kInt4Zero, row.levels + first);
        }
    }
}

void pack_values(const PackValues& pack, PanelRows rows) {
    const Int4Shape shape(pack.weight);
    const Int4Row row = scratch_row(shape);
    // What pads the inputs may be groups of its own, which the source does not have.
    const int64_t num_groups = (pack.weight.in_features + shape.group_size - 1) / shape.group_size;
    for (int64_t i = rows.first; i < rows.first + rows.count; ++i) {
        std::memcpy(row.levels, pack.values + i * pack.weight.in_features, pack.weight.in_features);
        for (int64_t index = 0; index < num_groups; ++index) {
            const int64_t place = i * num_groups + index;
            put_group(pack.weight, shape, pack.first_row + i, index, to_fp16(pack.scales[place]),
                      pack.zeros ? pack.zeros[place] : kInt4Zero, row.levels + index * shape.group_size);
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
