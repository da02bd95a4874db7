// Products of 8-bit rows with blocks of 32 whose codes have a sign, crossed (crossed.hpp): block by block the same whole
// numbers as elsewhere, so the same bits. What a panel's codes make among themselves is found before its first tile.
#pragma once
#include "block_tiles.hpp"

#if defined(PENSTOCK_CROSSES)

namespace penstock {

// 1.5 × 2^23: a whole number below 2^22 that is added to its bits is added to itself. Sums begin with these bits, so that
// taking off the codes' own products turns them into floats.
constexpr float kWhole = 12582912.0f;
constexpr int32_t kWholeBits = 0x4b400000;

template <class Type>
BlockRows prepare_crossed(const Quantized& inputs, int64_t first_row, int64_t num_rows, const Weight& weight, void* memory) {
    static_assert(Type::kInputs == kCrossedRun && Type::kInputs * (255 * 255 / 2 + 128 * 127) < 1 << 22);
    const BlockRows rows = prepare_rows<Type, WidePartials>(inputs, first_row, num_rows, weight, memory);
    auto* offsets = const_cast<int32_t*>(rows.offsets);
    cross_rows(const_cast<int16_t*>(rows.crossed), rows.inputs, rows.width, rows.num_blocks, RowRange{0, num_rows},
               [&](int64_t row, int64_t block, Halves own) {
                   offsets[row * rows.num_blocks + block] += kWholeBits - sum(add_own_products(zero_ints(), own));
               });
    return rows;
}

// [blocks][32]: Σ u₀ u₁ of each block and output, and kWhole
template <class Type>
void find_own_products(float* own, const uint8_t* block, const int8_t* values, int64_t num_blocks, Fetch ahead) {
    for (int64_t index = 0; index < num_blocks; ++index, block += Type::kBytes, own += kPanel) {
        const PackedCodes<Type, WidePartials> codes(block, values);
        Ints sums[kVectors];
        for (Ints& sum : sums) sum = zero_ints();
        add_own_run(sums, [&](auto four, auto v) PENSTOCK_INLINE { return codes.template four<four>(0, v * kLanes); }, ahead);
        for (int64_t v = 0; v < kVectors; ++v) store(own + v * kLanes, to_float(sums[v]) + broadcast(kWhole));
    }
}

template <class Type, int Rows>
void multiply_crossed_tile(const Weight& weight, const int8_t* values, const float* bias, int64_t panel, const BlockRows& rows,
                           const float* own, Target target, Fetch ahead) {
    alignas(64) float totals[Rows * kPanel] = {};
    const uint8_t* block = weight.panels + panel * rows.num_blocks * Type::kBytes;
    const int16_t* inputs = rows.crossed;
    fetch_output<Rows>(target);
    for (int64_t index = 0; index < rows.num_blocks; ++index, block += Type::kBytes, inputs += Rows * kCrossedRun) {
        const PackedCodes<Type, WidePartials> codes(block, values);
        for (int64_t lane = 0; lane < kPanel; lane += kCrossedVectors * kLanes) {
            asm volatile("" ::: "memory");  // else g++ 12 reads all inputs ahead of both halves, and stores them again
            Ints sums[Rows][kCrossedVectors];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r)
                sums[r][0] = sums[r][1] = broadcast_int(rows.offsets[r * rows.num_blocks + index]);
            const auto own_codes = [&](auto four, auto v) PENSTOCK_INLINE {
                return codes.template four<four>(0, lane + v * kLanes);
            };
            add_crossed_run(sums, own_codes, inputs, ahead);
            Vec taken[kCrossedVectors];
            for (int v = 0; v < kCrossedVectors; ++v) taken[v] = load(own + index * kPanel + lane + v * kLanes);
            const auto sum = [&](int r, int v) PENSTOCK_INLINE { return bits_to_float(sums[r][v]) - taken[v]; };
            add_sums<Type, Rows, kCrossedVectors>(totals, sum, block, lane, rows, index);
        }
    }
    write_totals<Rows>(weight, bias, totals, panel, target);
}

template <class Type>
void multiply_crossed(const Weight& weight, const int8_t* values, const float* bias, int64_t panel, const BlockRows& rows,
                      int64_t num_rows, Target target, void* working) {
    const int64_t panel_bytes = rows.num_blocks * Type::kBytes;
    const uint8_t* packed = weight.panels + panel * panel_bytes;
    auto* own = static_cast<float*>(working);
    over_crossed_tiles(
        RowRange{0, num_rows}, packed, panel_bytes, Type::kBytes,
        [&](Fetch ahead) { find_own_products<Type>(own, packed, values, rows.num_blocks, ahead); },
        [&](RowRange tile, Fetch ahead, auto count) {
            const BlockRows given = rows_from(rows, tile.first, Type::kNumGroups);
            multiply_crossed_tile<Type, count>(weight, values, bias, panel, given, own, target.from(tile.first, 0), ahead);
        });
}

}  // namespace penstock
#endif
