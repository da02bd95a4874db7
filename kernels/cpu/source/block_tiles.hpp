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
#include "block_rows.hpp"

namespace penstock {

#if defined(__AVX512F__)
constexpr int kBlockTileRows = 6;
#else
constexpr int kBlockTileRows = 4;
#endif
// Vectors whose sums stay in registers for so many rows. Codes with a sign take registers for their magnitudes, too, which
// only AVX-512 has.
template <class Type, class Sums, int Rows>
constexpr int kVectorsAtOnce =
    Rows * kVectors <= (kIsSigned<Type, Sums> && kLanes < 16 ? 1 : 2) * kBlockTileRows ? kVectors : kVectors / 2;

// How many fours of inputs a partial sum takes: what fits into 16 bits, or a whole group.
template <class Type, class Sums>
constexpr int fours_in_a_partial() {
    int fours = Type::kGroup / 4;
    while (Sums::kIsNarrow && fours * Type::kMost * 254 > 32767) fours /= 2;
    return fours;
}

// Fetches nothing: what comes next is fetched where codes are taken apart.
struct NoFetch {};
template <int Lines>
inline void fetch(NoFetch&) {}

// Lines of what comes next, of which a step of 8 inputs fetches its share, where a panel meets so many tiles at least.
template <class Type, int Vectors, int Tiles>
constexpr int kLinesPerStep = (Type::kBytes * Vectors / kVectors / (Type::kInputs / 8) / Tiles + 63) / 64;

// Sums of some vectors of the panel for each row of a tile.
template <int Rows, int Vectors>
struct BlockSums {
    Ints of[Rows][Vectors];
};

// sums += scales × codes × inputs over a run. `first` are the scales of its first half, `second` those of the other.
template <class Type, class Sums, int Lines, int Rows, int Vectors, class Source, class Ahead>
PENSTOCK_INLINE inline void add_run(BlockSums<Rows, Vectors>& sums, const Source& codes, int64_t run, int64_t lane,
                                    const int8_t* inputs, int64_t width, const int32_t* offsets, int64_t num_offsets,
                                    const Ints (&first)[Vectors], const Ints (&second)[Vectors], Ahead& ahead) {
    constexpr int kFours = fours_in_a_partial<Type, Sums>(), kGroupFours = Type::kGroup / 4;
    Ints partial[Rows][Vectors];
    unrolled<8>([&](auto t) PENSTOCK_INLINE {
        if constexpr (t % 2 == 0) fetch<Lines>(ahead);
        Bytes own[Vectors], magnitudes[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) {
            own[v] = codes.template four<t>(run, lane + v * kLanes);
            if constexpr (kIsSigned<Type, Sums>) magnitudes[v] = Sums::magnitudes(own[v]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const auto four = Sums::broadcast(inputs + r * width + t * 4);
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) {
                const Ints& scale = t < 4 ? first[v] : second[v];
                if constexpr (kIsSigned<Type, Sums>) {
                    sums.of[r][v] = Sums::add_signed(sums.of[r][v], magnitudes[v], own[v], four, scale);
                } else {
                    if constexpr (t % kFours == 0) {
                        partial[r][v] = zero_ints();
                        if constexpr (kHasOffsets<Type, Sums>)
                            partial[r][v] = broadcast_int(offsets[r * num_offsets + t / kGroupFours]);
                    }
                    partial[r][v] = Sums::add_products(partial[r][v], own[v], four);
                    if constexpr (t % kFours == kFours - 1) {
                        if constexpr (Type::kIsSuper || Sums::kIsNarrow)
                            sums.of[r][v] = Sums::merged(sums.of[r][v], partial[r][v], scale);
                        else
                            sums.of[r][v] = sums.of[r][v] + partial[r][v];
                    }
                }
            }
        }
    });
}

template <class Type, class Sums, int Lines, int Rows, int Vectors, class Source, class Ahead>
PENSTOCK_INLINE inline BlockSums<Rows, Vectors> sums_of_block(const uint8_t* block, const Source& codes,
                                                              const BlockRows& rows, int64_t index, int64_t lane,
                                                              Ahead& ahead) {
    constexpr int64_t kGroupsPerRun = kRun / Type::kGroup;
    const int8_t* inputs = rows.inputs + index * Type::kInputs;
    const int64_t num_offsets = rows.num_blocks * Type::kNumGroups;
    const int32_t* offsets = rows.offsets + index * Type::kNumGroups;
    BlockSums<Rows, Vectors> sums;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sums.of[r][v] = zero_ints();
    if constexpr (!Type::kIsSuper) {
        Ints none[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) {
            if constexpr (Sums::kIsNarrow) none[v] = Sums::no_scale();
            else none[v] = zero_ints();
        }
        add_run<Type, Sums, Lines>(sums, codes, 0, lane, inputs, rows.width, offsets, num_offsets, none, none, ahead);
    } else {
        const auto* scales = reinterpret_cast<const int8_t*>(block + Type::kScalesAt) + lane * 2;
        for (int64_t pair = 0; pair < Type::kNumGroups / 2; ++pair) {
            Ints of_halves[2][Vectors];
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) {
                const Ints both = load_int8_pairs(scales + pair * kPanel * 2 + v * kLanes * 2);
                of_halves[0][v] = Sums::first_scale(both);
                of_halves[1][v] = Sums::second_scale(both);
            }
            if constexpr (kGroupsPerRun == 1) {
// Written out, this would take twice as long to compile and no less to run.
#pragma GCC unroll 1
                for (int half = 0; half < 2; ++half) {
                    const int64_t run = pair * 2 + half;
                    add_run<Type, Sums, Lines>(sums, codes, run, lane, inputs + run * kRun, rows.width, offsets + run,
                                               num_offsets, of_halves[half], of_halves[half], ahead);
                }
            } else {
                add_run<Type, Sums, Lines>(sums, codes, pair, lane, inputs + pair * kRun, rows.width, offsets + pair * 2,
                                           num_offsets, of_halves[0], of_halves[1], ahead);
            }
        }
    }
    return sums;
}

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

template <class Type, class Sums, int Rows, int Tiles, class Panel, class Ahead>
void multiply_tile(const Weight& weight, const Panel& codes, const float* bias, int64_t panel, const BlockRows& rows,
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
            const auto sums = sums_of_block<Type, Sums, kLines, Rows, kAtOnce>(block, own, rows, index, lane, ahead);
            add_sums<Type, Rows, kAtOnce>(totals, [&](int r, int v) PENSTOCK_INLINE { return to_float(sums.of[r][v]); }, block,
                                          lane, rows, index);
            if constexpr (Type::kHasMins && Type::kIsSuper) take_mins<Type, Rows, kAtOnce>(totals, block, lane, rows, index);
        }
    }
    write_totals<Rows>(weight, bias, totals, panel, target);
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
