// output = silu(gate) × up with silu(x) = x / (1 + e^-x), gate and up being the halves of a row.
//
// One pass; the quantized form follows while the row is still in the cache.
#include "quantize.hpp"
#include "rows.hpp"
#include "step.hpp"
#include "vector.hpp"

namespace penstock {

struct SiluMultiply {
    const int32_t* num_rows;
    const float* gate_up;  // [rows, 2 × width]
    int64_t width;
    float* output;  // [rows, width]; null where only the quantized form is wanted
    Quantized quantized;
};

static void silu_multiply(const SiluMultiply& silu) {
    const int64_t width = silu.width;
    over_rows(*silu.num_rows, width, [&](int64_t row) {
        const float* gates = silu.gate_up + row * 2 * width;
        const float* ups = gates + width;
        float* output = silu.output ? silu.output + row * width
                                    : static_cast<float*>(thread_scratch(width * sizeof(float)));
        over_lanes(width, [&](int64_t i, auto lanes) {
            const Vec gate = load(gates + i, lanes);
            const Vec denominator = exp(zero() - gate) + broadcast(1.0f);
            store(output + i, gate / denominator * load(ups + i, lanes), lanes);
        });
        if (silu.quantized.values) quantize_row(output, width, silu.quantized, row);
    });
}

}  // namespace penstock

extern "C" void penstock_silu_multiply(const void* arguments) {
    penstock::silu_multiply(*static_cast<const penstock::SiluMultiply*>(arguments));
}
