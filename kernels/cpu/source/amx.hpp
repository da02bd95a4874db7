// Tiles of AMX: up to sixteen rows of up to 64 bytes, and products of two of them that are added to a third.
//
// The units multiply a tile of rows with a tile of weights whose lines hold 64 bytes each: a line is four neighbours
// (bytes) or two (bf16) of sixteen columns, which is how panels of weights and blocks of keys and values lie anyway.
// Sums of bytes are exact. Of bf16, a product adds the even and the odd neighbours apart, then both to the sum so far.
// A thread's tiles are its own and hold nothing between two chunks.
#pragma once
#include <cstdint>

#if defined(__AMX_TILE__)
#include <immintrin.h>

namespace penstock {

constexpr int64_t kTileHeight = 16;  // rows of a tile, and its columns of sums
constexpr int64_t kTileBytes = 64;   // of a row

// What the processor is told of the eight tiles.
struct TileShapes {
    alignas(64) uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t num_rows[16] = {};

    TileShapes& set(int tile, int64_t rows, int64_t bytes) {
        num_rows[tile] = static_cast<uint8_t>(rows);
        row_bytes[tile] = static_cast<uint16_t>(rows ? bytes : 0);
        return *this;
    }
};
static_assert(sizeof(TileShapes) == 64);

// The thread's tiles have these shapes as long as it lives.
class Tiles {
public:
    explicit Tiles(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
    ~Tiles() { asm volatile("tilerelease"); }
    Tiles(const Tiles&) = delete;
};

template <int kTile>
inline void zero_tile() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// `stride` bytes from row to row.
template <int kTile>
inline void load_tile(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void store_tile(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
}

// add<sums, rows, columns>: what two tiles of these numbers give together.
struct SignedByUnsigned {
    using Sum = int32_t;
    template <int kSums, int kRows, int kColumns>
    static void add() {
        asm volatile("tdpbsud %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(kColumns), "i"(kRows), "i"(kSums));
    }
};
struct SignedBySigned {
    using Sum = int32_t;
    template <int kSums, int kRows, int kColumns>
    static void add() {
        asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(kColumns), "i"(kRows), "i"(kSums));
    }
};
struct UnsignedBySigned {
    using Sum = int32_t;
    template <int kSums, int kRows, int kColumns>
    static void add() {
        asm volatile("tdpbusd %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(kColumns), "i"(kRows), "i"(kSums));
    }
};
struct Bf16ByBf16 {
    using Sum = float;
    template <int kSums, int kRows, int kColumns>
    static void add() {
        asm volatile("tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(kColumns), "i"(kRows), "i"(kSums));
    }
};

}  // namespace penstock
#endif
