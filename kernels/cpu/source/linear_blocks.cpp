// Products, gated products and experts whose weights are ggml's blocks, and what packs them, whatever their types: each
// call asks the weight's own type (block_tiles.hpp), so an expert's two products may be of two types.
#include "block_kernels.hpp"
#include "experts.hpp"
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
        void* const scratch;
        const BlockRows prepared;

        static int64_t scratch_bytes(const Product<Quantized>& product, int64_t count) {
            return block_kernels(product.weight.block_type).scratch_bytes(product.weight, count);
        }
        Block(const Product<Quantized>& product, RowRange rows, void* scratch)
            : product(product),
              rows(rows),
              kernels(block_kernels(product.weight.block_type)),
              scratch(scratch),
              prepared(kernels.prepare(product.rows, rows.first, rows.count, product.weight, scratch)) {}

        void multiply(int64_t panel, Target target) const {
            kernels.multiply(product.weight, product.bias, panel, prepared, rows.count, target.first, target.stride, scratch);
        }
    };
};

void linear_blocks(const Linear& linear) {
    const Product<Quantized> product{linear.quantized_input, linear.weight, linear.bias};
    multiply_in_tiles<Blocks>(product, *linear.num_rows, Target{linear.output, linear.output_stride});
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
    const auto& gated = *static_cast<const penstock::GatedLinear*>(arguments);
    penstock::linear_blocks(*gated.product);
    penstock::gate_rows(*gated.gate);
}
extern "C" void penstock_experts_blocks(const void* arguments) {
    penstock::compute_experts<penstock::Blocks>(*static_cast<const penstock::Experts*>(arguments));
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
