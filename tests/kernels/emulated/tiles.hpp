// AMX's tiles as arrays: stands in for the kernels' amx.hpp where a processor has none. A wrong shape ends the process.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__AMX_TILE__)
namespace penstock {

constexpr int64_t kTileHeight = 16;
constexpr int64_t kTileBytes = 64;

struct TileShapes {
    uint16_t row_bytes[8] = {};
    uint8_t num_rows[8] = {};

    TileShapes& set(int tile, int64_t rows, int64_t bytes) {
        if (rows < 0 || rows > kTileHeight || bytes < 0 || bytes > kTileBytes) __builtin_trap();
        num_rows[tile] = static_cast<uint8_t>(rows);
        row_bytes[tile] = static_cast<uint16_t>(rows ? bytes : 0);
        return *this;
    }
};

struct TileRegisters {
    TileShapes shapes;
    uint8_t of[8][kTileHeight][kTileBytes];
};
inline thread_local TileRegisters* tiles_of_thread = nullptr;  // null: none are configured

class Tiles {
public:
    explicit Tiles(const TileShapes& shapes) : registers_{shapes, {}} { tiles_of_thread = &registers_; }
    ~Tiles() { tiles_of_thread = nullptr; }
    Tiles(const Tiles&) = delete;

private:
    TileRegisters registers_;
};

inline TileRegisters& tiles() {
    if (!tiles_of_thread) __builtin_trap();
    return *tiles_of_thread;
}

template <int kTile>
inline void zero_tile() {
    std::memset(tiles().of[kTile], 0, sizeof tiles().of[kTile]);
}
template <int kTile>
inline void load_tile(const void* from, int64_t stride) {
    zero_tile<kTile>();
    for (int row = 0; row < tiles().shapes.num_rows[kTile]; ++row)
        std::memcpy(tiles().of[kTile][row], static_cast<const char*>(from) + row * stride,
                    tiles().shapes.row_bytes[kTile]);
}
template <int kTile>
inline void store_tile(void* to, int64_t stride) {
    for (int row = 0; row < tiles().shapes.num_rows[kTile]; ++row)
        std::memcpy(static_cast<char*>(to) + row * stride, tiles().of[kTile][row], tiles().shapes.row_bytes[kTile]);
}

// Calls body(sum's row, sum's column, four bytes of rows, four bytes of columns, step) for each product of a tile.
template <int kSums, int kRows, int kColumns, class Body>
inline void over_products(const Body& body) {
    const TileShapes& shapes = tiles().shapes;
    const int rows = shapes.num_rows[kSums], columns = shapes.row_bytes[kSums] / 4, steps = shapes.row_bytes[kRows] / 4;
    if (rows != shapes.num_rows[kRows] || steps != shapes.num_rows[kColumns]) __builtin_trap();
    if (shapes.row_bytes[kColumns] != shapes.row_bytes[kSums]) __builtin_trap();
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column)
            for (int step = 0; step < steps; ++step)
                body(row, column, tiles().of[kRows][row] + 4 * step, tiles().of[kColumns][step] + 4 * column, step);
}

template <class RowByte, class ColumnByte>
struct ByteProducts {
    using Sum = int32_t;
    template <int kSums, int kRows, int kColumns>
    static void add() {
        over_products<kSums, kRows, kColumns>([](int row, int column, const uint8_t* a, const uint8_t* b, int) {
            uint8_t* const at = tiles().of[kSums][row] + 4 * column;
            int32_t sum = emulated::load<int32_t>(at);
            for (int i = 0; i < 4; ++i) sum += static_cast<RowByte>(a[i]) * static_cast<ColumnByte>(b[i]);
            std::memcpy(at, &sum, sizeof sum);
        });
    }
};
using SignedByUnsigned = ByteProducts<int8_t, uint8_t>;
using SignedBySigned = ByteProducts<int8_t, int8_t>;
using UnsignedBySigned = ByteProducts<uint8_t, int8_t>;

struct Bf16ByBf16 {
    using Sum = float;
    template <int kSums, int kRows, int kColumns>
    static void add() {
        float neighbours[kTileHeight][kTileBytes / 4][2] = {};  // even and odd ones apart
        over_products<kSums, kRows, kColumns>([&](int row, int column, const uint8_t* a, const uint8_t* b, int) {
            for (int i = 0; i < 2; ++i) {
                float& sum = neighbours[row][column][i];
                const auto number = [&](const uint8_t* pair) {
                    return emulated::from_bf16(emulated::load<uint16_t>(pair + 2 * i));
                };
                sum = emulated::flushed(std::fma(number(a), number(b), sum));
            }
        });
        for (int row = 0; row < tiles().shapes.num_rows[kSums]; ++row)
            for (int column = 0; column < tiles().shapes.row_bytes[kSums] / 4; ++column) {
                uint8_t* const at = tiles().of[kSums][row] + 4 * column;
                const float both = emulated::flushed(neighbours[row][column][0] + neighbours[row][column][1]);
                const float sum = emulated::flushed(emulated::flushed(emulated::load<float>(at)) + both);
                std::memcpy(at, &sum, sizeof sum);
            }
    }
};

}  // namespace penstock
#endif
