// Tiles of AMX, and the product of up to 32 rows with one panel of weights that they compute at a time: a square.
//
// A tile is 16 rows of 64 bytes. A panel lies just as its products want the right-hand side: a step of 64 bytes of
// every row meets 16 × 128 bytes of the panel, two tiles side by side. Four tiles hold a square's sums, two its rows
// and two the panel's step. A thread's tiles are its own, and hold nothing between two chunks.
#pragma once
#include <algorithm>
#include <cstdint>

#if defined(__AMX_TILE__)
#include <immintrin.h>

#include "tiles.hpp"

namespace penstock {

constexpr int64_t kTileHeight = 16;
constexpr int64_t kSquareRows = 2 * kTileHeight;
constexpr int64_t kStepBytes = 64;                      // of a row
constexpr int64_t kSquareBlockBytes = 1 << 20;          // of rows that stay in the second cache
constexpr int64_t kMostBlockRows = 256;
constexpr int64_t kStretchSteps = 8;                    // of a panel and of a square, so that both fit the first cache
constexpr int64_t kPanelStep = kTileHeight * 2 * 64;    // bytes of a panel that a step meets

struct TileShapes {
    alignas(64) uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t num_rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

// The thread's tiles take these shapes as long as it lives: 0 to 3 sums, 4 and 5 rows, 6 and 7 weights.
class Tiles {
public:
    // `depth` is how many bytes of a row a step takes.
    explicit Tiles(int64_t rows, int64_t depth = kStepBytes) {
        TileShapes shapes;
        const auto set = [&](int tile, int64_t num_rows, int64_t bytes) {
            shapes.num_rows[tile] = static_cast<uint8_t>(num_rows);
            shapes.row_bytes[tile] = static_cast<uint16_t>(num_rows ? bytes : 0);
        };
        const int64_t upper = std::min(rows, kTileHeight), lower = rows - upper;
        for (const int tile : {0, 1}) set(tile, upper, 64), set(tile + 2, lower, 64);
        set(4, upper, depth);
        set(5, lower, depth);
        for (const int tile : {6, 7}) set(tile, depth / 4, 64);
        _tile_loadconfig(&shapes);
    }
    ~Tiles() { _tile_release(); }
    Tiles(const Tiles&) = delete;
};

// What one square multiplies: `num_steps` steps of rows that lie `stride` bytes apart.
struct Square {
    const void* rows;
    int64_t stride;
    const void* panel;
    int64_t num_steps;
};

// The four products of a step, by the tiles' numbers: the intrinsics take nothing but literals.
#define PENSTOCK_UNIT(name, instruction, sum)                     \
    struct name {                                                 \
        using Sum = sum;                                          \
        static void add_upper_left() { instruction(0, 4, 6); }    \
        static void add_upper_right() { instruction(1, 4, 7); }   \
        static void add_lower_left() { instruction(2, 5, 6); }    \
        static void add_lower_right() { instruction(3, 5, 7); }   \
    }
PENSTOCK_UNIT(UnsignedWeights, _tile_dpbsud, int32_t);
PENSTOCK_UNIT(SignedWeights, _tile_dpbssd, int32_t);
PENSTOCK_UNIT(Bf16Weights, _tile_dpbf16ps, float);
#undef PENSTOCK_UNIT

// sums[row][output] += Σ rows × panel, or = where `is_first`. kIsTall: more than kTileHeight rows. `fetch_next` is called
// once a step.
template <class Unit, bool kIsTall, class Fetched>
inline void multiply_square(typename Unit::Sum (*sums)[kPanel], const Square& square, bool is_first,
                            Fetched& fetch_next) {
    asm volatile("" ::: "memory");  // what lies in memory has to be there: the loads of tiles don't say that they read
    if (is_first) {
        _tile_zero(0);
        _tile_zero(1);
        if constexpr (kIsTall) {
            _tile_zero(2);
            _tile_zero(3);
        }
    } else {
        _tile_loadd(0, sums, 128);
        _tile_loadd(1, &sums[0][16], 128);
        if constexpr (kIsTall) {
            _tile_loadd(2, sums[16], 128);
            _tile_loadd(3, &sums[16][16], 128);
        }
    }
    const auto* rows = static_cast<const uint8_t*>(square.rows);
    const auto* panel = static_cast<const uint8_t*>(square.panel);
    for (int64_t step = 0; step < square.num_steps; ++step, rows += kStepBytes, panel += kPanelStep) {
        _tile_loadd(4, rows, square.stride);
        _tile_loadd(6, panel, 128);
        Unit::add_upper_left();
        _tile_loadd(7, panel + 64, 128);
        Unit::add_upper_right();
        if constexpr (kIsTall) {
            _tile_loadd(5, rows + kTileHeight * square.stride, square.stride);
            Unit::add_lower_left();
            Unit::add_lower_right();
        }
        fetch_next();
    }
    _tile_stored(0, sums, 128);
    _tile_stored(1, &sums[0][16], 128);
    if constexpr (kIsTall) {
        _tile_stored(2, sums[16], 128);
        _tile_stored(3, &sums[16][16], 128);
    }
}

// Fetches the next panel while this one meets the squares of a block, a share at each step.
class PanelFetch {
public:
    PanelFetch(const uint8_t* panel, int64_t panel_bytes, int64_t num_steps, int64_t num_rows) {
        const int64_t num_squares = (num_rows + kSquareRows - 1) / kSquareRows;
        bytes_ = (panel_bytes + num_steps * num_squares * 64 - 1) / (num_steps * num_squares * 64) * 64;
        next_ = reinterpret_cast<const char*>(panel) + (num_squares > 1 ? panel_bytes : kFetchAhead);
    }
    void operator()() {
        for (int64_t at = 0; at < bytes_; at += 64) __builtin_prefetch(next_ + at, 0, 2);
        next_ += bytes_;
    }

private:
    const char* next_;
    int64_t bytes_;
};

// The product of a panel with the rows of a block, stretch by stretch of the inputs: a stretch of the panel stays in the
// first cache while it meets all squares. Calls write(sums, rows) for each square.
template <class Unit, bool kIsTall, class Write>
inline void multiply_squares(const Square& all, RowRange rows, const Write& write, PanelFetch ahead) {
    alignas(64) typename Unit::Sum sums[kMostBlockRows][kPanel];
    const int64_t num_stretches = (all.num_steps + kStretchSteps - 1) / kStretchSteps;
    for (int64_t stretch = 0; stretch < num_stretches; ++stretch) {
        const int64_t step = stretch * all.num_steps / num_stretches;
        const int64_t end = (stretch + 1) * all.num_steps / num_stretches;
        for (int64_t row = 0; row < rows.count; row += kSquareRows) {
            const Square square{static_cast<const uint8_t*>(all.rows) + (rows.first + row) * all.stride + step * kStepBytes,
                                all.stride, static_cast<const uint8_t*>(all.panel) + step * kPanelStep, end - step};
            multiply_square<Unit, kIsTall>(sums + row, square, step == 0, ahead);
            if (end == all.num_steps)
                write(sums + row, RowRange{rows.first + row, std::min(kSquareRows, rows.count - row)});
        }
    }
}

// Calls body(panel, rows, is_tall) for each panel with the whole squares of a block, then with the rest of its rows;
// `is_tall` is a constant.
template <class Body>
inline void over_squares(int64_t first_panel, int64_t end_panel, RowRange block, int64_t depth, const Body& body) {
    const int64_t rest = block.count % kSquareRows, whole = block.count - rest;
    if (whole) {
        const Tiles tiles(kSquareRows, depth);
        for (int64_t panel = first_panel; panel < end_panel; ++panel)
            body(panel, RowRange{block.first, whole}, std::true_type{});
    }
    if (rest) {
        const Tiles tiles(rest, depth);
        for (int64_t panel = first_panel; panel < end_panel; ++panel) {
            if (rest > kTileHeight) body(panel, RowRange{block.first + whole, rest}, std::true_type{});
            else body(panel, RowRange{block.first + whole, rest}, std::false_type{});
        }
    }
}

// Calls body(first_panel, end_panel, rows) for each chunk, shared among the threads.
template <class Body>
inline void over_square_chunks(const Weight& weight, int64_t panel_bytes, int64_t row_bytes, int64_t num_rows,
                               const Body& body) {
    const int64_t panels = num_panels(weight);
    const int64_t bytes = std::clamp(panels * panel_bytes / 8, kMinChunkBytes, kMaxChunkBytes);
    const int64_t group = std::max<int64_t>(1, bytes / panel_bytes);
    const int64_t most = std::clamp(kSquareBlockBytes / row_bytes, kSquareRows, kMostBlockRows);
    const int64_t even = (num_rows + most - 1) / most, block = round_up((num_rows + even - 1) / even, kSquareRows);
    const int64_t num_groups = (panels + group - 1) / group, num_blocks = (num_rows + block - 1) / block;
    // Neighbouring chunks share their weights.
    parallel(num_groups * num_blocks, [&](int64_t chunk) {
        const int64_t first_panel = chunk / num_blocks * group, first_row = chunk % num_blocks * block;
        body(first_panel, std::min(panels, first_panel + group),
             RowRange{first_row, std::min(block, num_rows - first_row)});
    });
}

}  // namespace penstock
#endif
