// A block's whole numbers: what the codes of some vectors of a panel make with a tile's rows, group by group with their
// scales (block_tiles.hpp).
//
// A group's sum is multiplied by its scale in one instruction and added in another. Where sums fit into 16 bits
// (block_rows.hpp) those of two groups become a pair, and one instruction takes both, with the same whole numbers: prompts of
// Q4_K and Q6_K take 4 % less time so (Zen 5).
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

#if defined(PENSTOCK_JOINS)
// sums += scales × codes × inputs over two groups, whose own sums fit into 16 bits.
template <class Type, int Lines, int Rows, int Vectors, class Source, class Ahead>
PENSTOCK_INLINE inline void add_joined(BlockSums<Rows, Vectors>& sums, const Source& codes, int64_t pair, int64_t lane,
                                       const int8_t* inputs, int64_t width, const int32_t* offsets, int64_t num_offsets,
                                       const Ints (&scales)[Vectors], Ahead& ahead) {
    constexpr int kFours = Type::kGroup / 4;
    Ints first[Rows][Vectors], partial[Rows][Vectors];
    unrolled<2 * kFours>([&](auto t) PENSTOCK_INLINE {
        if constexpr (t % 2 == 0) fetch<Lines>(ahead);
        Bytes own[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v)
            own[v] = codes.template four<t % 8>(pair * kFours / 4 + t / 8, lane + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const Inputs four = broadcast_inputs(inputs + r * width + t * 4);
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) {
                if constexpr (t % kFours == 0) {
                    partial[r][v] = zero_ints();
                    if constexpr (Type::kZero != 0) partial[r][v] = broadcast_int(offsets[r * num_offsets + t / kFours]);
                }
                partial[r][v] = dot(partial[r][v], own[v], four);
                if constexpr (t == kFours - 1) first[r][v] = partial[r][v];
                if constexpr (t == 2 * kFours - 1)
                    add_products_of_pairs(sums.of[r][v], join_halves(first[r][v], partial[r][v]), scales[v]);
            }
        }
    });
}
#endif

template <class Type, class Sums, bool Joins, int Lines, int Rows, int Vectors, class Source, class Ahead>
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
#if defined(PENSTOCK_JOINS)
    if constexpr (Joins) {
        const auto* scales = reinterpret_cast<const int8_t*>(block + Type::kScalesAt) + lane * 2;
#pragma GCC unroll 1
        for (int64_t pair = 0; pair < Type::kNumGroups / 2; ++pair) {
            Ints both[Vectors];
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) both[v] = load_int8_pairs(scales + pair * kPanel * 2 + v * kLanes * 2);
            add_joined<Type, Lines>(sums, codes, pair, lane, inputs + pair * 2 * Type::kGroup, rows.width, offsets + pair * 2,
                                    num_offsets, both, ahead);
        }
    } else
#endif
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

}  // namespace penstock
