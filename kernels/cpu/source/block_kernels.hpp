// The functions of one type of blocks, put together for linear_blocks.cpp's table; each source file has some types.
#pragma once
#include "block_pack.hpp"
#include "block_tiles.hpp"

namespace penstock {

template <class Type, class Reader, const int8_t* Values = nullptr>
struct KernelsOf {
    static int64_t scratch_bytes(const Weight& weight, int64_t num_rows) {
        return BlockScratch<Type>(weight, num_rows).bytes;
    }
    static void multiply(const Weight& weight, const float* bias, int64_t panel, const BlockRows& rows, int64_t num_rows,
                         float* output, int64_t output_stride, void* scratch) {
        const Target target{output, output_stride};
        if (num_rows > kBlockTileRows)
            return multiply_tiles<Type, Partials>(weight, Values, bias, panel, rows, num_rows, target, scratch);
        with_rows<kBlockTileRows>(num_rows, [&](auto count) {
            multiply_one_tile<Type, Partials, count>(weight, Values, bias, panel, rows, target);
        });
    }
    static void read_row(const Weight& weight, int64_t row, float* to) { read_blocks<Type>(weight, Values, row, to); }

    static constexpr BlockKernels kernels() {
        return {Type::kInputs, Type::kBytes, Values, scratch_bytes, prepare_rows<Type, Partials>, multiply,
                pack_blocks<Type, Reader>, read_row};
    }
};

extern const BlockKernels kQ4_0Kernels, kQ4_1Kernels, kQ5_0Kernels, kQ5_1Kernels, kQ8_0Kernels, kIq4NlKernels;
extern const BlockKernels kQ4KKernels, kQ5KKernels, kQ6KKernels, kIq4XsKernels;

}  // namespace penstock
