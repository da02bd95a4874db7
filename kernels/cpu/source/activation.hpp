// silu(gate) × up with silu(x) = x / (1 + e^-x), for the kernels that compute it.
#pragma once
#include "quantize.hpp"
#include "vector.hpp"

namespace penstock {

struct SiluMultiply {
    const int32_t* num_rows;
    const float* gate_up;  // [rows, 2 × width]
    int64_t width;
    float* output;  // [rows, width]; null where only the quantized form is wanted
    Quantized quantized;
};

inline Vec silu_times(Vec gate, Vec up) {
    const Vec denominator = exp(zero() - gate) + broadcast(1.0f);
    return gate / denominator * up;
}

void silu_multiply(const SiluMultiply& silu);

}  // namespace penstock
