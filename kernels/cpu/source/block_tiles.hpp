// Products of 8-bit rows with ggml's blocks: one template for all types of block_types.hpp.
//
//   output[m, n] = Σ_b (Σ_g scales[b, g, n] × Σ_k in g (code - zero) × x[m, k]) × (d[b, n] × scale[m, b])
//                    - Σ_b (Σ_g mins[b, g, n] × Σ_k in g x[m, k]) × (dmin[b, n] × scale[m, b]) + bias[n]
//
// What is inside a block is a whole number, exact in any order; blocks are added in ascending order, one fused product
// each. So a row's bits depend neither on its company nor on the tile, the threads or the instruction set.
//
// A tile is up to kBlockTileRows rows times one panel; where sums of all its vectors would not stay in registers, half of
// the panel after the other. A single tile takes codes apart as it multiplies, and fetches what comes next. Where several
// tiles meet a panel, a stretch of 256 inputs is taken apart once, into bytes that stay in the first cache until all have
// met them.
#pragma once
#include "block_types.hpp"
#include "partials.hpp"
#include "tiles.hpp"

namespace penstock {

#if defined(__AVX512F__)
constexpr int kBlockTileRows = 6;
#else
constexpr int kBlockTileRows = 4;
#endif
// Vectors whose sums stay in registers for so many rows.
template <int Rows>
constexpr int kVectorsAtOnce = Rows * kVectors <= 2 * kBlockTileRows ? kVectors : kVectors / 2;

// Whether codes of a type are bytes with a sign, as narrow products want what fills a byte.
template <class Type, class Sums>
constexpr bool kIsSigned = Sums::kIsNarrow && Type::kMost > 63;

// How many fours of inputs a partial sum takes: what fits into 16 bits, or a whole group.
template <class Type, class Sums>
constexpr int fours_in_a_partial() {
    int fours = Type::kGroup / 4;
    while (Sums::kIsNarrow && fours * Type::kMost * 254 > 32767) fours /= 2;
    return fours;
}

template <class Type, class Sums>
constexpr bool kHasOffsets = Type::kZero != 0 && !kIsSigned<Type, Sums>;

// Codes of a block as they are packed. `four<T>(run, lane)` are those of inputs 4 T to 4 T + 3 of a run.
template <class Type, class Sums>
struct PackedCodes {
    const uint8_t* block;
    Bytes table{};

    PackedCodes(const uint8_t* block, const int8_t* values) : block(block) {
        if constexpr (Type::kCodes == Codes::kLookedUpNibbles)
            table = kIsSigned<Type, Sums> ? load_table(values) : flip_bits(load_table(values), 0x80);
    }

    template <int T>
    Bytes four(int64_t run, int64_t lane) const {
        const uint8_t *codes = block + Type::kCodesAt + lane * 4, *plane = block + Type::kPlaneAt + lane * 4;
        if constexpr (Type::kCodes == Codes::kBytes) {
            const Bytes bytes = load_bytes(codes + (run * 8 + T) * kPanel * 4);
            return kIsSigned<Type, Sums> ? flip_bits(bytes, 0x80) : bytes;
        }
        const Bytes pairs = load_bytes(codes + (run * 4 + T / 2) * kPanel * 4);
        const Bytes nibbles = T % 2 ? high_nibbles(pairs) : low_nibbles(pairs);
        if constexpr (Type::kCodes == Codes::kLookedUpNibbles) return look_up(table, nibbles);
        if constexpr (Type::kCodes == Codes::kNibblesAndBit)
            return join_bits(nibbles, keep_bits(shifted<4 - T>(load_bytes(plane + run * kPanel * 4)), 0x10));
        if constexpr (Type::kCodes == Codes::kNibblesAndTwoBits) {
            const Bytes bits = load_bytes(plane + (run * 2 + T / 4) * kPanel * 4);
            return join_bits(nibbles, keep_bits(shifted<4 - 2 * (T % 4)>(bits), 0x30));
        }
        return nibbles;
    }
};

// The same as bytes, [inputs / 4][32][4].
struct UnpackedCodes {
    const uint8_t* bytes;

    template <int T>
    Bytes four(int64_t run, int64_t lane) const {
        return load_bytes(bytes + (run * 8 + T) * kPanel * 4 + lane * 4);
    }
};

// Fetches nothing: what comes next is fetched where codes are taken apart.
struct NoFetch {};
template <int Lines>
inline void fetch(NoFetch&) {}

template <class Type, class Sums>
void unpack_block(uint8_t* to, const PackedCodes<Type, Sums>& codes) {
    for (int64_t line = 0; line < Type::kBytes; line += 64)
        __builtin_prefetch(codes.block + kFetchAhead + line, 0, 2);
    for (int64_t run = 0; run < Type::kInputs / kRun; ++run)
        unrolled<8>([&](auto t) PENSTOCK_INLINE {
            unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
                const int64_t lane = v * kLanes;
                store_bytes(to + (run * 8 + t) * kPanel * 4 + lane * 4, codes.template four<t>(run, lane));
            });
        });
}

// Lines of what comes next, of which a step of 8 inputs fetches its share.
template <class Type, int Vectors>
constexpr int kLinesPerStep = (Type::kBytes * Vectors / kVectors / (Type::kInputs / 8) + 63) / 64;

// Sums of some vectors of the panel for each row of a tile.
template <int Rows, int Vectors>
struct BlockSums {
    Ints of[Rows][Vectors];
};

// sums += scales × codes × inputs over a run. `first` are the scales of its first half, `second` those of the other.
template <class Type, class Sums, int Rows, int Vectors, class Source, class Ahead>
PENSTOCK_INLINE inline void add_run(BlockSums<Rows, Vectors>& sums, const Source& codes, int64_t run, int64_t lane,
                                    const int8_t* inputs, int64_t width, const int32_t* offsets, int64_t num_offsets,
                                    const Ints (&first)[Vectors], const Ints (&second)[Vectors], Ahead& ahead) {
    constexpr int kFours = fours_in_a_partial<Type, Sums>(), kGroupFours = Type::kGroup / 4;
    Ints partial[Rows][Vectors];
    unrolled<8>([&](auto t) PENSTOCK_INLINE {
        if constexpr (t % 2 == 0) fetch<kLinesPerStep<Type, Vectors>>(ahead);
        Bytes own[Vectors], magnitudes[Vectors];
        unrolled<Vectors>([&](auto v) PENSTOCK_INLINE {
            own[v] = codes.template four<t>(run, lane + v * kLanes);
            if constexpr (kIsSigned<Type, Sums>) magnitudes[v] = Sums::magnitudes(own[v]);
        });
        unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
            const auto four = Sums::broadcast(inputs + r * width + t * 4);
            unrolled<Vectors>([&](auto v) PENSTOCK_INLINE {
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
            });
        });
    });
}

// totals += sums × (d × the row's scale), and what is taken off.
template <class Type, int Rows, int Vectors>
PENSTOCK_INLINE inline void end_block(float* totals, const BlockSums<Rows, Vectors>& sums,
                                      const BlockSums<Rows, Vectors>& taken, const uint8_t* block, int64_t lane,
                                      const BlockRows& rows, int64_t index) {
    const auto* d = reinterpret_cast<const uint16_t*>(block) + lane;
    const auto* dmin = reinterpret_cast<const uint16_t*>(block + Type::kMinAt) + lane;
    unrolled<Vectors>([&](auto v) PENSTOCK_INLINE {
        Vec scale = load_fp16(d + v * kLanes);
        if constexpr (Type::kHasUnit) scale = scale * broadcast(rows.unit);
        Vec least = zero();
        if constexpr (Type::kHasMins) least = load_fp16(dmin + v * kLanes);
        unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
            float* own = totals + r * kPanel + lane + v * kLanes;
            const float given = rows.scales[r * rows.num_scales + index];
            Vec total = fma(to_float(sums.of[r][v]), scale * broadcast(given), load(own));
            if constexpr (Type::kHasMins && Type::kIsSuper)
                total = fma(to_float(taken.of[r][v]), least * broadcast(-given), total);
            if constexpr (Type::kHasMins && !Type::kIsSuper)
                total = fma(least, broadcast(rows.terms[r * rows.num_blocks + index]), total);
            store(own, total);
        });
    });
}

template <class Type, class Sums, int Rows, int Vectors, class Source, class Ahead>
PENSTOCK_INLINE inline void add_vectors(float* totals, const uint8_t* block, const Source& codes, const BlockRows& rows,
                                        int64_t index, int64_t lane, Ahead& ahead) {
    constexpr int64_t kGroupsPerRun = kRun / Type::kGroup;
    const int8_t* inputs = rows.inputs + index * Type::kInputs;
    const int64_t num_offsets = rows.num_blocks * Type::kNumGroups;
    const int32_t* offsets = rows.offsets + index * Type::kNumGroups;
    BlockSums<Rows, Vectors> sums, taken;
    unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
        unrolled<Vectors>([&](auto v) PENSTOCK_INLINE { sums.of[r][v] = taken.of[r][v] = zero_ints(); });
    });
    if constexpr (!Type::kIsSuper) {
        Ints none[Vectors];
        unrolled<Vectors>([&](auto v) PENSTOCK_INLINE {
            if constexpr (Sums::kIsNarrow) none[v] = Sums::no_scale();
            else none[v] = zero_ints();
        });
        add_run<Type, Sums>(sums, codes, 0, lane, inputs, rows.width, offsets, num_offsets, none, none, ahead);
    } else {
        const auto* scales = reinterpret_cast<const int8_t*>(block + Type::kScalesAt) + lane * 2;
        const auto* mins = reinterpret_cast<const int8_t*>(block + Type::kMinsAt) + lane * 2;
        for (int64_t pair = 0; pair < Type::kNumGroups / 2; ++pair) {
            Ints first[Vectors], second[Vectors];
            unrolled<Vectors>([&](auto v) PENSTOCK_INLINE {
                const Ints both = load_int8_pairs(scales + pair * kPanel * 2 + v * kLanes * 2);
                first[v] = Sums::first_scale(both);
                second[v] = Sums::second_scale(both);
                if constexpr (Type::kHasMins) {
                    const Ints pairs = load_int8_pairs(mins + pair * kPanel * 2 + v * kLanes * 2);
                    const int32_t* words = rows.mins + index * (Type::kNumGroups / 2) + pair;
                    const int64_t num_words = rows.num_blocks * (Type::kNumGroups / 2);
                    unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
                        taken.of[r][v] = add_pair_products(taken.of[r][v], pairs, words[r * num_words]);
                    });
                }
            });
            if constexpr (kGroupsPerRun == 1) {
                unrolled<2>([&](auto half) PENSTOCK_INLINE {
                    const int64_t run = pair * 2 + half;
                    add_run<Type, Sums>(sums, codes, run, lane, inputs + run * kRun, rows.width, offsets + run, num_offsets,
                                        half ? second : first, half ? second : first, ahead);
                });
            } else {
                add_run<Type, Sums>(sums, codes, pair, lane, inputs + pair * kRun, rows.width, offsets + pair * 2,
                                    num_offsets, first, second, ahead);
            }
        }
    }
    end_block<Type>(totals, sums, taken, block, lane, rows, index);
}

// totals[row][output] += blocks from `first` up to `end` of the panel × the tile's rows, their codes taken apart before.
template <class Type, class Sums, int Rows>
void add_unpacked(float* totals, const uint8_t* block, const uint8_t* codes, const BlockRows& rows, int64_t first,
                  int64_t end) {
    constexpr int kAtOnce = kVectorsAtOnce<Rows>;
    NoFetch nothing;
    for (int64_t lane = 0; lane < kPanel; lane += kAtOnce * kLanes)
        for (int64_t index = first; index < end; ++index) {
            const int64_t before = index - first;
            const UnpackedCodes own{codes + before * Type::kInputs * kPanel};
            add_vectors<Type, Sums, Rows, kAtOnce>(totals, block + before * Type::kBytes, own, rows, index, lane, nothing);
        }
}

inline BlockRows rows_from(const BlockRows& rows, int64_t first, int64_t num_groups) {
    BlockRows own = rows;
    own.inputs += first * rows.width;
    own.scales += first * rows.num_scales;
    own.offsets += first * rows.num_blocks * num_groups;
    own.mins += first * rows.num_blocks * num_groups / 2;
    own.terms += first * rows.num_blocks;
    return own;
}

// What a block of rows needs beside a panel: offsets, sums for mins or terms, codes of a stretch, totals.
template <class Type>
struct BlockScratch {
    static constexpr int64_t kAlign = 64;
    int64_t offsets_at = 0, mins_at, codes_at, totals_at, bytes;

    BlockScratch(const Weight& weight, int64_t num_rows) {
        const int64_t num_blocks = weight.in_features / Type::kInputs;
        const int64_t words = Type::kZero ? num_rows * num_blocks * Type::kNumGroups : 0;
        mins_at = round_up(words * sizeof(int32_t), kAlign);
        const int64_t taken = Type::kIsSuper ? num_blocks * Type::kNumGroups / 2 : num_blocks;
        codes_at = mins_at + round_up(Type::kHasMins ? num_rows * taken * sizeof(int32_t) : 0, kAlign);
        totals_at = codes_at + kSuperBlock * kPanel;
        bytes = totals_at + num_rows * kPanel * sizeof(float);
    }
};

template <class Type, class Sums>
void find_offsets(int32_t* offsets, const int32_t* halves, int64_t num_groups) {
    constexpr int64_t kHalves = Type::kGroup / kHalvedWidth;
    for (int64_t group = 0; group < num_groups; ++group) {
        int32_t low = 0, high = 0;
        for (int64_t i = 0; i < kHalves; ++i) {
            low += low_half(halves[group * kHalves + i]);
            high += high_half(halves[group * kHalves + i]);
        }
        offsets[group] = Sums::kIsNarrow ? word_of(-Type::kZero * low, -Type::kZero * high) : -Type::kZero * (low + high);
    }
}

// The sum of a group's inputs.
template <class Type>
int32_t sum_of_group(const int32_t* halves, int64_t group) {
    constexpr int64_t kHalves = Type::kGroup / kHalvedWidth;
    int32_t total = 0;
    for (int64_t i = group * kHalves; i < (group + 1) * kHalves; ++i) total += low_half(halves[i]) + high_half(halves[i]);
    return total;
}

template <class Type, class Sums>
BlockRows prepare_rows(const Quantized& inputs, int64_t first_row, int64_t num_rows, const Weight& weight, void* memory) {
    const int64_t num_blocks = weight.in_features / Type::kInputs, num_scales = inputs.scales_per_row();
    const BlockScratch<Type> scratch(weight, num_rows);
    auto* offsets = static_cast<int32_t*>(memory);
    auto* mins = reinterpret_cast<int32_t*>(static_cast<uint8_t*>(memory) + scratch.mins_at);
    auto* terms = reinterpret_cast<float*>(mins);
    for (int64_t row = 0; row < num_rows; ++row) {
        const int32_t* halves = inputs.sums + (first_row + row) * inputs.sums_per_row();
        const float* scales = inputs.scales + (first_row + row) * num_scales;
        if constexpr (kHasOffsets<Type, Sums>)
            find_offsets<Type, Sums>(offsets + row * num_blocks * Type::kNumGroups, halves, num_blocks * Type::kNumGroups);
        if constexpr (Type::kHasMins && Type::kIsSuper) {
            const int64_t pairs = num_blocks * Type::kNumGroups / 2;
            for (int64_t pair = 0; pair < pairs; ++pair)
                mins[row * pairs + pair] = word_of(sum_of_group<Type>(halves, 2 * pair), sum_of_group<Type>(halves, 2 * pair + 1));
        }
        if constexpr (Type::kHasMins && !Type::kIsSuper)
            for (int64_t block = 0; block < num_blocks; ++block)
                terms[row * num_blocks + block] = scales[block] * static_cast<float>(sum_of_group<Type>(halves, block));
    }
    return {inputs.values + first_row * inputs.width, inputs.scales + first_row * num_scales,
            offsets, mins, terms, inputs.width, num_scales, num_blocks, block_kernels(weight.block_type).unit};
}

template <int Rows>
PENSTOCK_INLINE inline void write_totals(const Weight& weight, const float* bias, const float* totals, int64_t panel,
                                         Target target) {
    over_outputs(panel * kPanel, weight.out_features, [&](auto v, auto lanes) PENSTOCK_INLINE {
        const int64_t lane = v * kLanes;
        const Vec added = bias ? load(bias + panel * kPanel + lane, lanes) : zero();
        unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
            store(target.row(r) + lane, load(totals + r * kPanel + lane) + added, lanes);
        });
    });
}

template <class Type, class Sums, int Rows>
void multiply_one_tile(const Weight& weight, const int8_t* values, const float* bias, int64_t panel, const BlockRows& rows,
                       Target target) {
    alignas(64) float totals[Rows * kPanel] = {};
    const uint8_t* block = weight.panels + panel * rows.num_blocks * Type::kBytes;
    fetch_output<Rows>(target);
    for (int64_t index = 0; index < rows.num_blocks; ++index, block += Type::kBytes) {
        constexpr int kAtOnce = kVectorsAtOnce<Rows>;
        constexpr int64_t kSteps = Type::kInputs / 8 * (kVectors / kAtOnce);
        Fetch ahead{reinterpret_cast<const char*>(block) + kFetchAhead, Type::kBytes / kSteps, true};
        const PackedCodes<Type, Sums> codes(block, values);
        for (int64_t lane = 0; lane < kPanel; lane += kAtOnce * kLanes)
            add_vectors<Type, Sums, Rows, kAtOnce>(totals, block, codes, rows, index, lane, ahead);
    }
    write_totals<Rows>(weight, bias, totals, panel, target);
}

// Each stretch of the panel is taken apart for all tiles.
template <class Type, class Sums>
void multiply_tiles(const Weight& weight, const int8_t* values, const float* bias, int64_t panel, const BlockRows& rows,
                    int64_t num_rows, Target target, void* memory) {
    const BlockScratch<Type> scratch(weight, num_rows);
    auto* codes = static_cast<uint8_t*>(memory) + scratch.codes_at;
    auto* totals = reinterpret_cast<float*>(static_cast<uint8_t*>(memory) + scratch.totals_at);
    const uint8_t* block = weight.panels + panel * rows.num_blocks * Type::kBytes;
    std::fill(totals, totals + num_rows * kPanel, 0.0f);
    constexpr int64_t kTogether = kSuperBlock / Type::kInputs;
    for (int64_t first = 0; first < rows.num_blocks; first += kTogether, block += kTogether * Type::kBytes) {
        const int64_t end = std::min(rows.num_blocks, first + kTogether);
        for (int64_t index = 0; index < end - first; ++index)
            unpack_block(codes + index * Type::kInputs * kPanel,
                         PackedCodes<Type, Sums>(block + index * Type::kBytes, values));
        over_tiles<kBlockTileRows>(RowRange{0, num_rows}, [&](RowRange own, int64_t, int64_t) {
            const BlockRows given = rows_from(rows, own.first, Type::kNumGroups);
            with_rows<kBlockTileRows>(own.count, [&](auto count) {
                add_unpacked<Type, Sums, count>(totals + own.first * kPanel, block, codes, given, first, end);
            });
        });
    }
    for (int64_t row = 0; row < num_rows; ++row)
        write_totals<1>(weight, bias, totals + row * kPanel, panel, target.from(row, 0));
}

}  // namespace penstock
