// What is made ready of rows before they meet a panel of blocks: what partial sums start from, and what minima take off.
#pragma once
#include "block_codes.hpp"
#include "crossed.hpp"

namespace penstock {

template <class Type, class Sums>
constexpr bool kHasOffsets = Type::kZero != 0 && !kIsSigned<Type, Sums>;

inline BlockRows rows_from(const BlockRows& rows, int64_t first, int64_t num_groups) {
    BlockRows own = rows;
    own.inputs += first * rows.width;
    own.scales += first * rows.num_scales;
    own.offsets += first * rows.num_blocks * num_groups;
    own.mins += first * rows.num_blocks * num_groups / 2;
    own.terms += first * rows.num_blocks;
    own.joins += first;
    own.crossed += first * rows.num_blocks * kCrossedRun;
    return own;
}

#if defined(PENSTOCK_JOINS)
// Whether groups are multiplied by their scales two at a time where their sums fit into 16 bits: types whose sums are at
// most twice as large. All of a row's fit then unless most inputs of some group are near the largest of their block.
template <class Type, class Sums>
constexpr bool kMayJoin = Type::kIsSuper && !Sums::kIsNarrow && Type::kMost * 127 * Type::kGroup < 1 << 16;

// Whether sums of all the row's groups fit.
template <class Type>
uint8_t can_join(const int8_t* inputs, int64_t num_blocks) {
    return largest_sum<Type::kGroup>(inputs, num_blocks * Type::kInputs, Type::kZero == 0) * Type::kMost <= 32767;
}
#else
template <class Type, class Sums>
constexpr bool kMayJoin = false;
#endif
inline bool all_join(const BlockRows& rows, int64_t num_rows) {
    uint8_t all = 1;
    for (int64_t row = 0; row < num_rows; ++row) all &= rows.joins[row];
    return all;
}

// Whether a panel is taken apart once for so many rows. Nibbles and bytes are never: that costs less than to read it
// from another place. What lies in two planes is from so many rows on that the other way would take as long; sooner
// where 16 registers hold sums and planes.
#if defined(__AVX512F__)
constexpr int64_t kFewestForUnpacked = 64;
#else
constexpr int64_t kFewestForUnpacked = 24;
#endif
template <class Type>
constexpr bool is_unpacked(int64_t num_rows) {
    return Type::kPlaneAt < Type::kBytes && num_rows >= kFewestForUnpacked;
}

// Whether so many rows meet a type's codes crossed (crossed.hpp): codes with a sign, except where groups have integer
// scales, which the other way applies in passing.
constexpr int64_t kFewestForCrossedBlocks = 7;
template <class Type>
constexpr bool is_crossed(int64_t num_rows) {
    return kCrosses && kIsSigned<Type, Partials> && !Type::kIsSuper && num_rows >= kFewestForCrossedBlocks;
}

// What is made ready of a block of rows: offsets, sums for mins or terms, what joins, the rows crossed.
template <class Type>
struct ReadyRows {
    static constexpr int64_t kAlign = 64;
    int64_t offsets_at = 0, mins_at, joins_at, crossed_at, bytes;

    ReadyRows(const Weight& weight, int64_t num_rows) {
        const int64_t num_blocks = weight.in_features / Type::kInputs;
        const int64_t words = Type::kZero ? num_rows * num_blocks * Type::kNumGroups : 0;
        mins_at = round_up(words * sizeof(int32_t), kAlign);
        const int64_t taken = Type::kIsSuper ? num_blocks * Type::kNumGroups / 2 : num_blocks;
        joins_at = mins_at + round_up(Type::kHasMins ? num_rows * taken * sizeof(int32_t) : 0, kAlign);
        crossed_at = joins_at + round_up(kMayJoin<Type, Partials> ? num_rows : 0, kAlign);
        bytes = crossed_at + (is_crossed<Type>(num_rows) ? num_rows * weight.in_features * sizeof(int16_t) : 0);
    }
};

// What a panel takes beside the rows: its codes taken apart, or its own products.
template <class Type>
int64_t bytes_of_panel(const Weight& weight, int64_t num_rows) {
    if (is_unpacked<Type>(num_rows)) return weight.in_features * kPanel;
    return is_crossed<Type>(num_rows) ? weight.in_features / Type::kInputs * kPanel * sizeof(float) : 0;
}

template <class Type, class Sums>
void find_offsets(int32_t* offsets, const int32_t* halves, int64_t num_groups) {
    constexpr int64_t kHalves = Type::kGroup / kHalvedWidth;
    for (int64_t group = 0; group < num_groups; ++group) {
        int32_t low = 0, high = 0;
        for (int64_t i = 0; i < kHalves; ++i) {
            low += low_half(halves[group * kHalves + i]);
            high += high_half(halves[group * kHalves + i]);
        }
        offsets[group] = Sums::kIsNarrow ? word_of(-Type::kZero * low, -Type::kZero * high) : -Type::kZero * (low + high);
    }
}

// The sum of a group's inputs.
template <class Type>
int32_t sum_of_group(const int32_t* halves, int64_t group) {
    constexpr int64_t kHalves = Type::kGroup / kHalvedWidth;
    int32_t total = 0;
    for (int64_t i = group * kHalves; i < (group + 1) * kHalves; ++i) total += low_half(halves[i]) + high_half(halves[i]);
    return total;
}

template <class Type, class Sums>
BlockRows prepare_rows(const Quantized& inputs, int64_t first_row, int64_t num_rows, const Weight& weight, void* memory) {
    const int64_t num_blocks = weight.in_features / Type::kInputs, num_scales = inputs.scales_per_row();
    const ReadyRows<Type> ready(weight, num_rows);
    auto* offsets = static_cast<int32_t*>(memory);
    auto* mins = reinterpret_cast<int32_t*>(static_cast<uint8_t*>(memory) + ready.mins_at);
    auto* terms = reinterpret_cast<float*>(mins);
    auto* joins = static_cast<uint8_t*>(memory) + ready.joins_at;
    auto* crossed = reinterpret_cast<const int16_t*>(static_cast<uint8_t*>(memory) + ready.crossed_at);
    for (int64_t row = 0; row < num_rows; ++row) {
        const int32_t* halves = inputs.sums + (first_row + row) * inputs.sums_per_row();
        const float* scales = inputs.scales + (first_row + row) * num_scales;
        if constexpr (kHasOffsets<Type, Sums>)
            find_offsets<Type, Sums>(offsets + row * num_blocks * Type::kNumGroups, halves, num_blocks * Type::kNumGroups);
#if defined(PENSTOCK_JOINS)
        if constexpr (kMayJoin<Type, Sums>)
            joins[row] = can_join<Type>(inputs.values + (first_row + row) * inputs.width, num_blocks);
#endif
        if constexpr (Type::kHasMins && Type::kIsSuper) {
            const int64_t pairs = num_blocks * Type::kNumGroups / 2;
            for (int64_t pair = 0; pair < pairs; ++pair)
                mins[row * pairs + pair] = word_of(sum_of_group<Type>(halves, 2 * pair), sum_of_group<Type>(halves, 2 * pair + 1));
        }
        if constexpr (Type::kHasMins && !Type::kIsSuper)
            for (int64_t block = 0; block < num_blocks; ++block)
                terms[row * num_blocks + block] = scales[block] * static_cast<float>(sum_of_group<Type>(halves, block));
    }
    return {inputs.values + first_row * inputs.width, inputs.scales + first_row * num_scales,
            offsets, mins, terms, joins, crossed, inputs.width, num_scales, num_blocks, block_kernels(weight.block_type).unit};
}

}  // namespace penstock
