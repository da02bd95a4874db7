// Rows of a weight matrix in any float format, laid into the panels that linear_float.cpp reads.
//
// A panel's rows are read side by side, a run of input features at a time, so that reads and writes are both in order.
// Where a number is stored in another format than it came, it is the nearest one.
#include <algorithm>

#include "float_formats.hpp"
#include "pack.hpp"

namespace penstock {
namespace {

constexpr int64_t kRun = 128;  // even, so that runs begin with a whole step of every format

inline void round_run(float* to, const float* from, int64_t count, Fp32) { std::memcpy(to, from, count * sizeof *to); }
inline void round_run(uint16_t* to, const float* from, int64_t count, Fp16) {
    over_lanes(count, [&](int64_t i, auto lanes) { store_fp16(to + i, load(from + i, lanes), lanes); });
}
inline void round_run(uint16_t* to, const float* from, int64_t count, Bf16) {
    std::transform(from, from + count, to, bf16_from_float);
}

// Rows of the source become columns of the panel: Format::kDepth neighbours in each step of kPanel columns.
template <class Format>
void pack_panel(const Pack& pack, PanelRows rows) {
    using Stored = typename Format::Stored;
    constexpr int64_t kDepth = Format::kDepth;
    const int64_t output = pack.first_row + rows.first;
    Stored* panel = float_panel<Format>(pack.weight, output / kPanel) + output % kPanel * kDepth;
    float values[kRun];
    Stored block[kPanel][kRun] = {};
    for (int64_t start = 0; start < pack.weight.in_features; start += kRun) {
        const int64_t count = std::min(kRun, pack.weight.in_features - start);
        for (int64_t row = 0; row < rows.count; ++row) {
            read_source(values, pack, rows.first + row, start, count);
            round_run(block[row], values, count, Format{});
            if (count < kRun) block[row][count] = 0;  // what fills up an odd row's last step
        }
        for (int64_t k = 0; k < count; k += kDepth) {
            Stored* step = panel + (start + k) * kPanel;
            for (int64_t row = 0; row < rows.count; ++row) {
                std::memcpy(step + row * kDepth, &block[row][k], kDepth * sizeof(Stored));
            }
        }
    }
}

template <class Format>
void pack_float(const void* arguments) {
    const Pack& pack = *static_cast<const Pack*>(arguments);
    over_panels(pack.num_rows, pack.first_row, [&](PanelRows rows) { pack_panel<Format>(pack, rows); });
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_pack_fp32(const void* arguments) { penstock::pack_float<penstock::Fp32>(arguments); }
extern "C" void penstock_pack_fp16(const void* arguments) { penstock::pack_float<penstock::Fp16>(arguments); }
extern "C" void penstock_pack_bf16(const void* arguments) { penstock::pack_float<penstock::Bf16>(arguments); }
