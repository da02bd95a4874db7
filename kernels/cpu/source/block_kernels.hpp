// The functions of one type of blocks, put together for linear_blocks.cpp's table; each source file has some types.
#pragma once
#include "block_amx.hpp"
#include "block_crossed.hpp"
#include "block_pack.hpp"
#include "block_tiles.hpp"

namespace penstock {

// Takes no block of a file apart.
struct NoReader {
    static constexpr int64_t kFileBytes = 0;
};

template <class Type, class Reader, const int8_t* Values = nullptr, int UnitsInOne = 1>
struct KernelsOf {
    static constexpr float kUnit = 1.0f / UnitsInOne;

    static int64_t ready_bytes(const Weight& weight, int64_t num_rows) { return ReadyRows<Type>(weight, num_rows).bytes; }
    static int64_t working_bytes(const Weight& weight, int64_t num_rows) {
        return bytes_of_panel<Type>(weight, num_rows);
    }
    static BlockRows prepare(const Quantized& inputs, int64_t first_row, int64_t num_rows, const Weight& weight,
                             void* ready) {
#if defined(PENSTOCK_CROSSES)
        if constexpr (is_crossed<Type>(kMaxBlockRows))
            if (is_crossed<Type>(num_rows)) return prepare_crossed<Type>(inputs, first_row, num_rows, weight, ready);
#endif
        return prepare_rows<Type, Partials>(inputs, first_row, num_rows, weight, ready);
    }
    static void multiply(const Weight& weight, const float* bias, int64_t panel, const BlockRows& rows, int64_t num_rows,
                         float* output, int64_t output_stride, void* working) {
        const Target target{output, output_stride};
#if defined(PENSTOCK_CROSSES)
        if constexpr (is_crossed<Type>(kMaxBlockRows))
            if (is_crossed<Type>(num_rows))
                return multiply_crossed<Type>(weight, Values, bias, panel, rows, num_rows, target, working);
#endif
        if (is_unpacked<Type>(num_rows))
            multiply_unpacked<Type, Partials>(weight, Values, bias, panel, rows, num_rows, target, working);
        else
            multiply_packed<Type, Partials>(weight, Values, bias, panel, rows, num_rows, target);
    }
    static void read_row(const Weight& weight, int64_t row, float* to) { read_blocks<Type>(weight, Values, kUnit, row, to); }

#if defined(__AMX_INT8__)
    static void multiply_squares(float (*totals)[kPanel], const uint8_t* panel, const SquaredRows& input, int64_t first_row,
                                 int64_t num_rows, uint8_t* unpacked) {
        multiply_block_squares<Type>(totals, panel, Values, input, RowRange{first_row, num_rows}, unpacked);
    }
#endif

    static constexpr auto packer() {
        if constexpr (Reader::kFileBytes == 0) return nullptr;
        else return pack_blocks<Type, Reader>;
    }

    static constexpr BlockKernels kernels() {
        return {Type::kInputs, Type::kBytes, kUnit, ready_bytes, working_bytes, prepare, multiply,
                packer(), pack_block<Type>, read_row,
#if defined(__AMX_INT8__)
                multiply_squares,
#endif
        };
    }
};

extern const BlockKernels kQ4_0Kernels, kQ4_1Kernels, kQ5_0Kernels, kQ5_1Kernels, kQ8_0Kernels, kIq4NlKernels;
extern const BlockKernels kQ4KKernels, kQ5KKernels, kQ6KKernels, kIq4XsKernels;
extern const BlockKernels kQ2KKernels, kQ3KKernels, kIq1Kernels, kIq2Kernels, kIq3XxsKernels, kIq3SKernels;

}  // namespace penstock
