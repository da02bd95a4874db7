// Experts whose rows, where there are enough of them, meet a panel in squares of AMX tiles (linear_amx.hpp).
#pragma once
#include "linear_amx.hpp"

#if defined(__AMX_TILE__)
namespace penstock {

constexpr int64_t kMostSquareRows = 128;

// These rows as tiles read them, in memory of the chunk's own.
inline TiledRows tile_block(const Quantized& rows, RowRange block, void* memory) {
    const TiledRows tiled = TiledRows::in_memory(memory, rows.width);
    for (int64_t row = 0; row < block.count; ++row) tile_row(tiled, row, rows.values + (block.first + row) * rows.width);
    return tiled;
}

// A kind of weights of which few rows meet `Few::Block`, and from kFewest on `Squares`: integers both, to the same bits.
template <class Few, class Squares, int64_t kFewest>
struct InSquares : Few {
    static int64_t rows_per_block(const Product<Quantized>& product) {
        const int64_t fitting = kBlockBytes / padded_in(product.weight) / kSquareRows * kSquareRows;
        return std::clamp<int64_t>(fitting, kSquareRows, kMostSquareRows);
    }

    struct Block {
        const bool is_few;
        const typename Few::Block few;  // either has no rows
        const Squares squares;

        static int64_t ready_bytes(const Product<Quantized>& product, int64_t count) {
            return count < kFewest ? Few::Block::ready_bytes(product, count) : Squares::scratch_bytes(product, count);
        }
        static int64_t working_bytes(const Product<Quantized>& product, int64_t count) {
            return count < kFewest ? Few::Block::working_bytes(product, count) : 0;
        }
        Block(const Product<Quantized>& product, RowRange rows, void* scratch)
            : is_few(rows.count < kFewest),
              few(product, RowRange{rows.first, is_few ? rows.count : 0}, scratch),
              squares(product, RowRange{rows.first, is_few ? 0 : rows.count}, scratch) {}

        void multiply(int64_t panel, Target target, void* working) const {
            if (is_few) few.multiply(panel, target, working);
            else squares.multiply(panel, target);
        }
    };
};

}  // namespace penstock
#endif
