// Packs MXFP4 as checkpoints store it: codes and exponents are taken over as they are, into the order of mxfp4.hpp.
#include "mxfp4.hpp"
#include "pack.hpp"

namespace penstock {
namespace {

struct PackMxfp4 {
    const uint8_t* codes;      // [num_rows][blocks][16]: byte i holds inputs 2i (low nibble) and 2i + 1
    const uint8_t* exponents;  // [num_rows][blocks]
    int64_t codes_stride;      // bytes from row to row
    int64_t exponents_stride;
    int64_t num_rows;
    int64_t first_row;  // the source's first row is this output feature of the weight
    Weight weight;      // written
};

// Four nibbles as four bytes.
inline uint32_t spread(uint32_t nibbles) {
    nibbles = (nibbles | nibbles << 8) & 0x00ff00ff;
    return (nibbles | nibbles << 4) & 0x0f0f0f0f;
}

void pack_row(uint8_t* panel, int64_t lane, const uint8_t* codes, const uint8_t* exponents, int64_t num_blocks) {
    for (int64_t block = 0; block < num_blocks; ++block, codes += kMxfp4Block / 2) {
        panel[Mxfp4Shape::scales_at(block) + lane] = exponents[block];
        uint8_t* to = panel + Mxfp4Shape::nibbles_at(block) + lane * 4;
        for (int64_t k = 0; k < kMxfp4Block; k += 8, to += kPanel * 4) {
            uint32_t eight;
            std::memcpy(&eight, codes + k / 2, 4);
            const uint32_t pairs = spread(eight & 0xffff) | spread(eight >> 16) << 4;
            std::memcpy(to, &pairs, 4);
        }
    }
}

void pack_rows(const PackMxfp4& pack, PanelRows rows) {
    const Mxfp4Shape shape(pack.weight);
    for (int64_t i = rows.first; i < rows.first + rows.count; ++i) {
        const int64_t row = pack.first_row + i;
        auto* panel = const_cast<uint8_t*>(pack.weight.panels) + row / kPanel * shape.panel_bytes;
        pack_row(panel, row % kPanel, pack.codes + i * pack.codes_stride, pack.exponents + i * pack.exponents_stride,
                 pack.weight.in_features / kMxfp4Block);
    }
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_pack_mxfp4(const void* arguments) {
    const auto& pack = *static_cast<const penstock::PackMxfp4*>(arguments);
    penstock::over_panels(pack.num_rows, pack.first_row,
                          [&](penstock::PanelRows rows) { penstock::pack_rows(pack, rows); });
}
