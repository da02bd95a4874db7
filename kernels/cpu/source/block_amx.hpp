// Products of 8-bit rows with ggml's blocks in AMX tiles: the whole numbers of block_tiles.hpp, so the same bits.
//
// A panel is taken apart 256 inputs at a time, and these meet all rows, square by square. Blocks of 256 have integer
// scales for every 16 or 32 inputs, fewer than a step of a tile takes. So codes are multiplied by their scales first: the
// products have 16 bits and lie in two planes of bytes, of which each is multiplied by the rows,
//
//   Σ_k scales[g] × (code - zero) × x = 256 × Σ_k high × x + Σ_k low × x
//
// and a block's sums are read once. Blocks of 32 have a float16 each: half a step, after which their sums are taken.
#pragma once
#include "block_tiles.hpp"
#include "linear_amx.hpp"

#if defined(__AMX_INT8__)
namespace penstock {

constexpr int64_t kUnpackedBytes = 2 * kSuperBlock * kPanel;  // both planes of 256 inputs

// The rows of a product as tiles read them, and what is made ready of each square for one type of blocks.
struct SquaredRows {
    TiledRows tiled;
    BlockRows* squares;  // of kSquareRows rows each
    uint8_t* memory;     // [squares, bytes_of_square]: what these are made of
    int64_t bytes_of_square;

    static int64_t square_bytes(const Weight& weight) {
        return round_up(block_kernels(weight.block_type).ready_bytes(weight, kSquareRows), kRowAlign);
    }
    static int64_t bytes_of(const Quantized& rows, const Weight& weight, int64_t num_rows) {
        const int64_t squares = (num_rows + kSquareRows - 1) / kSquareRows;
        return TiledRows::bytes_of(num_rows, rows.width) + squares * square_bytes(weight) +
               round_up(squares * sizeof(BlockRows), kRowAlign);
    }
    static SquaredRows in_memory(const Quantized& rows, const Weight& weight, int64_t num_rows, void* memory) {
        const int64_t squares = (num_rows + kSquareRows - 1) / kSquareRows;
        const TiledRows tiled = TiledRows::in_memory(memory, rows.width);
        uint8_t* behind = tiled.bytes + TiledRows::bytes_of(num_rows, rows.width);
        const int64_t bytes = square_bytes(weight);
        return {tiled, reinterpret_cast<BlockRows*>(behind + squares * bytes), behind, bytes};
    }
    void prepare(int64_t square, const Quantized& rows, const Weight& weight, RowRange own) const {
        squares[square] = block_kernels(weight.block_type)
                              .prepare(rows, own.first, own.count, weight, memory + square * bytes_of_square);
        for (int64_t i = 0; i < own.count; ++i)
            tile_row(tiled, square * kSquareRows + i, rows.values + (own.first + i) * rows.width);
    }
};

// Codes less their zero times a scale, in 16 bits: their low bytes, which have no sign, and their high ones.
struct BytePlanes {
    Bytes low, high;
};
inline BytePlanes scaled_codes(Bytes codes, int zero, Ints scale) {
    const __m512i zeros = _mm512_set1_epi16(static_cast<short>(zero)), low_byte = _mm512_set1_epi16(0x00ff);
    const __m512i even_codes = _mm512_and_si512(codes.groups, low_byte), odd_codes = _mm512_srli_epi16(codes.groups, 8);
    const __m512i even = _mm512_mullo_epi16(_mm512_sub_epi16(even_codes, zeros), scale.lanes);
    const __m512i odd = _mm512_mullo_epi16(_mm512_sub_epi16(odd_codes, zeros), scale.lanes);
    const __m512i low = _mm512_or_si512(_mm512_and_si512(even, low_byte), _mm512_slli_epi16(odd, 8));
    const __m512i high = _mm512_or_si512(_mm512_srli_epi16(even, 8), _mm512_and_si512(odd, _mm512_set1_epi16(-256)));
    return {{low}, {high}};
}

// Of each lane's pair the first or the second number, twice.
inline Ints both_first(Ints pairs) {
    const __m512i first = _mm512_and_si512(pairs.lanes, _mm512_set1_epi32(0xffff));
    return {_mm512_or_si512(first, _mm512_slli_epi32(pairs.lanes, 16))};
}
inline Ints both_second(Ints pairs) {
    const __m512i second = _mm512_srli_epi32(pairs.lanes, 16);
    return {_mm512_or_si512(second, _mm512_slli_epi32(second, 16))};
}

// A block of 256 as two planes, [256 / 4][32][4] each.
template <class Type>
void unpack_scaled(uint8_t* to, const uint8_t* block, const int8_t* values) {
    const PackedCodes<Type, WidePartials> codes(block, values);
    const auto* scales = reinterpret_cast<const int8_t*>(block + Type::kScalesAt);
    for (int64_t run = 0; run < kSuperBlock / kRun; ++run, to += kRun * kPanel)
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
            constexpr int64_t lane = v * kLanes;
            const int64_t pair = Type::kGroup == kHalfInputs ? run : run / 2;
            const Ints both = load_int8_pairs(scales + pair * kPanel * 2 + lane * 2);
            const Ints first = both_first(both), second = both_second(both), whole = run % 2 ? second : first;
            unrolled<8>([&](auto t) PENSTOCK_INLINE {
                const Ints scale = Type::kGroup != kHalfInputs ? whole : t < 4 ? first : second;
                const BytePlanes planes = scaled_codes(codes.template four<t>(run, lane), Type::kZero, scale);
                store_bytes(to + t * kPanel * 4 + lane * 4, planes.low);
                store_bytes(to + kSuperBlock * kPanel + t * kPanel * 4 + lane * 4, planes.high);
            });
        });
}

// A block of 32 as signed bytes.
template <class Type>
void unpack_signed(uint8_t* to, const uint8_t* block, const int8_t* values) {
    const PackedCodes<Type, WidePartials> codes(block, values);
    const Bytes zero = repeat_bytes(broadcast_int(Type::kZero));
    unrolled<8>([&](auto t) PENSTOCK_INLINE {
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
            constexpr int64_t lane = v * kLanes;
            store_bytes(to + t * kPanel * 4 + lane * 4, subtract_bytes(codes.template four<t>(0, lane), zero));
        });
    });
}

// totals += what a block's whole sums, sum(row, vector), stand for in the rows of a square.
template <class Type, class Sum>
void add_block(float (*totals)[kPanel], const uint8_t* block, const BlockRows& rows, int64_t num_rows, int64_t index,
               const Sum& sum) {
    over_tiles<kBlockTileRows>(RowRange{0, num_rows}, [&](RowRange own, int64_t, int64_t) {
        const BlockRows given = rows_from(rows, own.first, Type::kNumGroups);
        with_rows<kBlockTileRows>(own.count, [&](auto count) {
            float* to = totals[own.first];
            add_sums<Type, count, kVectors>(
                to, [&](int r, int v) PENSTOCK_INLINE { return to_float(sum(own.first + r, v * kLanes)); }, block, 0, given,
                index);
            if constexpr (Type::kHasMins && Type::kIsSuper) take_mins<Type, count, kVectors>(to, block, 0, given, index);
        });
    });
}

template <class Type, bool kIsTall>
void multiply_super_block(float (*totals)[kPanel], const uint8_t* block, const uint8_t* unpacked, Square square,
                          const BlockRows& rows, int64_t num_rows, int64_t index) {
    alignas(64) int32_t low[kSquareRows][kPanel], high[kSquareRows][kPanel];
    const auto nothing = [] {};
    square.num_steps = kSuperBlock / kStepBytes;
    square.panel = unpacked;
    multiply_square<SignedByUnsigned, kIsTall>(low, square, true, nothing);
    square.panel = unpacked + kSuperBlock * kPanel;
    multiply_square<SignedBySigned, kIsTall>(high, square, true, nothing);
    add_block<Type>(totals, block, rows, num_rows, index, [&](int64_t row, int64_t lane) PENSTOCK_INLINE {
        return load_ints(low[row] + lane) + shift_left(load_ints(high[row] + lane), 8);
    });
}

template <class Type, bool kIsTall>
void multiply_small_block(float (*totals)[kPanel], const uint8_t* block, const uint8_t* unpacked, Square square,
                          const BlockRows& rows, int64_t num_rows, int64_t index) {
    alignas(64) int32_t sums[kSquareRows][kPanel];
    const auto nothing = [] {};
    square.num_steps = 1;
    square.panel = unpacked;
    multiply_square<SignedBySigned, kIsTall>(sums, square, true, nothing);
    add_block<Type>(totals, block, rows, num_rows, index,
                    [&](int64_t row, int64_t lane) PENSTOCK_INLINE { return load_ints(sums[row] + lane); });
}

// totals = the panel × rows, which begin a square. `unpacked` has room for kUnpackedBytes.
template <class Type>
void multiply_block_squares(float (*totals)[kPanel], const uint8_t* panel, const int8_t* values, const SquaredRows& input,
                            RowRange rows, uint8_t* unpacked) {
    constexpr int64_t kBlocks = kSuperBlock / Type::kInputs, kDepth = Type::kIsSuper ? kStepBytes : Type::kInputs;
    const int64_t num_blocks = input.squares->num_blocks;
    std::fill(&totals[0][0], &totals[0][0] + rows.count * kPanel, 0.0f);
    for (int64_t first = 0; first < num_blocks; first += kBlocks) {
        const int64_t count = std::min(kBlocks, num_blocks - first);
        for (int64_t i = 0; i < count; ++i) {
            const uint8_t* block = panel + (first + i) * Type::kBytes;
            for (int64_t line = 0; line < Type::kBytes; line += 64) __builtin_prefetch(block + kFetchAhead + line, 0, 2);
            if constexpr (Type::kIsSuper) unpack_scaled<Type>(unpacked, block, values);
            else unpack_signed<Type>(unpacked + i * Type::kInputs * kPanel, block, values);
        }
        over_each_square(rows.count, kDepth, [&](RowRange own, auto is_tall) {
            const int64_t row = rows.first + own.first;
            const BlockRows& prepared = input.squares[row / kSquareRows];
            for (int64_t i = 0; i < count; ++i) {
                const int64_t input_at = (first + i) * Type::kInputs;
                const uint8_t* block = panel + (first + i) * Type::kBytes;
                const Square square{input.tiled.at(row, input_at / kStepBytes) + input_at % kStepBytes,
                                    input.tiled.tile_bytes(), nullptr, 0};
                if constexpr (Type::kIsSuper)
                    multiply_super_block<Type, is_tall>(totals + own.first, block, unpacked, square, prepared, own.count,
                                                        first);
                else
                    multiply_small_block<Type, is_tall>(totals + own.first, block, unpacked + i * Type::kInputs * kPanel,
                                                        square, prepared, own.count, first + i);
            }
        });
    }
}

}  // namespace penstock
#endif
