// What packers of all formats share: reading sources of any float type, and the cut of their rows into panels.
#pragma once
#include <algorithm>
#include <cstring>

#include "linear.hpp"
#include "pool.hpp"
#include "vector.hpp"

namespace penstock {

// Integers that a checkpoint brings.
struct PackValues {
    const uint8_t* values;  // [num_rows, in_features]: signed for int8, 0..15 for int4
    const float* scales;    // [num_rows] or, for int4, [num_rows, groups]
    const uint8_t* zeros;   // int4: [num_rows, groups], or null where all are 8
    int64_t num_rows;
    int64_t first_row;  // the source's first row is this output feature of the weight
    Weight weight;      // written
};

// Rows of a source that lie in one panel of the weight.
struct PanelRows {
    int64_t first, count;
};

// Calls body(rows) for each panel that the source's rows, placed at `first_row`, touch.
template <class Body>
inline void over_panels(int64_t num_rows, int64_t first_row, const Body& body) {
    const int64_t first_panel = first_row / kPanel;
    const int64_t last_panel = (first_row + num_rows - 1) / kPanel;
    if (num_rows == 0) return;
    parallel(last_panel - first_panel + 1, [&](int64_t chunk) {
        const int64_t first = std::max<int64_t>(0, (first_panel + chunk) * kPanel - first_row);
        const int64_t end = std::min(num_rows, (first_panel + chunk + 1) * kPanel - first_row);
        body(PanelRows{first, end - first});
    });
}

// to[0..count) = source[row, first..first + count), of 8-bit floats.
inline void read_float8(float* to, const Pack& pack, int64_t row, int64_t first, int64_t count) {
    const Float8Blocks& blocks = pack.blocks;
    const uint8_t* from = static_cast<const uint8_t*>(pack.source) + row * pack.source_stride + first;
    const float* scales = blocks.scales + (row + blocks.first_row) / blocks.rows * blocks.scale_stride;
    for (int64_t i = 0; i < count;) {
        const int64_t column = first + i + blocks.first_column;
        const int64_t end = std::min(count, i + blocks.columns - column % blocks.columns);
        const float scale = scales[column / blocks.columns];
        for (; i < end; ++i) to[i] = blocks.values[from[i]] * scale;
    }
}

// to[0..count) = source[row, first..first + count) as float32.
inline void read_source(float* to, const Pack& pack, int64_t row, int64_t first, int64_t count) {
    const int64_t start = row * pack.source_stride + first;
    if (pack.source_type == SourceType::kFloat32) {
        std::memcpy(to, static_cast<const float*>(pack.source) + start, count * sizeof(float));
        return;
    }
    if (pack.source_type == SourceType::kFloat8) return read_float8(to, pack, row, first, count);
    const uint16_t* from = static_cast<const uint16_t*>(pack.source) + start;
    const bool is_bf16 = pack.source_type == SourceType::kBfloat16;
    over_lanes(count, [&](int64_t i, auto lanes) {
        store(to + i, is_bf16 ? load_bf16(from + i, lanes) : load_fp16(from + i, lanes), lanes);
    });
}

// The larger of two magnitudes; a NaN stays.
inline float larger(float a, float b) { return a > b || a != a ? a : b; }

}  // namespace penstock
