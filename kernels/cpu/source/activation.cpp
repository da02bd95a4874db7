// output = activation(x), or activation(gate) × up, gate and up being the halves of a row.
//
// One pass; the quantized form follows while the row is still in the cache.
#include "activation.hpp"

#include "rows.hpp"
#include "step.hpp"

namespace penstock {

struct ApplyActivation {
    const int32_t* num_rows;
    const float* input;  // [rows, width]
    int64_t width;
    Activation activation;
    float* output;  // [rows, width]; null where only the quantized form is wanted
    Quantized quantized;
};

// Calls write(row, output) for every row, and quantizes what it writes.
template <class Activated, class Write>
static void write_rows(const Activated& a, const Write& write) {
    over_rows(*a.num_rows, a.width, [&](int64_t row) {
        float* output = a.output ? a.output + row * a.width
                                 : static_cast<float*>(thread_scratch(a.width * sizeof(float)));
        write(row, output);
        if (a.quantized.values) quantize_row(output, a.width, a.quantized, row);
    });
}

void gate_rows(const Gate& gate) {
    with_activation(gate.activation, [&](auto activation) {
        write_rows(gate, [&](int64_t row, float* output) {
            const float* gates = gate.gate_up + row * 2 * gate.width;
            const float* ups = gates + gate.width;
            over_lanes(gate.width, [&](int64_t i, auto lanes) {
                store(output + i, activation.of(load(gates + i, lanes)) * load(ups + i, lanes), lanes);
            });
        });
    });
}

static void activate_rows(const ApplyActivation& a) {
    with_activation(a.activation, [&](auto activation) {
        write_rows(a, [&](int64_t row, float* output) {
            const float* input = a.input + row * a.width;
            over_lanes(a.width, [&](int64_t i, auto lanes) {
                store(output + i, activation.of(load(input + i, lanes)), lanes);
            });
        });
    });
}

}  // namespace penstock

extern "C" void penstock_gate(const void* arguments) {
    penstock::gate_rows(*static_cast<const penstock::Gate*>(arguments));
}

extern "C" void penstock_apply_activation(const void* arguments) {
    penstock::activate_rows(*static_cast<const penstock::ApplyActivation*>(arguments));
}
