// Rows of 8-bit integers as what a kind of weight multiplies: where they lie, and how they get there.
#pragma once
#include "block_types.hpp"
#include "experts.hpp"
#include "quantize.hpp"
#include "tiles.hpp"

namespace penstock {

// What the kinds of integer weights have in common.
struct IntegerKind {
    using Rows = Quantized;
    static constexpr int64_t kMostTileRows = kTileRows;

    static int64_t rows_per_block(const Product<Quantized>& product) { return penstock::rows_per_block(product.weight); }

    // Memory of one row: its values, their sums, their total and its scales.
    static int64_t row_bytes(int64_t features, const Weight& weight) {
        const Quantized rows = rows_in(nullptr, 0, features, weight);
        return rows.width + (rows.sums_per_row() + 1 + rows.scales_per_row()) * sizeof(int32_t);
    }
    static Quantized rows_in(uint8_t* memory, int64_t count, int64_t features, const Weight& weight) {
        Quantized rows{};
        rows.width = round_up(features, kRowAlign);
        rows.group = row_group(weight);
        rows.values = reinterpret_cast<int8_t*>(memory);
        rows.sums = reinterpret_cast<int32_t*>(memory + count * rows.width);
        rows.totals = rows.sums + count * rows.sums_per_row();
        rows.scales = reinterpret_cast<float*>(rows.totals + count);
        return rows;
    }
    static void put_row(const Quantized& to, int64_t row, const float* from, int64_t features) {
        quantize_row(from, features, to, row);
    }
    // A token's row of the experts' input.
    static void take_row(const Quantized& to, int64_t row, const Experts& experts, int64_t token) {
        const Quantized& from = experts.quantized_input;
        const int64_t width = to.width, sums = to.sums_per_row(), scales = to.scales_per_row();
        std::memcpy(to.values + row * width, from.values + token * width, width);
        std::memcpy(to.sums + row * sums, from.sums + token * sums, sums * sizeof *to.sums);
        std::memcpy(to.scales + row * scales, from.scales + token * scales, scales * sizeof *to.scales);
        to.totals[row] = from.totals[token];
    }
};

}  // namespace penstock
