// Products of bytes with half the multiplications, for processors that multiply bytes as numbers of 16 bits.
//
//   Σ u₀ x₀ + u₁ x₁  =  Σ (u₀ + x₁) (u₁ + x₀)  -  Σ u₀ u₁  -  Σ x₀ x₁        (Winograd, 1968)
//
// Codes u are unsigned, inputs x signed. The products of codes alone are found once a panel, those of inputs once a row,
// so 32 products take one multiplication and three additions instead of two and two. Sums wrap around and so does what is
// taken off: the result is the same whole number.
//
// Inputs are widened once for all panels of a chunk, tile by tile: [run][row][2][8][2] for runs of 32 inputs, those at odd
// places before those at even ones.
#pragma once
#include "partials.hpp"
#include "tiles.hpp"

namespace penstock {

constexpr int64_t kCrossedRun = 32;

// Where there are fewer multipliers than adders.
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(__AVXVNNI__) && !defined(PENSTOCK_WIDE_PARTIALS)
#define PENSTOCK_CROSSES 1
constexpr bool kCrosses = true;
constexpr int kCrossedRows = 4, kCrossedVectors = 2;  // of a tile, as registers hold them

// The bytes of each group of four at even and at odd places, as numbers of 16 bits.
struct Halves {
    __m256i even, odd;
};
inline Halves split(Bytes x) {
    return {_mm256_and_si256(x.groups, _mm256_set1_epi16(0x00ff)), _mm256_srli_epi16(x.groups, 8)};
}
inline Halves widen(const int8_t* run) {
    const __m256i bytes = load_bytes(reinterpret_cast<const uint8_t*>(run)).groups;
    return {_mm256_maddubs_epi16(_mm256_set1_epi16(1), bytes), _mm256_srai_epi16(bytes, 8)};
}
inline Halves broadcast_four(const int16_t* run, int four) {
    return {_mm256_set1_epi32(word_at(run + kCrossedRun / 2 + 2 * four)), _mm256_set1_epi32(word_at(run + 2 * four))};
}
inline Ints add_own_products(Ints sum, Halves x) { return {_mm256_add_epi32(sum.lanes, _mm256_madd_epi16(x.even, x.odd))}; }
inline Ints add_crossed(Ints sum, Halves codes, Halves inputs) {
    const __m256i first = _mm256_add_epi16(codes.even, inputs.odd), second = _mm256_add_epi16(codes.odd, inputs.even);
    __m256i total = _mm256_add_epi32(sum.lanes, _mm256_madd_epi16(first, second));
    asm("" : "+x"(total));  // else g++ 12 adds products in another order, with all that are waiting in memory
    return {total};
}

// Widens the first runs of some rows and calls body(row, run, inputs) for each, rows counted from the first.
template <class Body>
inline void cross_rows(int16_t* to, const int8_t* values, int64_t width, int64_t num_runs, RowRange rows, const Body& body) {
    over_tiles<kCrossedRows>(rows, [&](RowRange tile, int64_t, int64_t) {
        for (int64_t row = 0; row < tile.count; ++row)
            for (int64_t run = 0; run < num_runs; ++run) {
                int16_t* own = to + (run * tile.count + row) * kCrossedRun;
                const Halves inputs = widen(values + (tile.first + row) * width + run * kCrossedRun);
                store_bytes(reinterpret_cast<uint8_t*>(own), {inputs.odd});
                store_bytes(reinterpret_cast<uint8_t*>(own + kCrossedRun / 2), {inputs.even});
                body(tile.first + row - rows.first, run, inputs);
            }
        to += tile.count * num_runs * kCrossedRun;
    });
}

// sums += what codes and inputs of a run make crossed; codes(four, vector) are bytes of the panel.
template <int Rows, class Codes>
PENSTOCK_INLINE inline void add_crossed_run(Ints (&sums)[Rows][kCrossedVectors], const Codes& codes, const int16_t* inputs,
                                            Fetch& ahead) {
    unrolled<8>([&](auto four) PENSTOCK_INLINE {
        if constexpr (four % 2 == 0) fetch<1>(ahead);
        Halves own[kCrossedVectors];
        unrolled<kCrossedVectors>([&](auto v) PENSTOCK_INLINE { own[v] = split(codes(four, v)); });
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
            const Halves given = broadcast_four(inputs + r * kCrossedRun, four);
#pragma GCC unroll 2
            for (int v = 0; v < kCrossedVectors; ++v) sums[r][v] = add_crossed(sums[r][v], own[v], given);
        }
    });
}

// sums[vector] += Σ u₀ u₁ of a run.
template <class Codes>
PENSTOCK_INLINE inline void add_own_run(Ints (&sums)[kVectors], const Codes& codes, Fetch& ahead) {
    unrolled<8>([&](auto four) PENSTOCK_INLINE {
        fetch<1>(ahead);
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { sums[v] = add_own_products(sums[v], split(codes(four, v))); });
    });
}

// Calls find(ahead), which goes over the panel's own products, and then tile(rows, ahead, count) for each tile of a block,
// where count is a constant. All of them fetch their share of what comes next.
template <class Find, class Tile>
inline void over_crossed_tiles(RowRange block, const uint8_t* panel, int64_t panel_bytes, int64_t run_bytes, const Find& find,
                               const Tile& tile) {
    const int64_t num_passes = 1 + (block.count + kCrossedRows - 1) / kCrossedRows;
    const auto ahead = [&](int64_t pass) { return fetch_for(panel, panel_bytes, run_bytes / 8, pass, num_passes, true); };
    find(ahead(0));
    over_tiles<kCrossedRows>(block, [&](RowRange own, int64_t index, int64_t) {
        with_rows<kCrossedRows>(own.count, [&](auto count) {
            if constexpr (count >= kFewestOfSeveral<kCrossedRows>) tile(own, ahead(index + 1), count);
        });
    });
}
#else
constexpr bool kCrosses = false;
#endif

}  // namespace penstock
