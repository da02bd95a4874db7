// Rows of 8-bit integers as what a kind of weight multiplies: where they lie, and how they get there.
#pragma once
#include "experts.hpp"
#include "quantize.hpp"
#include "tiles.hpp"

namespace penstock {

// What the kinds of integer weights have in common.
struct IntegerKind {
    using Rows = Quantized;

    static int64_t rows_per_block(const Product<Quantized>& product) { return penstock::rows_per_block(product.weight); }

    // Memory of one row: its values, their sums, their total and its scale.
    static int64_t row_bytes(int64_t features) {
        const int64_t width = round_up(features, kRowAlign);
        return width + (width / kSumWidth + 2) * sizeof(int32_t);
    }
    static Quantized rows_in(uint8_t* memory, int64_t count, int64_t features) {
        const int64_t width = round_up(features, kRowAlign);
        auto* sums = reinterpret_cast<int32_t*>(memory + count * width);
        auto* totals = sums + count * (width / kSumWidth);
        return {reinterpret_cast<int8_t*>(memory), reinterpret_cast<float*>(totals + count), totals, sums, width,
                nullptr, 0};
    }
    static void put_row(const Quantized& to, int64_t row, const float* from, int64_t features) {
        quantize_row(from, features, to, row);
    }
    // A token's row of the experts' input.
    static void take_row(const Quantized& to, int64_t row, const Experts& experts, int64_t token) {
        const Quantized& from = experts.quantized_input;
        const int64_t width = to.width, sums = width / kSumWidth;
        std::memcpy(to.values + row * width, from.values + token * width, width);
        std::memcpy(to.sums + row * sums, from.sums + token * sums, sums * sizeof *to.sums);
        to.totals[row] = from.totals[token];
        to.scales[row] = from.scales[token];
    }
};

}  // namespace penstock
