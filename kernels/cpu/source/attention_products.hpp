// The two products of attention in register tiles: rows of queries with keys, rows of weights with values.
//
//   score[row, key] = Σ_i row[i] × key[i]          lanes are keys, i ascends
//   part[row, i] = Σ_key row[key] × value[key, i]  lanes are dimensions, keys ascend
//
// One sum a row and lane, whatever the tile's size, so a row's bits don't depend on its neighbours. Each vector that is
// loaded serves all rows of a tile (`TileSizes`). While one stretch of memory is multiplied a later one is fetched:
// blocks lie anywhere, and the processor can't guess where.
#pragma once
#include <type_traits>

#include "attention_formats.hpp"

namespace penstock {

// Rows and vectors of the largest tiles: what they sum and read fills the registers. Many rows take few vectors, which
// then stay in the first cache until all rows have met them. Fewer rows than that wait for memory, and read it in
// longer stretches.
template <class Format>
struct TileSizes {
    static constexpr bool kIsLarge = kLanes == 16;  // AVX-512 has twice as many registers
    static constexpr int kRows = kIsLarge ? 12 : 6, kColumns = kIsLarge ? 2 : 2 / Format::kRegisters;
    static constexpr int kFewRows = 6, kFewRowColumns = (kIsLarge ? 4 : 2) / Format::kRegisters;
    // Weights meet values with so few rows, counted by planes.
    static constexpr int kFewestRows = 2, kFewestRowColumns = 2 * kFewRowColumns;
};

template <int kCount>
using Count = std::integral_constant<int, kCount>;

// Calls body(first, Count) for pieces of [0, count): as many of the largest as fit, then smaller ones.
template <int kMost, class Body>
inline void in_pieces(int64_t count, const Body& body) {
    int64_t first = 0;
    for (; count - first >= kMost; first += kMost) body(first, Count<kMost>{});
    constexpr int kNext = kMost > 6 ? 6 : kMost > 4 ? 4 : kMost > 2 ? 2 : 1;
    if constexpr (kMost > 1)
        in_pieces<kNext>(count - first, [&](int64_t next, auto piece) { body(first + next, piece); });
}

template <class Format, Side side, int kRows, int kColumns>
struct RegisterTile {
    typename Format::Sum sums[kRows][kColumns];

    RegisterTile() {
#pragma GCC unroll 16
        for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 16
            for (int column = 0; column < kColumns; ++column) sums[row][column] = Format::zero_sum();
    }

    // `load(column)` gives a vector; the rows' factors lie `row_step` numbers apart.
    template <class Load>
    inline __attribute__((always_inline)) void add(const Load& load, const typename Format::Number* row,
                                                   int64_t row_step) {
        typename Format::Lanes lanes[kColumns];
#pragma GCC unroll 16
        for (int column = 0; column < kColumns; ++column) lanes[column] = load(column);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
            const typename Format::Factor factor = Format::factor(row + i * row_step);
#pragma GCC unroll 16
            for (int column = 0; column < kColumns; ++column)
                sums[i][column] = Format::template add<side>(sums[i][column], lanes[column], factor);
        }
    }
};

constexpr int64_t kVectors = kSplit / kLanes;
// From row to row of scores and of weights, in numbers: at multiples of large powers of two, rows would push one another
// out of the first cache.
constexpr int64_t kScoreStride = kSplit + kLanes;
constexpr int64_t kWeightStride = kSplit + 64;
// From row to row of queries, for any head: what is known when it is compiled needs no register.
constexpr int64_t kLargestQuery = 512;
template <class Number>
constexpr int64_t kQueryStride = kLargestQuery + 64 / sizeof(Number);
constexpr int64_t kAhead = 4;  // vectors of keys, or of their values, that are fetched before they are multiplied

// Where the keys and values of a split lie: each vector of keys by itself, for a split goes over many blocks.
struct SplitMemory {
    int64_t first, end;             // vectors that any row sees
    int64_t key_step;               // from one unit of keys to the next
    int64_t value_step;             // from one unit of values to the next
    const uint8_t* keys[kVectors];  // a vector's first key and first unit
    // In the order of reading, each as large as a vector's values: the split's keys, its values, the next split's keys.
    const uint8_t* stretches[2 * kVectors + kAhead];

    const uint8_t* values(int64_t vector) const { return stretches[end + vector - 2 * first]; }
    const uint8_t* after_keys(int64_t vector) const { return stretches[vector - first + kAhead]; }
    const uint8_t* after_values(int64_t vector) const { return stretches[end + vector - 2 * first + kAhead]; }
};

template <class Format, int kRows, int kColumns>
inline void score_tile(const SplitMemory& memory, int64_t vector, int64_t head_dim,
                       const typename Format::Number* rows, float* scores, bool is_first) {
    RegisterTile<Format, Side::kKeys, kRows, kColumns> tile;
    const uint8_t* keys[kColumns];
    const uint8_t* ahead[kColumns];
    for (int column = 0; column < kColumns; ++column) {
        keys[column] = memory.keys[vector + column];
        ahead[column] = memory.after_keys(vector + column);
    }
    const int64_t key_step = memory.key_step;
    const auto* end = rows + head_dim;
    for (; rows < end; rows += Format::kPerUnit) {
        tile.add([&](int column) { return Format::load(keys[column]); }, rows, kQueryStride<typename Format::Number>);
        for (int column = 0; column < kColumns; ++column) {
            keys[column] += key_step;
            if (!is_first) continue;
            fetch_to_second(ahead[column], kLanes * Format::kUnitBytes);
            ahead[column] += kLanes * Format::kUnitBytes;
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 16
        for (int column = 0; column < kColumns; ++column) {
            float* to = scores + row * kScoreStride + (vector + column) * kLanes;
            if constexpr (kIsInteger<Format>) store_quads(to, tile.sums[row][column]);
            else store(to, tile.sums[row][column]);
        }
}

// Keys [first, end) of the split; `first` begins a vector. Rows of integers are planes: high and low in turn.
template <class Format, int kRows, int kColumns, class Store>
inline void value_tile(const SplitMemory& memory, int64_t first, int64_t end, int64_t dimension,
                       const typename Format::Number* rows, bool is_first, const Store& store_sums) {
    RegisterTile<Format, Side::kValues, kRows, kColumns> tile;
    constexpr int64_t kPer = Format::kPerUnit;
    rows += first;
    for (int64_t key = first; key < end; key += kLanes) {
        const uint8_t* values = memory.values(key / kLanes) + dimension * Format::kUnitBytes;
        const auto at = [&](int column) { return values + column * kLanes * Format::kUnitBytes; };
        const uint8_t* ahead = memory.after_values(key / kLanes);
        const int64_t count = std::min(kLanes, end - key);
        // Integers may go beyond the last key: their weights are zero there, and any byte is a number.
        const int64_t num_units = kIsInteger<Format> ? (count + kPer - 1) / kPer : count / kPer;
        for (int64_t unit = 0; unit < num_units; ++unit, values += memory.value_step, rows += kPer) {
            if (is_first) fetch_to_second(ahead + unit * memory.value_step, memory.value_step);
            tile.add([&](int column) { return Format::load(at(column)); }, rows, kWeightStride);
        }
        if constexpr (kPer == 2)
            if (count % kPer) tile.add([&](int column) { return Format::load_first(at(column)); }, rows, kWeightStride);
    }
#pragma GCC unroll 16
    for (int row = 0; row < kRows; row += Format::kPlanes)
#pragma GCC unroll 16
        for (int column = 0; column < kColumns; ++column) {
            const int64_t lane = dimension + column * kLanes;
            if constexpr (kIsInteger<Format>)
                store_sums(row / 2, lane, to_float(join_planes(tile.sums[row][column], tile.sums[row + 1][column])));
            else
                store_sums(row, lane, tile.sums[row][column]);
        }
}

}  // namespace penstock
