// Products with fp16 weights in AMX tiles, where each number is the sum of two bf16 (bf16_pairs.hpp).
//
// Any number of rows goes this way, as with bf16 weights: tiles add in an order of their own. A panel is taken apart so
// many inputs at a time that they stay in the first cache while all rows meet them.
#pragma once
#include "bf16_pairs.hpp"
#include "linear_amx.hpp"

#if defined(__AMX_BF16__)
namespace penstock {

constexpr int64_t kStepNumbers = kStepBytes / sizeof(uint16_t);
constexpr int64_t kPairSteps = 8;  // of a panel that are taken apart at a time
constexpr int64_t kPairPlaneBytes = kPairSteps * kPanelStep;

// Rows as tiles read them, in two parts.
struct PairedRows {
    TiledRows whole, rest;
};

inline PairedRows pair_rows(const Linear& linear, int64_t num_rows) {
    const int64_t width = linear.weight.in_features, row_bytes = round_up(width, kStepNumbers) * sizeof(uint16_t);
    const int64_t bytes = TiledRows::bytes_of(num_rows, row_bytes);
    auto* memory = static_cast<uint8_t*>(region_scratch(2 * bytes));
    const PairedRows rows{TiledRows::in_memory(memory, row_bytes), TiledRows::in_memory(memory + bytes, row_bytes)};
    over_rows(num_rows, width, [&](int64_t row) {
        const float* from = linear.input + row * width;
        for (int64_t step = 0; step < rows.whole.num_steps; ++step)
            for (int64_t i = 0; i < kStepNumbers; i += kLanes) {
                const int64_t at = step * kStepNumbers + i, left = std::clamp<int64_t>(width - at, 0, kLanes);
                const Vec x = left == kLanes ? load(from + at) : left ? load(from + at, FirstLanes{left}) : zero();
                store_whole_and_rest(reinterpret_cast<uint16_t*>(rows.whole.at(row, step)) + i,
                                     reinterpret_cast<uint16_t*>(rows.rest.at(row, step)) + i, x);
            }
    });
    return rows;
}

// Some steps of a panel, [inputs][32] of fp16, as [inputs / 2][32][2] of bf16: the weights' high parts, and their low ones.
inline void take_pairs_apart(uint8_t* high, uint8_t* low, const uint16_t* panel, int64_t num_steps) {
    for (int64_t k = 0; k < num_steps * kStepNumbers; k += 2, panel += 2 * kPanel)
        for (int64_t lane = 0; lane < kPanel; lane += kLanes, high += kTileBytes, low += kTileBytes) {
            const HighAndLow pairs = apart(load_fp16(panel + lane), load_fp16(panel + kPanel + lane));
            store_bytes(high, pairs.high);
            store_bytes(low, pairs.low);
        }
}

template <bool kIsTall>
inline void multiply_square_of_pairs(float (*sums)[kPanel], const uint8_t* whole, const uint8_t* rest, int64_t tile_bytes,
                                     const uint8_t* high, const uint8_t* low, int64_t num_steps) {
    const auto load_rows = [&](const uint8_t* rows) {
        load_tile<4>(rows, kStepBytes);
        if constexpr (kIsTall) load_tile<5>(rows + tile_bytes, kStepBytes);
    };
    const auto load_panel = [](const uint8_t* panel) {
        load_tile<6>(panel, 128);
        load_tile<7>(panel + 64, 128);
    };
    const auto add = [] {
        Bf16ByBf16::add<0, 4, 6>();
        Bf16ByBf16::add<1, 4, 7>();
        if constexpr (kIsTall) {
            Bf16ByBf16::add<2, 5, 6>();
            Bf16ByBf16::add<3, 5, 7>();
        }
    };
    unrolled<kIsTall ? 4 : 2>([&](auto tile) {
        load_tile<tile>(&sums[tile / 2 * kTileHeight][tile % 2 * kTileHeight], kPanel * 4);
    });
    for (int64_t step = 0; step < num_steps; ++step) {
        const int64_t row_at = step * kTileHeight * kStepBytes, panel_at = step * kPanelStep;
        load_rows(whole + row_at);
        load_panel(low + panel_at);
        add();
        load_panel(high + panel_at);
        add();
        load_rows(rest + row_at);
        add();
    }
    unrolled<kIsTall ? 4 : 2>([&](auto tile) {
        store_tile<tile>(&sums[tile / 2 * kTileHeight][tile % 2 * kTileHeight], kPanel * 4);
    });
}

// sums = the panel × rows
inline void multiply_panel_of_pairs(float (*sums)[kPanel], const uint16_t* panel, const PairedRows& input, RowRange rows,
                                    uint8_t* scratch) {
    uint8_t *high = scratch, *low = scratch + kPairPlaneBytes;
    std::fill(&sums[0][0], &sums[0][0] + round_up(rows.count, kSquareRows) * kPanel, 0.0f);
    for (int64_t first = 0; first < input.whole.num_steps; first += kPairSteps) {
        const int64_t count = std::min(kPairSteps, input.whole.num_steps - first);
        const uint16_t* part = panel + first * kStepNumbers * kPanel;
        const auto* ahead = reinterpret_cast<const uint8_t*>(part) + kFetchAhead;
        for (int64_t line = 0; line < count * kPanelStep; line += 64) __builtin_prefetch(ahead + line, 0, 2);
        take_pairs_apart(high, low, part, count);
        over_each_square(rows.count, kStepBytes, [&](RowRange own, auto is_tall) {
            const int64_t row = rows.first + own.first;
            multiply_square_of_pairs<is_tall>(sums + own.first, input.whole.at(row, first), input.rest.at(row, first),
                                              input.whole.tile_bytes(), high, low, count);
        });
    }
}

template <class Output>
void multiply_pairs_in_squares(const Linear& linear, const Output& output) {
    const PairedRows input = pair_rows(linear, *linear.num_rows);
    const int64_t panel_bytes = padded_in(linear.weight) * kPanel * sizeof(uint16_t);
    over_square_chunks<Output>(linear.weight, panel_bytes, *linear.num_rows, [&](const Panels& panels, RowRange block) {
        const int64_t height = round_up(block.count, kSquareRows), sums_bytes = height * kPanel * sizeof(float);
        auto* scratch = static_cast<uint8_t*>(thread_scratch(2 * kPairPlaneBytes + sums_bytes + Output::scratch_bytes(height)));
        auto* sums = reinterpret_cast<float(*)[kPanel]>(scratch + 2 * kPairPlaneBytes);
        Output own = output;
        own.take(block, scratch + 2 * kPairPlaneBytes + sums_bytes);
        for (int64_t turn = panels.first; turn < panels.end; ++turn) {
            const auto* panel = reinterpret_cast<const uint16_t*>(panels.at(turn, 0));
            multiply_panel_of_pairs(sums, panel, input, block, scratch);
            for (int64_t row = 0; row < block.count; row += kSquareRows)
                own.write(sums + row, turn, RowRange{row, std::min(kSquareRows, block.count - row)});
        }
    });
}

}  // namespace penstock
#endif
