// Activations, and what they are multiplied by where an MLP has a gate: for the kernels that compute them.
#pragma once
#include "quantize.hpp"
#include "vector.hpp"

namespace penstock {

enum class Activation : int64_t { kSilu = 0, kGelu = 1, kGeluTanh = 2, kRelu = 3, kRelu2 = 4, kGeluSigmoid = 5 };

// output = activation(gate) × up
struct Gate {
    const int32_t* num_rows;
    const float* gate_up;  // [rows, 2 × width]
    int64_t width;
    Activation activation;
    float* output;  // [rows, width]; null where only the quantized form is wanted
    Quantized quantized;
};

// x / (1 + e^-x)
struct Silu {
    static Vec of(Vec x) { return x / (exp(zero() - x) + broadcast(1.0f)); }
};

// x × Φ(x) = x / 2 × (1 + erf(x / √2)), by erfc(t) = e^-t·P(t) of t = |x| / √2, to 2e-7 of x. Beyond t = 4 float32 has no
// digits left for it beside 1.
struct Gelu {
    static Vec of(Vec x) {
        const Vec t = absolute(x) * broadcast(0.70710678f);
        Vec series = broadcast(kSeries[0]);
        for (int64_t i = 1; i < kTerms; ++i) series = fma(series, t, broadcast(kSeries[i]));
        const Vec beside = where_greater(t, broadcast(4.0f), zero(), exp(zero() - t * series));
        const Vec twice = where_greater(x, zero(), broadcast(2.0f) - beside, beside);
        return x * broadcast(0.5f) * twice;
    }
    static constexpr int64_t kTerms = 10;
    static constexpr float kSeries[kTerms] = {1.24004134e-6f,  -2.17781890e-5f,  1.68952494e-4f, -7.43036100e-4f,
                                              1.80068088e-3f,  -2.52171099e-4f,  -1.91193447e-2f, 1.02772132e-1f,
                                              6.36619687e-1f,  1.12837923f};
};

// x / 2 × (1 + tanh(u)) = x / (1 + e^-2u) with u = √(2/π) × (x + 0.044715 x³)
struct GeluTanh {
    static Vec of(Vec x) {
        const Vec inner = fma(x * x * x, broadcast(0.044715f), x);
        return x / (exp(inner * broadcast(-1.5957691216f)) + broadcast(1.0f));
    }
};

// x × sigmoid(1.702 x)
struct GeluSigmoid {
    static Vec of(Vec x) { return x / (exp(x * broadcast(-1.702f)) + broadcast(1.0f)); }
};

// The zero comes first: a maximum with NaN gives its second argument.
struct Relu {
    static Vec of(Vec x) { return maximum(zero(), x); }
};
struct Relu2 {
    static Vec of(Vec x) { return Relu::of(x) * Relu::of(x); }
};

// Calls compute(activation) with the struct above that it names.
template <class Compute>
inline void with_activation(Activation activation, const Compute& compute) {
    switch (activation) {
        case Activation::kSilu: return compute(Silu{});
        case Activation::kGelu: return compute(Gelu{});
        case Activation::kGeluTanh: return compute(GeluTanh{});
        case Activation::kRelu: return compute(Relu{});
        case Activation::kRelu2: return compute(Relu2{});
        case Activation::kGeluSigmoid: return compute(GeluSigmoid{});
    }
}

// With g = min(gate, limit): g × sigmoid(slope × (g + cubic × g³)) × (clamp(up, ±limit) + shift)
struct Gating {
    float slope;
    float shift;
    float limit;
    float cubic;
};

inline Vec gated(Vec gate, Vec up, const Gating& gating) {
    // The limit comes first: a minimum or maximum with NaN gives its second argument.
    const Vec limit = broadcast(gating.limit), least = broadcast(-gating.limit);
    const Vec within = minimum(limit, gate);
    const Vec inner = gating.cubic == 0.0f ? within : fma(within * within * within, broadcast(gating.cubic), within);
    const Vec denominator = exp(broadcast(-gating.slope) * inner) + broadcast(1.0f);
    return within / denominator * (maximum(least, minimum(limit, up)) + broadcast(gating.shift));
}

void gate_rows(const Gate& gate);

}  // namespace penstock
