// Products of 8-bit rows with ggml's blocks: one template for all types of block_types.hpp.
//
//   output[m, n] = Σ_b (Σ_g scales[b, g, n] × Σ_k in g (code - zero) × x[m, k]) × (d[b, n] × scale[m, b])
//                    - Σ_b (Σ_g mins[b, g, n] × Σ_k in g x[m, k]) × (dmin[b, n] × scale[m, b]) + bias[n]
//
// What is inside a block is a whole number, exact in any order; blocks are added in ascending order, one fused product
// each. So a row's bits depend neither on its company nor on the tile, the threads or the instruction set.
//
// A tile is up to kBlockTileRows rows times one panel; where sums of all its vectors would not stay in registers, half of
// the panel after the other. Codes are taken apart as they are multiplied, by every tile anew: the units that multiply are
// not those that shift. Codes that lie in two planes cost more, so where many tiles meet them their panel is taken apart
// once, into bytes that stay in the second cache.
#pragma once
#include "block_sums.hpp"

namespace penstock {

// total += sums × (d × the row's scale), of blocks of 32 with what is added to them; sum(row, vector) is a whole number
template <class Type, int Rows, int Vectors, class Sum>
PENSTOCK_INLINE inline void add_sums(float* totals, const Sum& sum, const uint8_t* block,
                                     int64_t lane, const BlockRows& rows, int64_t index) {
    const auto* d = reinterpret_cast<const uint16_t*>(block) + lane;
    const auto* dmin = reinterpret_cast<const uint16_t*>(block + Type::kMinAt) + lane;
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
        Vec scale = load_fp16(d + v * kLanes);
        if constexpr (Type::kHasUnit) scale = scale * broadcast(rows.unit);
        Vec least = zero();
        if constexpr (Type::kHasMins && !Type::kIsSuper) least = load_fp16(dmin + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            float* own = totals + r * kPanel + lane + v * kLanes;
            const Vec given = broadcast(rows.scales[r * rows.num_scales + index]);
            Vec total = fma(sum(r, v), scale * given, load(own));
            if constexpr (Type::kHasMins && !Type::kIsSuper)
                total = fma(least, broadcast(rows.terms[r * rows.num_blocks + index]), total);
            store(own, total);
        }
    }
}

// totals -= mins × sums of the inputs × (dmin × the row's scale). Behind the products' sums, not among them: both
// together have no room in registers.
template <class Type, int Rows, int Vectors>
PENSTOCK_INLINE inline void take_mins(float* totals, const uint8_t* block, int64_t lane, const BlockRows& rows,
                                      int64_t index) {
    constexpr int64_t kPairs = Type::kNumGroups / 2;
    const auto* dmin = reinterpret_cast<const uint16_t*>(block + Type::kMinAt) + lane;
    const auto* mins = reinterpret_cast<const int8_t*>(block + Type::kMinsAt) + lane * 2;
    const int32_t* words = rows.mins + index * kPairs;
    BlockSums<Rows, Vectors> taken;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) taken.of[r][v] = zero_ints();
    for (int64_t pair = 0; pair < kPairs; ++pair)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) {
            const Ints both = load_int8_pairs(mins + pair * kPanel * 2 + v * kLanes * 2);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r)
                taken.of[r][v] = add_pair_products(taken.of[r][v], both, words[r * rows.num_blocks * kPairs + pair]);
        }
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
        const Vec least = load_fp16(dmin + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            float* own = totals + r * kPanel + lane + v * kLanes;
            const Vec given = broadcast(-rows.scales[r * rows.num_scales + index]);
            store(own, fma(to_float(taken.of[r][v]), least * given, load(own)));
        }
    }
}

template <int Rows>
PENSTOCK_INLINE inline void write_totals(const Weight& weight, const float* bias, const float* totals, int64_t panel,
                                         Target target) {
    over_outputs(panel * kPanel, weight.out_features, [&](auto v, auto lanes) PENSTOCK_INLINE {
        const int64_t lane = v * kLanes;
        const Vec added = bias ? load(bias + panel * kPanel + lane, lanes) : zero();
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
            store(target.row(r) + lane, load(totals + r * kPanel + lane) + added, lanes);
    });
}

template <class Type, class Sums, bool Joins, int Rows, int Tiles, class Panel, class Ahead>
void multiply_tile_as(const Weight& weight, const Panel& codes, const float* bias, int64_t panel, const BlockRows& rows,
                   Target target, Ahead ahead) {
    constexpr int kAtOnce = kVectorsAtOnce<Type, Sums, Rows>, kLines = kLinesPerStep<Type, kAtOnce, Tiles>;
    alignas(64) float totals[Rows * kPanel] = {};
    const uint8_t* block = weight.panels + panel * rows.num_blocks * Type::kBytes;
    fetch_output<Rows>(target);
    for (int64_t index = 0; index < rows.num_blocks; ++index, block += Type::kBytes) {
        const auto own = codes.block(block, index);
        for (int64_t lane = 0; lane < kPanel; lane += kAtOnce * kLanes) {
            // Else g++ 12 reads all inputs ahead of both halves, and stores them again.
            if constexpr (kAtOnce < kVectors) asm volatile("" ::: "memory");
            const auto sums = sums_of_block<Type, Sums, Joins, kLines, Rows, kAtOnce>(block, own, rows, index, lane, ahead);
            add_sums<Type, Rows, kAtOnce>(totals, [&](int r, int v) PENSTOCK_INLINE { return to_float(sums.of[r][v]); }, block,
                                          lane, rows, index);
            if constexpr (Type::kHasMins && Type::kIsSuper) take_mins<Type, Rows, kAtOnce>(totals, block, lane, rows, index);
        }
    }
    write_totals<Rows>(weight, bias, totals, panel, target);
}

// Few rows wait for memory: nobody has to compile a second way for them.
template <class Type, class Sums, int Rows, int Tiles, class Panel, class Ahead>
void multiply_tile(const Weight& weight, const Panel& codes, const float* bias, int64_t panel, const BlockRows& rows,
                   Target target, Ahead ahead) {
    if constexpr (kMayJoin<Type, Sums> && 2 * Rows > kBlockTileRows)
        if (all_join(rows, Rows))
            return multiply_tile_as<Type, Sums, true, Rows, Tiles>(weight, codes, bias, panel, rows, target, ahead);
    multiply_tile_as<Type, Sums, false, Rows, Tiles>(weight, codes, bias, panel, rows, target, ahead);
}

// Rows times a panel whose codes are taken apart as they are multiplied, by every tile anew.
template <class Type, class Sums>
void multiply_packed(const Weight& weight, const int8_t* values, const float* bias, int64_t panel, const BlockRows& rows,
                     int64_t num_rows, Target target) {
    const int64_t panel_bytes = rows.num_blocks * Type::kBytes;
    const uint8_t* packed = weight.panels + panel * panel_bytes;
    const PackedPanel<Type, Sums> codes{values};
    over_tiles<kBlockTileRows>(RowRange{0, num_rows}, [&](RowRange own, int64_t tile, int64_t num_tiles) {
        const BlockRows given = rows_from(rows, own.first, Type::kNumGroups);
        with_rows<kBlockTileRows>(own.count, [&](auto count) {
            constexpr int64_t kSteps = Type::kInputs / 8 * (kVectors / kVectorsAtOnce<Type, Sums, count>);
            const Fetch ahead = fetch_for(packed, panel_bytes, Type::kBytes / kSteps, tile, num_tiles, true);
            const Target to = target.from(own.first, 0);
            if constexpr (count >= kFewestOfSeveral<kBlockTileRows>)
                if (num_tiles > 1) return multiply_tile<Type, Sums, count, 2>(weight, codes, bias, panel, given, to, ahead);
            multiply_tile<Type, Sums, count, 1>(weight, codes, bias, panel, given, to, ahead);
        });
    });
}

// Rows times a panel that is taken apart once for all of them.
template <class Type, class Sums>
void multiply_unpacked(const Weight& weight, const int8_t* values, const float* bias, int64_t panel,
                       const BlockRows& rows, int64_t num_rows, Target target, void* working) {
    auto* bytes = static_cast<uint8_t*>(working);
    const uint8_t* packed = weight.panels + panel * rows.num_blocks * Type::kBytes;
    unpack_panel<Type, Sums>(bytes, packed, values, rows.num_blocks);
    const UnpackedPanel<Type> codes{bytes};
    over_tiles<kBlockTileRows>(RowRange{0, num_rows}, [&](RowRange own, int64_t, int64_t) {
        const BlockRows given = rows_from(rows, own.first, Type::kNumGroups);
        with_rows<kBlockTileRows>(own.count, [&](auto count) {
            if constexpr (count >= kFewestOfSeveral<kBlockTileRows>)  // as so many rows make several tiles
                multiply_tile<Type, Sums, count, 1>(weight, codes, bias, panel, given, target.from(own.first, 0), NoFetch{});
        });
    });
}

}  // namespace penstock
