// Where the squares of a product go: into the rows of its output, or through a gate.
//
// A gated product's outputs are a gate and what it lets through, in panels that take turns. The gate's squares wait in
// scratch memory; each square that follows is let through by its own and leaves as activation(gate) × up.
#pragma once
#include <algorithm>

#include "activation.hpp"
#include "linear.hpp"
#include "rows.hpp"
#include "tiles.hpp"

namespace penstock {

constexpr int64_t kSquareRows = 32;

// A product and the gate that reads it, which a kernel may compute as one.
struct GatedLinear {
    const Linear* product;           // of gates and what they let through, one behind the other
    const Gate* gate;                // of the product's rows
};

// `Finish` makes outputs of sums: finish(sums, panel, rows, target). Rows are counted from the first one taken.
template <class Finish>
struct PlainOutput {
    static constexpr bool kTakesTurns = false;
    const Linear& linear;
    const Finish finish;
    RowRange rows{};

    static int64_t scratch_bytes(int64_t) { return 0; }
    void take(RowRange taken, uint8_t*) { rows = taken; }
    Target lines(int64_t turn, RowRange own) const {
        return {linear.output + (rows.first + own.first) * linear.output_stride + turn * kPanel, linear.output_stride};
    }
    template <class Sum>
    void write(const Sum (*sums)[kPanel], int64_t turn, RowRange own) const {
        finish(sums, turn, RowRange{rows.first + own.first, own.count}, lines(turn, own));
    }
};

template <class Finish>
PlainOutput(const Linear&, Finish) -> PlainOutput<Finish>;

inline void gate_square(Activation activation, const float (*gates)[kPanel], const float (*ups)[kPanel], Target target,
                        int64_t count) {
    with_activation(activation, [&](auto activate) {
        for (int64_t i = 0; i < count; ++i)
            for (int64_t lane = 0; lane < kPanel; lane += kLanes)
                store(target.row(i) + lane, activate.of(load(gates[i] + lane)) * load(ups[i] + lane));
    });
}

template <class Finish>
struct GatedOutput {
    static constexpr bool kTakesTurns = true;
    Target output;
    int64_t num_gates;  // panels
    Activation activation;
    const Finish finish;
    RowRange rows{};
    float (*gates)[kPanel] = nullptr;

    static int64_t scratch_bytes(int64_t height) { return height * sizeof(*gates); }
    void take(RowRange taken, uint8_t* scratch) {
        rows = taken;
        gates = reinterpret_cast<float(*)[kPanel]>(scratch);
    }
    Target lines(int64_t turn, RowRange own) const {
        if (turn % 2 == 0) return {};
        return {output.row(rows.first + own.first) + turn / 2 * kPanel, output.stride};
    }
    template <class Sum>
    void write(const Sum (*sums)[kPanel], int64_t turn, RowRange own) const {
        const RowRange all{rows.first + own.first, own.count};
        if (turn % 2 == 0) return finish(sums, turn / 2, all, Target{gates[own.first], kPanel});
        alignas(64) float ups[kSquareRows][kPanel];
        finish(sums, num_gates + turn / 2, all, Target{ups[0], kPanel});
        gate_square(activation, gates + own.first, ups, lines(turn, own), own.count);
    }
};

// Calls multiply(output), which computes all rows of the product, then quantizes what came of them. Where nobody wants
// the rows themselves, the product's own memory holds them: a little further apart than they are long, since rows at
// multiples of a page push one another out of the first cache.
template <class Finish, class Multiply>
void multiply_gated(const GatedLinear& gated, const Finish& finish, const Multiply& multiply) {
    const Gate& gate = *gated.gate;
    const Target output = gate.output ? Target{gate.output, gate.width}
                                      : Target{gated.product->output, gate.width + kPanel};
    multiply(GatedOutput<Finish>{output, gate.width / kPanel, gate.activation, finish});
    if (!gate.quantized.values) return;
    over_rows(*gate.num_rows, gate.width, [&](int64_t row) {
        quantize_row(output.row(row), gate.width, gate.quantized, row);
    });
}

// The same in tiles of registers: a gate's panel and what it lets through wait in the second cache until both are there.
// Few rows, which wait for memory, read the weights in their order instead, and are gated afterwards.
template <class Kind>
void multiply_gated_in_tiles(const GatedLinear& gated, const Product<typename Kind::Rows>& product) {
    const Gate& gate = *gated.gate;
    const int64_t num_rows = *gate.num_rows, num_gates = gate.width / kPanel;
    if (num_rows < kFewestForUnits || gate.width % kPanel) {
        multiply_in_tiles<Kind>(product, num_rows, Target{gated.product->output, gated.product->output_stride});
        return gate_rows(gate);
    }
    const int64_t group = std::max<int64_t>(1, Kind::panels_per_chunk(product.weight, num_rows) / 2);
    multiply_gated(gated, nullptr, [&](const auto& output) {
        over_panels_in_tiles<Kind>(product, num_rows, num_gates, group, 2 * kPanel * sizeof(float),
                                   [&](const auto& block, int64_t panel, void* working, void* own) {
            const RowRange rows = block.rows;
            auto* gates = static_cast<float(*)[kPanel]>(own);
            auto* ups = gates + rows.count;
            block.multiply(panel, Target{gates[0], kPanel}, working);
            block.multiply(num_gates + panel, Target{ups[0], kPanel}, working);
            gate_square(gate.activation, gates, ups, output.output.from(rows.first, panel * kPanel), rows.count);
        });
    });
}

}  // namespace penstock
