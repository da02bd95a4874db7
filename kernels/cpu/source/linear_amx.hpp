// Products of many rows with packed weights in AMX tiles, a square of 32 rows and one panel at a time.
//
// A step takes 64 bytes of every row and 16 lines of 128 bytes of the panel: two tiles of rows, two of the panel, four
// of sums. What is left for each format is where its bytes lie and how sums become outputs
// (linear_output.hpp says where those go).
#pragma once
#include <algorithm>

#include "amx.hpp"
#include "linear_output.hpp"
#include "rows.hpp"
#include "tiles.hpp"

#if defined(__AMX_TILE__)
namespace penstock {

static_assert(kSquareRows == 2 * kTileHeight);
constexpr int64_t kStepBytes = kTileBytes;
constexpr int64_t kPanelStep = kTileHeight * 2 * kTileBytes;  // bytes of a panel that a step meets
constexpr int64_t kMostBlockRows = 512;
constexpr int64_t kPartSteps = 16;     // of the inputs of a block of rows and some panels, so that they fit the second cache
constexpr int64_t kStretchSteps = 10;  // of a panel and of a square, so that both fit the first cache

// 0 to 3 are sums, 4 and 5 rows, 6 and 7 the panel. `depth` is how many bytes of a row a step takes.
inline TileShapes square_shapes(int64_t rows, int64_t depth) {
    const int64_t upper = std::min(rows, kTileHeight), lower = rows - upper;
    TileShapes shapes;
    shapes.set(0, upper, kTileBytes).set(1, upper, kTileBytes).set(2, lower, kTileBytes).set(3, lower, kTileBytes);
    shapes.set(4, upper, depth).set(5, lower, depth);
    return shapes.set(6, depth / 4, kTileBytes).set(7, depth / 4, kTileBytes);
}

// Rows as tiles read them, [rows / 16][steps][16][64 bytes]: rows of a matrix lie so far apart that those of one tile
// would push one another out of the first cache.
struct TiledRows {
    uint8_t* bytes;
    int64_t num_steps;

    static int64_t bytes_of(int64_t num_rows, int64_t row_bytes) { return round_up(num_rows, kTileHeight) * row_bytes; }
    static TiledRows in_memory(void* memory, int64_t row_bytes) {
        return {static_cast<uint8_t*>(memory), row_bytes / kStepBytes};
    }
    static TiledRows in_scratch(int64_t num_rows, int64_t row_bytes) {
        return in_memory(region_scratch(bytes_of(num_rows, row_bytes)), row_bytes);
    }
    int64_t tile_bytes() const { return num_steps * kTileHeight * kStepBytes; }
    uint8_t* at(int64_t row, int64_t step) const {
        return bytes + row / kTileHeight * tile_bytes() + step * kTileHeight * kStepBytes +
               row % kTileHeight * kStepBytes;
    }
};

inline void tile_row(const TiledRows& tiled, int64_t row, const int8_t* values) {
    const auto* from = reinterpret_cast<const uint8_t*>(values);
    for (int64_t step = 0; step < tiled.num_steps; ++step)
        store_bytes(tiled.at(row, step), load_bytes(from + step * kStepBytes));
}

inline TiledRows tile_rows(const Quantized& rows, int64_t num_rows) {
    const TiledRows tiled = TiledRows::in_scratch(num_rows, rows.width);
    over_rows(num_rows, rows.width, [&](int64_t row) { tile_row(tiled, row, rows.values + row * rows.width); });
    return tiled;
}

// What one square multiplies: `num_steps` steps of two tiles of rows.
struct Square {
    const uint8_t* rows;
    int64_t tile_bytes;  // to the second tile of rows
    const uint8_t* panel;
    int64_t num_steps;
};

// sums[row][output] += Σ rows × panel, or = where `is_first`. kIsTall: more than kTileHeight rows. `fetch_next` is called
// once a step.
template <class Unit, bool kIsTall, class Fetched>
inline void multiply_square(typename Unit::Sum (*sums)[kPanel], const Square& square, bool is_first,
                            Fetched& fetch_next) {
    unrolled<kIsTall ? 4 : 2>([&](auto tile) {
        if (is_first) zero_tile<tile>();
        else load_tile<tile>(&sums[tile / 2 * kTileHeight][tile % 2 * kTileHeight], kPanel * 4);
    });
    const uint8_t *rows = square.rows, *panel = square.panel;
    for (int64_t step = 0; step < square.num_steps; ++step, rows += kTileHeight * kStepBytes, panel += kPanelStep) {
        load_tile<4>(rows, kStepBytes);
        load_tile<6>(panel, 128);
        Unit::template add<0, 4, 6>();
        load_tile<7>(panel + 64, 128);
        Unit::template add<1, 4, 7>();
        if constexpr (kIsTall) {
            load_tile<5>(rows + square.tile_bytes, kStepBytes);
            Unit::template add<2, 5, 6>();
            Unit::template add<3, 5, 7>();
        }
        fetch_next();
    }
    unrolled<kIsTall ? 4 : 2>([&](auto tile) {
        store_tile<tile>(&sums[tile / 2 * kTileHeight][tile % 2 * kTileHeight], kPanel * 4);
    });
}

// Fetches bytes that are needed next while `num_steps` steps are computed, a share at each.
class Ahead {
public:
    Ahead(const uint8_t* from, int64_t bytes, int64_t num_steps)
        : next_(from), share_(round_up((bytes + num_steps - 1) / num_steps, 64)) {}
    void operator()() {
        for (int64_t at = 0; at < share_; at += 64) __builtin_prefetch(next_ + at, 0, 2);
        next_ += share_;
    }

private:
    const uint8_t* next_;
    int64_t share_;
};

// Panels by their order of turns, which is that of the weight or a gate's and the one it lets through alternately.
struct Panels {
    const uint8_t* bytes;
    int64_t panel_bytes;
    int64_t num_gates;   // panels of gates, which the others follow; 0: as they lie
    int64_t first, end;  // turns
    int64_t number(int64_t turn) const { return num_gates ? turn / 2 + turn % 2 * num_gates : turn; }
    const uint8_t* at(int64_t turn, int64_t step) const { return bytes + number(turn) * panel_bytes + step * kPanelStep; }
};

// Fetches the weights that come next and the lines that a square will be written to, while its steps are computed.
class AheadOfSquare {
public:
    AheadOfSquare(Ahead& weights, Target lines, int64_t num_rows, int64_t num_steps)
        : weights_(weights), next_(lines.first), stride_(lines.stride), left_(lines.first ? num_rows : 0),
          share_((num_rows + num_steps - 1) / num_steps) {}
    void operator()() {
        weights_();
        for (int64_t i = std::min(share_, left_); i > 0; --i, --left_, next_ += stride_) {
            __builtin_prefetch(next_, 1);
            __builtin_prefetch(next_ + kPanel / 2, 1);
        }
    }

private:
    Ahead& weights_;
    const float* next_;
    int64_t stride_, left_, share_;
};

// A part of the inputs of a panel meets all rows of a block, stretch by stretch, so that a stretch of the panel stays in
// the first cache meanwhile. The output gets each square after the last of all inputs.
template <class Unit, bool kIsTall, class Output>
inline void multiply_part(typename Unit::Sum (*sums)[kPanel], const TiledRows& input, const Panels& panels,
                          int64_t turn, RowRange steps, RowRange rows, const Output& output) {
    const int64_t num_stretches = (steps.count + kStretchSteps - 1) / kStretchSteps;
    const int64_t num_squares = (rows.count + kSquareRows - 1) / kSquareRows;
    const uint8_t* panel = panels.at(turn, steps.first);
    const uint8_t* next = num_squares > 1 ? panels.at(turn + 1, steps.first) : panel + kFetchAhead;
    Ahead ahead(next, steps.count * kPanelStep, steps.count * num_squares);
    for (int64_t stretch = 0; stretch < num_stretches; ++stretch) {
        const int64_t step = steps.first + stretch * steps.count / num_stretches;
        const int64_t end = steps.first + (stretch + 1) * steps.count / num_stretches;
        for (int64_t row = 0; row < rows.count; row += kSquareRows) {
            const RowRange own{row, std::min(kSquareRows, rows.count - row)};
            const bool is_last = end == input.num_steps;
            AheadOfSquare fetch(ahead, is_last ? output.lines(turn, own) : Target{}, own.count, end - step);
            const Square square{input.at(rows.first + row, step), input.tile_bytes(), panels.at(turn, step), end - step};
            multiply_square<Unit, kIsTall>(sums + row, square, step == 0, fetch);
            if (is_last) output.write(sums + row, turn, own);
        }
    }
}

// Some panels meet the rows of a block, part by part of the inputs: the parts of rows and panels and all their sums stay
// in the second cache.
template <class Unit, bool kIsTall, class Output>
inline void multiply_squares(const TiledRows& input, const Panels& panels, RowRange rows, Output output) {
    using Sums = typename Unit::Sum[kPanel];
    const int64_t height = round_up(rows.count, kSquareRows);
    const int64_t part_steps = rows.count > 2 * kSquareRows ? kPartSteps : input.num_steps;
    const bool is_whole = part_steps >= input.num_steps;
    const int64_t num_kept = is_whole ? 1 : panels.end - panels.first;  // panels whose sums are kept meanwhile
    const int64_t sums_bytes = num_kept * height * sizeof(Sums);
    auto* scratch = static_cast<uint8_t*>(thread_scratch(sums_bytes + output.scratch_bytes(height)));
    auto* sums = reinterpret_cast<Sums*>(scratch);
    output.take(rows, scratch + sums_bytes);
    for (int64_t step = 0; step < input.num_steps; step += part_steps) {
        const RowRange steps{step, std::min(part_steps, input.num_steps - step)};
        for (int64_t turn = panels.first; turn < panels.end; ++turn) {
            Sums* own = sums + (is_whole ? 0 : turn - panels.first) * height;
            multiply_part<Unit, kIsTall>(own, input, panels, turn, steps, rows, output);
        }
    }
}

// Calls body(rows, is_tall) for the whole squares of a block, then for the rest of its rows; `is_tall` is a constant.
template <class Body>
inline void over_squares(RowRange block, int64_t depth, const Body& body) {
    const int64_t rest = block.count % kSquareRows, whole = block.count - rest;
    if (whole) {
        const Tiles tiles(square_shapes(kSquareRows, depth));
        body(RowRange{block.first, whole}, std::true_type{});
    }
    if (rest) {
        const Tiles tiles(square_shapes(rest, depth));
        if (rest > kTileHeight) body(RowRange{block.first + whole, rest}, std::true_type{});
        else body(RowRange{block.first + whole, rest}, std::false_type{});
    }
}

// Calls body(rows, is_tall) for each square of so many rows, whose last one may be lower: its tiles are multiplied with
// whatever lies behind its rows. `body` finds shapes set for all of them.
template <class Body>
inline void over_each_square(int64_t num_rows, int64_t depth, const Body& body) {
    const Tiles tiles(square_shapes(std::min(num_rows, kSquareRows), depth));
    for (int64_t row = 0; row < num_rows; row += kSquareRows) {
        const RowRange own{row, std::min(kSquareRows, num_rows - row)};
        if (own.count > kTileHeight) body(own, std::true_type{});
        else body(own, std::false_type{});
    }
}

// Calls body(panels, rows) for each chunk, shared among the threads. Many rows meet more panels in a chunk, so that both
// are read less often.
template <class Output, class Body>
inline void over_square_chunks(const Weight& weight, int64_t panel_bytes, int64_t num_rows, const Body& body) {
    constexpr bool is_gated = Output::kTakesTurns;
    const int64_t panels = num_panels(weight);
    const int64_t num_blocks = (num_rows + kMostBlockRows - 1) / kMostBlockRows;
    const int64_t block = round_up((num_rows + num_blocks - 1) / num_blocks, kSquareRows);
    const int64_t bytes = std::clamp(panels * panel_bytes / 8, kMinChunkBytes, kMaxChunkBytes);
    const int64_t fewest = num_rows > 2 * kSquareRows ? std::clamp<int64_t>(panels * num_blocks / 8, 1, 8) : 1;
    const int64_t group = round_up(std::max(fewest, bytes / panel_bytes), is_gated ? 2 : 1);
    const int64_t num_groups = (panels + group - 1) / group;
    // Neighbouring chunks share their weights.
    parallel(num_groups * num_blocks, [&](int64_t chunk) {
        const int64_t first_panel = chunk / num_blocks * group, first_row = chunk % num_blocks * block;
        const int64_t end = std::min(panels, first_panel + group);
        body(Panels{weight.panels, panel_bytes, is_gated ? panels / 2 : 0, first_panel, end},
             RowRange{first_row, std::min(block, num_rows - first_row)});
    });
}

}  // namespace penstock
#endif
