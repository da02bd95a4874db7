// Products, gated products and experts whose weights are ggml's blocks, and what packs them, whatever their types: each
// call asks the weight's own type (block_tiles.hpp), so an expert's two products may be of two types.
#include "block_kernels.hpp"
#include "experts.hpp"
#include "experts_amx.hpp"
#include "integer_rows.hpp"
#include "linear_output.hpp"
#include "pack.hpp"
#include "step.hpp"

namespace penstock {

// As weights/packed.py numbers them.
const BlockKernels& block_kernels(int64_t type) {
    static constexpr const BlockKernels* kTypes[] = {
        nullptr,        &kQ4_0Kernels, &kQ4_1Kernels, &kQ5_0Kernels, &kQ5_1Kernels, &kQ8_0Kernels,
        &kIq4NlKernels, &kQ4KKernels,  &kQ5KKernels,  &kQ6KKernels,  &kIq4XsKernels,
        &kQ2KKernels,   &kQ3KKernels,  &kIq1Kernels,  &kIq2Kernels,  &kIq3XxsKernels, &kIq3SKernels,
    };
    return *kTypes[type];
}

struct PackBlocks {
    const uint8_t* blocks;  // of the file, [num_rows, row_bytes]
    int64_t row_stride;     // bytes from row to row
    int64_t num_rows;
    int64_t first_row;  // the source's first row is this output feature of the weight
    Weight weight;      // written
};

// Blocks that were taken apart elsewhere.
struct PackBlockParts {
    const uint8_t* codes;  // [num_rows, in_features]
    const uint16_t* d;     // [num_rows, blocks]
    const uint16_t* dmin;  // likewise, or null
    const int8_t* scales;  // [num_rows, blocks, 16]
    const int8_t* mins;    // likewise, or null
    int64_t num_rows;
    int64_t first_row;
    Weight weight;  // written
};

namespace {

struct Blocks : IntegerKind {
    static int64_t panel_bytes(const Weight& weight) { return block_panel_bytes(weight); }
    static int64_t panels_per_chunk(const Weight& weight, int64_t num_rows) {
        return penstock::panels_per_chunk(num_panels(weight), panel_bytes(weight), num_rows);
    }

    struct Block {
        const Product<Quantized>& product;
        const RowRange rows;
        const BlockKernels& kernels;
        const BlockRows prepared;

        static int64_t ready_bytes(const Product<Quantized>& product, int64_t count) {
            return block_kernels(product.weight.block_type).ready_bytes(product.weight, count);
        }
        static int64_t working_bytes(const Product<Quantized>& product, int64_t count) {
            return block_kernels(product.weight.block_type).working_bytes(product.weight, count);
        }
        Block(const Product<Quantized>& product, RowRange rows, void* ready)
            : product(product),
              rows(rows),
              kernels(block_kernels(product.weight.block_type)),
              prepared(kernels.prepare(product.rows, rows.first, rows.count, product.weight, ready)) {}

        void multiply(int64_t panel, Target target, void* working) const {
            kernels.multiply(product.weight, product.bias, panel, prepared, rows.count, target.first, target.stride, working);
        }
    };
};

#if defined(__AMX_INT8__)
constexpr int64_t kFewestBlockedForTiles = 24;  // rows

void finish_square(const Weight& weight, const float* bias, const float (*totals)[kPanel], int64_t panel, int64_t num_rows,
                   Target target) {
    for (int64_t i = 0; i < num_rows; ++i) write_totals<1>(weight, bias, totals[i], panel, target.from(i, 0));
}

SquaredRows square_rows(const Linear& linear) {
    const Quantized& rows = linear.quantized_input;
    const int64_t num_rows = *linear.num_rows;
    void* memory = region_scratch(SquaredRows::bytes_of(rows, linear.weight, num_rows));
    const SquaredRows squared = SquaredRows::in_memory(rows, linear.weight, num_rows, memory);
    parallel(divide_up(num_rows, kSquareRows), [&](int64_t square) {
        const int64_t first = square * kSquareRows;
        squared.prepare(square, rows, linear.weight, RowRange{first, std::min(kSquareRows, num_rows - first)});
    });
    return squared;
}

template <class Output>
void multiply_in_squares(const Linear& linear, const Output& output) {
    const BlockKernels& kernels = block_kernels(linear.weight.block_type);
    const SquaredRows input = square_rows(linear);
    const int64_t panel_bytes = block_panel_bytes(linear.weight), num_rows = *linear.num_rows;
    over_square_chunks<Output>(linear.weight, panel_bytes, num_rows, [&](const Panels& panels, RowRange block) {
        const int64_t height = round_up(block.count, kSquareRows), sums_bytes = height * kPanel * sizeof(float);
        auto* scratch = static_cast<uint8_t*>(thread_scratch(kUnpackedBytes + sums_bytes + Output::scratch_bytes(height)));
        auto* totals = reinterpret_cast<float(*)[kPanel]>(scratch + kUnpackedBytes);
        Output own = output;
        own.take(block, scratch + kUnpackedBytes + sums_bytes);
        for (int64_t turn = panels.first; turn < panels.end; ++turn) {
            kernels.multiply_squares(totals, panels.at(turn, 0), input, block.first, block.count, scratch);
            for (int64_t row = 0; row < block.count; row += kSquareRows)
                own.write(totals + row, turn, RowRange{row, std::min(kSquareRows, block.count - row)});
        }
    });
}

auto finish_of(const Linear& linear) {
    return [&linear](const float(*totals)[kPanel], int64_t panel, RowRange rows, Target target) {
        finish_square(linear.weight, linear.bias, totals, panel, rows.count, target);
    };
}

// Some rows of an expert, and a panel at a time.
struct BlockSquares {
    const Product<Quantized>& product;
    const int64_t num_rows;
    const SquaredRows input;
    uint8_t* const unpacked;
    float (*const totals)[kPanel];

    static int64_t scratch_bytes(const Product<Quantized>& product, int64_t count) {
        return SquaredRows::bytes_of(product.rows, product.weight, count) + kUnpackedBytes +
               round_up(count, kSquareRows) * kPanel * sizeof(float);
    }
    BlockSquares(const Product<Quantized>& product, RowRange rows, void* scratch)
        : product(product),
          num_rows(rows.count),
          input(SquaredRows::in_memory(product.rows, product.weight, rows.count, scratch)),
          unpacked(static_cast<uint8_t*>(scratch) + SquaredRows::bytes_of(product.rows, product.weight, rows.count)),
          totals(reinterpret_cast<float(*)[kPanel]>(unpacked + kUnpackedBytes)) {
        for (int64_t first = 0; first < rows.count; first += kSquareRows)
            input.prepare(first / kSquareRows, product.rows, product.weight,
                          RowRange{rows.first + first, std::min(kSquareRows, rows.count - first)});
    }

    void multiply(int64_t panel, Target target) const {
        const Weight& weight = product.weight;
        const uint8_t* packed = weight.panels + panel * block_panel_bytes(weight);
        block_kernels(weight.block_type).multiply_squares(totals, packed, input, 0, num_rows, unpacked);
        finish_square(weight, product.bias, totals, panel, num_rows, target);
    }
};
using ExpertsBlocks = InSquares<Blocks, BlockSquares, kFewestBlockedForTiles>;
#else
using ExpertsBlocks = Blocks;
#endif

void linear_blocks(const Linear& linear) {
#if defined(__AMX_INT8__)
    if (*linear.num_rows >= kFewestBlockedForTiles)
        return multiply_in_squares(linear, PlainOutput{linear, finish_of(linear)});
#endif
    const Product<Quantized> product{linear.quantized_input, linear.weight, linear.bias};
    multiply_in_tiles<Blocks>(product, *linear.num_rows, Target{linear.output, linear.output_stride});
}

void gated_linear_blocks(const GatedLinear& gated) {
    const Linear& linear = *gated.product;
#if defined(__AMX_INT8__)
    if (*linear.num_rows >= kFewestBlockedForTiles && gated.gate->width % kPanel == 0)
        return multiply_gated(gated, finish_of(linear), [&](const auto& output) { multiply_in_squares(linear, output); });
#endif
    linear_blocks(linear);
    gate_rows(*gated.gate);
}

void pack_rows(const PackBlocks& pack, PanelRows rows) {
    const BlockKernels& kernels = block_kernels(pack.weight.block_type);
    const int64_t num_blocks = pack.weight.in_features / kernels.inputs;
    for (int64_t i = rows.first; i < rows.first + rows.count; ++i) {
        const int64_t row = pack.first_row + i;
        auto* panel = const_cast<uint8_t*>(pack.weight.panels) + row / kPanel * num_blocks * kernels.block_bytes;
        kernels.pack_row(panel, row % kPanel, pack.blocks + i * pack.row_stride, num_blocks);
    }
}

void pack_parts(const PackBlockParts& pack, PanelRows rows) {
    const BlockKernels& kernels = block_kernels(pack.weight.block_type);
    const int64_t inputs = kernels.inputs, num_blocks = pack.weight.in_features / inputs;
    for (int64_t i = rows.first; i < rows.first + rows.count; ++i) {
        const int64_t row = pack.first_row + i;
        auto* block = const_cast<uint8_t*>(pack.weight.panels) + row / kPanel * num_blocks * kernels.block_bytes;
        for (int64_t index = i * num_blocks; index < (i + 1) * num_blocks; ++index, block += kernels.block_bytes) {
            FileBlock own{};
            own.d = pack.d[index];
            std::memcpy(own.scales, pack.scales + index * 16, 16);
            std::memcpy(own.codes, pack.codes + index * inputs, inputs);
            if (pack.dmin) own.dmin = pack.dmin[index];
            if (pack.mins) std::memcpy(own.mins, pack.mins + index * 16, 16);
            kernels.pack_block(block, row % kPanel, own);
        }
    }
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_linear_blocks(const void* arguments) {
    penstock::linear_blocks(*static_cast<const penstock::Linear*>(arguments));
}
extern "C" void penstock_gated_linear_blocks(const void* arguments) {
    penstock::gated_linear_blocks(*static_cast<const penstock::GatedLinear*>(arguments));
}
extern "C" void penstock_experts_blocks(const void* arguments) {
    penstock::compute_experts<penstock::ExpertsBlocks>(*static_cast<const penstock::Experts*>(arguments));
}
extern "C" void penstock_pack_blocks(const void* arguments) {
    const auto& pack = *static_cast<const penstock::PackBlocks*>(arguments);
    penstock::over_panels(pack.num_rows, pack.first_row,
                          [&](penstock::PanelRows rows) { penstock::pack_rows(pack, rows); });
}
extern "C" void penstock_pack_block_parts(const void* arguments) {
    const auto& pack = *static_cast<const penstock::PackBlockParts*>(arguments);
    penstock::over_panels(pack.num_rows, pack.first_row,
                          [&](penstock::PanelRows rows) { penstock::pack_parts(pack, rows); });
}
