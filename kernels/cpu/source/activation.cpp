// output = silu(gate) × up, gate and up being the halves of a row.
//
// One pass; the quantized form follows while the row is still in the cache.
#include "activation.hpp"

#include "rows.hpp"
#include "step.hpp"

namespace penstock {

void silu_multiply(const SiluMultiply& silu) {
    const int64_t width = silu.width;
    over_rows(*silu.num_rows, width, [&](int64_t row) {
        const float* gates = silu.gate_up + row * 2 * width;
        const float* ups = gates + width;
        float* output = silu.output ? silu.output + row * width
                                    : static_cast<float*>(thread_scratch(width * sizeof(float)));
        over_lanes(width, [&](int64_t i, auto lanes) {
            store(output + i, silu_times(load(gates + i, lanes), load(ups + i, lanes)), lanes);
        });
        if (silu.quantized.values) quantize_row(output, width, silu.quantized, row);
    });
}

}  // namespace penstock

extern "C" void penstock_silu_multiply(const void* arguments) {
    penstock::silu_multiply(*static_cast<const penstock::SiluMultiply*>(arguments));
}
