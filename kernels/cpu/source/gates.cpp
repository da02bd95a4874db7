// What a gate lets through of each head: of a delta net's, normed, and of attention's.
//
//   output = x / √(mean(x²) + ε) × weight × silu(gate)        the mean over a head
//   output = attended × sigmoid(gate)
//
// Row by row; the quantized form follows while a row is still in the cache.
#include <cmath>

#include "quantize.hpp"
#include "rows.hpp"
#include "vector.hpp"

namespace penstock {

struct GatedNorm {
    const int32_t* num_rows;
    const float* x;     // [rows, heads × size]
    const float* gate;  // likewise
    const float* weight;  // [size]
    float epsilon;
    int64_t num_heads;
    int64_t size;
    float* output;
    Quantized quantized;
};

struct GateHeads {
    const int32_t* num_rows;
    const float* attended;  // [rows, heads × size]
    const float* gates;     // of the first row and head
    int64_t row_step;       // numbers from one row's gates to the next one's
    int64_t gate_step;      // and from one head's
    int64_t num_heads;
    int64_t size;
    float* output;
    Quantized quantized;
};

static Vec sigmoid_divisor(Vec gate) { return exp(zero() - gate) + broadcast(1.0f); }

static void norm_head(const GatedNorm& norm, const float* x, const float* gate, float* output) {
    const Vec scale = broadcast(1.0f / std::sqrt(sum_of_squares(x, norm.size) / static_cast<float>(norm.size) + norm.epsilon));
    over_lanes(norm.size, [&](int64_t i, auto lanes) {
        const Vec normed = load(x + i, lanes) * scale * load(norm.weight + i, lanes), z = load(gate + i, lanes);
        store(output + i, normed * (z / sigmoid_divisor(z)), lanes);
    });
}

static void gated_norm(const GatedNorm& norm) {
    const int64_t width = norm.num_heads * norm.size;
    over_rows(*norm.num_rows, width, [&](int64_t row) {
        for (int64_t at = row * width; at < (row + 1) * width; at += norm.size)
            norm_head(norm, norm.x + at, norm.gate + at, norm.output + at);
        if (norm.quantized.values) quantize_row(norm.output + row * width, width, norm.quantized, row);
    });
}

static void gate_heads(const GateHeads& a) {
    const int64_t width = a.num_heads * a.size;
    over_rows(*a.num_rows, width, [&](int64_t row) {
        for (int64_t head = 0; head < a.num_heads; ++head) {
            const int64_t at = row * width + head * a.size;
            const float* gate = a.gates + row * a.row_step + head * a.gate_step;
            over_lanes(a.size, [&](int64_t i, auto lanes) {
                const Vec divisor = sigmoid_divisor(load(gate + i, lanes));
                store(a.output + at + i, load(a.attended + at + i, lanes) / divisor, lanes);
            });
        }
        if (a.quantized.values) quantize_row(a.output + row * width, width, a.quantized, row);
    });
}

}  // namespace penstock

extern "C" void penstock_gated_norm(const void* arguments) {
    penstock::gated_norm(*static_cast<const penstock::GatedNorm*>(arguments));
}
extern "C" void penstock_gate_heads(const void* arguments) {
    penstock::gate_heads(*static_cast<const penstock::GateHeads*>(arguments));
}
