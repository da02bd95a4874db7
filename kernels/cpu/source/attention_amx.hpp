// The two products of attention in AMX tiles: sixteen query rows at a time with sixteen keys, or with sixteen dimensions
// of values.
//
// Blocks lie as tiles want their columns (kv_layout.hpp): a line is a unit of sixteen keys, or of sixteen dimensions. A
// step takes kStep numbers of a row and begins at a multiple of that, so a row's bits know neither its company nor how a
// context was cut into chunks or blocks. Rows are filled up to whole tiles with whatever lies there.
#pragma once
#include "amx.hpp"
#include "attention_products.hpp"
#include "unrolled.hpp"

#if defined(__AMX_TILE__)
namespace penstock {

constexpr int64_t kRowTiles = 3;  // whose sums, of one column each, lie beside each other in the tiles

// How many rows are reserved for so many: whole tiles, or one lower tile.
inline int64_t tiled_rows(int64_t rows) {
    return rows <= kTileHeight ? rows : (rows + kTileHeight - 1) / kTileHeight * kTileHeight;
}

// 0 to 5 are sums; 6 keys, 7 rows. Where something is left of a head's dimensions, it takes 4 and 5.
inline TileShapes score_shapes(int64_t rows, int64_t rest_bytes) {
    const int64_t height = rows < kTileHeight ? rows : kTileHeight;
    TileShapes shapes;
    for (int tile = 0; tile < 2 * kRowTiles; ++tile) shapes.set(tile, height, kTileBytes);
    if (rest_bytes) shapes.set(4, rest_bytes / 4, kTileBytes).set(5, height, rest_bytes);
    return shapes.set(6, kTileHeight, kTileBytes).set(7, height, kTileBytes);
}

// 0 to 5 are sums; 6 rows of weights, 7 values.
inline TileShapes value_shapes(int64_t rows, int64_t step_bytes) {
    const int64_t height = rows < kTileHeight ? rows : kTileHeight;
    TileShapes shapes;
    for (int tile = 0; tile < 2 * kRowTiles; ++tile) shapes.set(tile, height, kTileBytes);
    return shapes.set(6, height, step_bytes).set(7, step_bytes / 4, kTileBytes);
}

// sums[tile of rows][key] of one or two vectors of keys; of one where something is left of a head's dimensions. `adds`: to
// the scores that are there.
template <class Format, int kTiles, int kColumns>
inline void score_tiles(const StretchMemory& memory, int64_t vector, int64_t head_dim,
                        const typename Format::Number* rows, float* scores, bool is_first, bool adds = false) {
    using Number = typename Format::Number;
    constexpr int64_t kStep = kTileBytes / sizeof(Number);
    constexpr int64_t kRowBytes = kQueryStride<Number> * sizeof(Number);
    const int64_t step_bytes = kTileHeight * memory.key_step;
    const auto over_scores = [&](const auto& body) {
        unrolled<kTiles>([&](auto tile) {
            unrolled<kColumns>([&](auto column) {
                body(std::integral_constant<int, tile * kColumns + column>{},
                     scores + tile * kTileHeight * kRowStride + (vector + column) * kLanes);
            });
        });
    };
    over_scores([&](auto tile, float* at) {
        if (adds) load_tile<tile>(at, kRowStride * sizeof(float));
        else zero_tile<tile>();
    });
    int64_t at = 0, offset = 0;
    for (; at + kStep <= head_dim; at += kStep, offset += step_bytes)
        unrolled<kColumns>([&](auto column) {
            if (kTiles == 1 && is_first)
                fetch_to_second(memory.after_keys[vector + column] + at / Format::kPerUnit * kLanes * Format::kUnitBytes,
                                kTileHeight * kTileBytes);
            load_tile<6>(memory.keys[vector + column] + offset, memory.key_step);
            unrolled<kTiles>([&](auto tile) {
                load_tile<7>(rows + tile * kTileHeight * kQueryStride<Number> + at, kRowBytes);
                Format::ScoreUnit::template add<tile * kColumns + column, 7, 6>();
            });
        });
    if constexpr (kColumns == 1)
        if (at < head_dim) {
            load_tile<4>(memory.keys[vector] + offset, memory.key_step);
            unrolled<kTiles>([&](auto tile) {
                load_tile<5>(rows + tile * kTileHeight * kQueryStride<Number> + at, kRowBytes);
                Format::ScoreUnit::template add<tile, 5, 4>();
            });
        }
    over_scores([](auto tile, float* to) { store_tile<tile>(to, kRowStride * sizeof(float)); });
}

// Weights in rows, and where the sums of their products with values go.
template <class Format>
struct WeightRows {
    const typename Format::Number* weights;
    int64_t stride;  // numbers
    float* sums;     // as the unit adds them
    int64_t sums_stride;
    int64_t step;    // keys
};

// The values of a stretch from some key on in the order of steps, where they don't lie like that or not all are numbers.
struct CopiedValues {
    const uint8_t* units;
    int64_t first = kStretch;
};

// sums[tile of rows][dimension] over the keys of a stretch from `first`, a multiple of the step, up to `end`; of floats added
// to what is there.
template <class Format, int kTiles, int kColumns>
inline void value_tiles(const StretchMemory& memory, int64_t first, int64_t end, int64_t dimension,
                        const WeightRows<Format>& rows, const CopiedValues& copied, bool is_first) {
    const int64_t row_bytes = rows.stride * sizeof(typename Format::Number), sum_bytes = rows.sums_stride * sizeof(float);
    const auto over_sums = [&](const auto& body) {
        unrolled<kTiles>([&](auto tile) {
            unrolled<kColumns>([&](auto column) {
                body(std::integral_constant<int, tile * kColumns + column>{},
                     rows.sums + tile * kTileHeight * rows.sums_stride + dimension + column * kLanes);
            });
        });
    };
    over_sums([&](auto tile, float* sums) {
        if constexpr (kIsInteger<Format>) zero_tile<tile>();
        else load_tile<tile>(sums, sum_bytes);
    });
    for (int64_t key = first; key < end; key += rows.step) {
        const uint8_t* values = dimension * Format::kUnitBytes +
                                (key < copied.first
                                     ? memory.values[key / kLanes]
                                     : copied.units + (key - copied.first) / Format::kPerUnit * memory.value_step);
        if (kTiles == 1 && is_first && key < copied.first)
            for (int64_t k = key; k < std::min(end, key + rows.step); k += Format::kPerUnit)
                memory.fetch_after_values<Format, kColumns>(k / kLanes, k % kLanes / Format::kPerUnit, dimension);
        unrolled<kColumns>([&](auto column) {
            load_tile<7>(values + column * kLanes * Format::kUnitBytes, memory.value_step);
            unrolled<kTiles>([&](auto tile) {
                load_tile<6>(rows.weights + tile * kTileHeight * rows.stride + key, row_bytes);
                Format::ValueUnit::template add<tile * kColumns + column, 6, 7>();
            });
        });
    }
    over_sums([&](auto tile, float* sums) { store_tile<tile>(sums, sum_bytes); });
}

// Calls body(first tile, Count) for pieces of so many tiles of rows.
template <class Body>
inline void over_row_tiles(int64_t num_rows, const Body& body) {
    const int64_t tiles = (num_rows + kTileHeight - 1) / kTileHeight;
    for (int64_t first = 0; first < tiles; first += kRowTiles) {
        const int64_t left = tiles - first;
        if (left >= 3) body(first, Count<3>{});
        else if (left == 2) body(first, Count<2>{});
        else body(first, Count<1>{});
    }
}

}  // namespace penstock
#endif
