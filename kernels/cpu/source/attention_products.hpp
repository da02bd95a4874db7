// The two products of attention in register tiles: rows of queries with keys, rows of weights with values.
//
//   score[row, key] = Σ_i row[i] × key[i]          lanes are keys, i ascends
//   sum[row, i] += Σ_key row[key] × value[key, i]  lanes are dimensions, keys ascend
//
// One sum a row and lane, whatever the tile's size, so a row's bits don't depend on its neighbours. Each vector that is
// loaded serves all rows of a tile (`TileSizes`). Where there are more rows than that, vectors that are not multiplied as
// they lie are unpacked into a panel for all of them. While keys are multiplied their values are fetched into the second
// cache, and with these the next stretch's keys, evenly: blocks lie anywhere, and the processor can't guess where.
#pragma once
#include "attention_formats.hpp"

namespace penstock {

// Rows and vectors of the largest tiles: what they sum and read fills the registers. Many rows take few vectors, which
// then stay in the first cache until all rows have met them. Fewer rows than that wait for memory, and read it in
// longer stretches.
template <class Format>
struct TileSizes {
    static constexpr bool kIsLarge = kLanes == 16;  // AVX-512 has twice as many registers
    static constexpr int kRows = kIsLarge ? 12 : 6, kColumns = kIsLarge ? 2 : 2 / Format::kRegisters;
    static constexpr int kFewRows = kIsLarge && Format::kRegisters == 1 ? 6 : 4, kFewRowColumns = kIsLarge ? 4 : 2;
    static constexpr int kFewestRows = 2, kFewestRowColumns = 2 * kFewRowColumns;
    // Rows are counted by planes where weights meet values. Of some more whose vectors are unpacked, a few at a time read
    // longer stretches of memory than all at once, and the others find these in the first cache.
    static constexpr int kSomePlanes = Format::kPlanes * Format::kRegisters == 4 ? 2 * kFewRows : 0;
    static constexpr int kPanelColumns = 2;
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

    // `start(row, column)` gives what is added to.
    template <class Start>
    inline __attribute__((always_inline)) explicit RegisterTile(const Start& start) {
#pragma GCC unroll 16
        for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 16
            for (int column = 0; column < kColumns; ++column) sums[row][column] = start(row, column);
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

    // Calls keep(row, column, sum) for each; sums over values may lie in planes, high and low in turn.
    template <class Keep>
    inline __attribute__((always_inline)) void keep(const Keep& keep) const {
        constexpr int kPlanes = side == Side::kValues ? Format::kPlanes : 1;
#pragma GCC unroll 16
        for (int row = 0; row < kRows; row += kPlanes)
#pragma GCC unroll 16
            for (int column = 0; column < kColumns; ++column)
                if constexpr (kPlanes == 2)
                    keep(row / 2, column, join_planes(sums[row][column], sums[row + 1][column]));
                else keep(row, column, sums[row][column]);
    }
};

constexpr int64_t kVectors = kStretch / kLanes;
// From row to row of queries, for any head: what is known when it is compiled needs no register.
constexpr int64_t kLargestQuery = 512;
template <class Number>
constexpr int64_t kQueryStride = kLargestQuery + 64 / sizeof(Number);

// Where the keys and values of a stretch lie: each vector of keys by itself, for a stretch goes over many blocks.
struct StretchMemory {
    int64_t first, end;             // vectors that any row sees
    int64_t key_step;               // from one unit of keys to the next
    int64_t value_step;             // from one unit of values to the next
    const uint8_t* keys[kVectors];  // a vector's first key and first unit
    const uint8_t* values[kVectors];
    // What to fetch meanwhile, each as large as a vector's values.
    const uint8_t* after_keys[kVectors];
    const uint8_t* after_values[kVectors];

    // A unit's share of some vectors of dimensions.
    template <class Format, int kColumns>
    void fetch_after_values(int64_t vector, int64_t unit, int64_t dimension) const {
        fetch_to_second(after_values[vector] + unit * value_step + dimension * Format::kUnitBytes,
                        kColumns * kLanes * Format::kUnitBytes);
    }
};

template <class Sum>
inline Sum no_sum() {
    if constexpr (std::is_same_v<Sum, Vec>) return zero();
    else return zero_quads();
}

template <class Sum>
inline void store_score(float* scores, int row, int64_t key, Sum sum) {
    if constexpr (std::is_same_v<Sum, Vec>) store(scores + row * kRowStride + key, sum);
    else store_quads(scores + row * kRowStride + key, sum);
}

template <class Format, int kRows, int kColumns>
inline void score_tile(const StretchMemory& memory, int64_t vector, int64_t head_dim,
                       const typename Format::Number* rows, float* scores, bool is_first) {
    RegisterTile<Format, Side::kKeys, kRows, kColumns> tile([](int, int) { return no_sum<typename Format::Sum>(); });
    const uint8_t* keys[kColumns];
    const uint8_t* ahead[kColumns];
    for (int column = 0; column < kColumns; ++column) {
        keys[column] = memory.keys[vector + column];
        ahead[column] = memory.after_keys[vector + column];
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
    tile.keep([&](int row, int column, auto sum) { store_score(scores, row, (vector + column) * kLanes, sum); });
}

// Calls body(load) for each unit of the values of keys [first, end), load(column) giving its vectors of dimensions;
// `first` begins a vector of keys.
template <class Format, int kColumns, class Body>
inline __attribute__((always_inline)) void over_values(const StretchMemory& memory, int64_t first, int64_t end,
                                                       int64_t dimension, bool fetches, const Body& body) {
    constexpr int64_t kPer = Format::kPerUnit;
    for (int64_t key = first; key < end; key += kLanes) {
        const uint8_t* values = memory.values[key / kLanes] + dimension * Format::kUnitBytes;
        const int64_t count = std::min(kLanes, end - key);
        // Integers may go beyond the last key: their weights are zero there, and any byte is a number.
        const int64_t num_units = kIsInteger<Format> ? (count + kPer - 1) / kPer : count / kPer;
        const auto at = [&](int column) { return values + column * kLanes * Format::kUnitBytes; };
        for (int64_t unit = 0; unit < num_units; ++unit, values += memory.value_step) {
            if (fetches) memory.fetch_after_values<Format, kColumns>(key / kLanes, unit, dimension);
            body([&](int column) { return Format::load(at(column)); });
        }
        if constexpr (kPer == 2)
            if (count % kPer) body([&](int column) { return Format::load_first(at(column)); });
    }
}

// Start and Keep as in a register tile.
template <class Format, int kRows, int kColumns, class Start, class Keep>
inline void value_tile(const StretchMemory& memory, int64_t first, int64_t end, int64_t dimension,
                       const typename Format::Number* rows, bool is_first, const Start& start, const Keep& keep) {
    RegisterTile<Format, Side::kValues, kRows, kColumns> tile(start);
    rows += first;
    over_values<Format, kColumns>(memory, first, end, dimension, is_first, [&](const auto& load) {
        tile.add(load, rows, kRowStride);
        rows += Format::kPerUnit;
    });
    tile.keep(keep);
}

// --- panels: step by step of the product, columns side by side -------------------------------------------------------

template <class Format, int kColumns, Side side, class Load>
inline __attribute__((always_inline)) float* unpack_unit(const Load& load, float* panel) {
    for (int column = 0; column < kColumns; ++column)
        Format::template unpack<side>(load(column), panel + column * kLanes, kColumns * kLanes);
    return panel + Format::kSteps * kColumns * kLanes;
}

template <class Format, int kColumns>
inline void unpack_keys(const StretchMemory& memory, int64_t vector, int64_t head_dim, float* panel) {
    for (int64_t unit = 0; unit < head_dim / Format::kPerUnit; ++unit) {
        panel = unpack_unit<Format, kColumns, Side::kKeys>(
            [&](int column) { return Format::load(memory.keys[vector + column] + unit * memory.key_step); }, panel);
        for (int column = 0; column < kColumns; ++column)
            fetch_to_second(memory.after_keys[vector + column] + unit * kLanes * Format::kUnitBytes,
                            kLanes * Format::kUnitBytes);
    }
}

template <class Format, int kColumns>
inline void unpack_values(const StretchMemory& memory, int64_t first, int64_t end, int64_t dimension, float* panel) {
    over_values<Format, kColumns>(memory, first, end, dimension, true, [&](const auto& load) {
        panel = unpack_unit<Format, kColumns, Side::kValues>(load, panel);
    });
}

// Rows of Steps that meet `num_steps` steps of a panel.
template <class Steps, Side side, int kRows, int kColumns, class Start, class Keep>
inline void panel_tile(const float* panel, int64_t num_steps, const typename Steps::Number* rows, int64_t row_stride,
                       const Start& start, const Keep& keep) {
    RegisterTile<Steps, side, kRows, kColumns> tile(start);
    for (int64_t step = 0; step < num_steps; ++step, panel += kColumns * kLanes, rows += Steps::kPerUnit)
        tile.add([&](int column) { return Steps::load(reinterpret_cast<const uint8_t*>(panel + column * kLanes)); },
                 rows, row_stride);
    tile.keep(keep);
}

}  // namespace penstock
