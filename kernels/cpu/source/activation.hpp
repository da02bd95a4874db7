// silu(gate) × up with silu(x) = x / (1 + e^-x), for the kernels that compute it, and its relatives of experts.
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

// min(g, limit) × sigmoid(slope × min(g, limit)) × (clamp(u, ±limit) + shift), of the gate's g and the up's u.
struct Gating {
    float slope;
    float shift;
    float limit;
};

inline Vec gated(Vec gate, Vec up, const Gating& gating) {
    // The limit comes first: a minimum or maximum with NaN gives its second argument.
    const Vec limit = broadcast(gating.limit), least = broadcast(-gating.limit);
    const Vec within = minimum(limit, gate);
    const Vec denominator = exp(broadcast(-gating.slope) * within) + broadcast(1.0f);
    return within / denominator * (maximum(least, minimum(limit, up)) + broadcast(gating.shift));
}

void silu_multiply(const SiluMultiply& silu);

}  // namespace penstock
