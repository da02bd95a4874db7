// A mixture of experts: of each token the weighted sum of what its experts compute.
//
//   output[t] = Σ_rank weights[t, rank] × down_e(activation(gate_e(x[t]), up_e(x[t])))    e = experts[t, rank]
//
// A pair is a token and one of its experts that are here. The rows of all pairs are gathered by expert; a task is some
// of an expert's rows × some panels of its weight. A task of the first product computes the same outputs of the gate and
// of the up, and leaves what the activation makes of them; one of the second leaves the outputs of pairs, of which each
// token then adds up its own, in the order of their ranks. So a token's bits depend on that token alone.
//
// Tokens are taken so many at a time as the memory between the products is made for, and the second product's outputs
// so many columns at a time as stay in a cache until they are added up.
#pragma once
#include "activation.hpp"
#include "linear.hpp"
#include "rows.hpp"
#include "tiles.hpp"

namespace penstock {

struct Experts {
    const int32_t* num_rows;    // tokens
    const float* input;         // [tokens, hidden]: what float weights multiply
    Quantized quantized_input;  // what integer weights multiply
    const int32_t* experts;     // [tokens, top_k]
    const float* weights;       // [tokens, top_k]
    int64_t top_k;
    int64_t first;        // the number of the first expert here
    int64_t num_experts;  // here
    int64_t hidden;
    int64_t width;              // of the activation
    Weight gate_up;             // [2 × width, hidden] of one expert after the other, each filled up to whole panels
    Weight down;                // [hidden, width] likewise
    const float* gate_up_bias;  // [num_experts, 2 × width], or null
    const float* down_bias;     // [num_experts, hidden], or null
    Gating gating;
    uint8_t* memory;  // for what lies between the products
    int64_t memory_bytes;
    float* output;  // [tokens, hidden]
};

// Some rows of one expert.
struct ExpertRows {
    int64_t expert;
    RowRange rows;
};

// The pairs of some tokens, in the order of their experts. Lies in the region's scratch memory.
struct ExpertPlan {
    RowRange tokens;
    int64_t num_pairs;
    const int32_t* pairs;   // [num_pairs]: token × top_k + rank, tokens counted from the first one taken
    const int32_t* places;  // [tokens × top_k]: where a pair stands among them; -1: its expert is elsewhere
    const int32_t* starts;  // [num_experts + 1]: the pairs of each expert
    ExpertRows* blocks;     // room for what `cut` makes

    static ExpertPlan of(const Experts& experts, RowRange tokens);
    // Cuts the rows of all experts into blocks of at most so many; returns how many blocks there are.
    int64_t cut(int64_t num_experts, int64_t most_rows) const;
};

constexpr int64_t kRunBytes = 768 << 10;   // of neighbouring panels, which a task reads one behind the other
constexpr int64_t kTasksPerThread = 8;     // at least, so that none waits long for the last one
constexpr int64_t kSumsBytes = 256 << 10;  // of gates and ups, which stay in the second cache until the activation

constexpr int64_t kApart = 16;  // floats between rows that would else lie pages apart, and push one another out of caches
constexpr int64_t kSummedBytes = 4 << 20;  // of the second product's outputs

inline int64_t divide_up(int64_t all, int64_t by) { return (all + by - 1) / by; }

// How many of an expert's panels a task has, where so many blocks of rows meet theirs: long runs are read faster. An
// output is whole within its task, so its bits don't depend on the threads.
inline int64_t panels_per_task(int64_t panels, int64_t panel_bytes, int64_t num_blocks) {
    const int64_t for_threads = divide_up(kTasksPerThread * num_threads(), std::max<int64_t>(1, num_blocks));
    const int64_t tasks = std::max(for_threads, divide_up(panels * panel_bytes, kRunBytes));
    return divide_up(panels, std::min(tasks, panels));
}

// The weight of one of several experts.
inline Weight weight_of_expert(const Weight& all, int64_t expert, int64_t out_features, int64_t panel_bytes) {
    Weight own = all;
    own.out_features = out_features;
    own.panels += expert * num_panels(own) * panel_bytes;
    if (own.scales) own.scales += expert * num_panels(own) * kPanel;
    return own;
}

// Outputs [first, first + count) of the gate and of the up, which lie behind one another, and their activation.
template <class Kind>
void multiply_gate_and_up(const Experts& experts, const Product<typename Kind::Rows>& product, RowRange rows,
                          RowRange outputs, Target activated) {
    using Block = typename Kind::Block;
    const auto panels_of = [](int64_t first, int64_t count) {
        return RowRange{first / kPanel, (first + count + kPanel - 1) / kPanel - first / kPanel};
    };
    const RowRange halves[] = {panels_of(outputs.first, outputs.count),
                               panels_of(experts.width + outputs.first, outputs.count)};
    const int64_t stride = (halves[0].count + halves[1].count) * kPanel;
    const int64_t ready_bytes = round_up(Block::ready_bytes(product, rows.count), kRowAlign);
    const int64_t working_bytes = round_up(Block::working_bytes(product, rows.count), kRowAlign);
    const int64_t sums_bytes = rows.count * stride * static_cast<int64_t>(sizeof(float));
    auto* scratch = static_cast<uint8_t*>(thread_scratch(ready_bytes + working_bytes + sums_bytes));
    auto *working = scratch + ready_bytes, *own_sums = working + working_bytes;
    const Block block(product, rows, scratch);
    const Target sums{reinterpret_cast<float*>(own_sums), stride};
    int64_t column = 0;
    for (const RowRange& half : halves)
        for (int64_t panel = half.first; panel < half.first + half.count; ++panel, column += kPanel)
            block.multiply(panel, sums.from(0, column), working);
    // Where the width is no multiple of a panel, the up's outputs begin within one.
    const int64_t to_up = halves[0].count * kPanel + (experts.width + outputs.first) % kPanel;
    for (int64_t i = 0; i < rows.count; ++i) {
        const float *gates = sums.row(i), *ups = gates + to_up;
        over_lanes(outputs.count, [&](int64_t lane, auto lanes) {
            const Vec made = gated(load(gates + lane, lanes), load(ups + lane, lanes), experts.gating);
            store(activated.row(rows.first + i) + outputs.first + lane, made, lanes);
        });
    }
}

// All pairs through the gate, the up and the activation.
template <class Kind>
void multiply_inwards(const Experts& experts, const ExpertPlan& plan, const typename Kind::Rows& input,
                      Target activated) {
    using Rows = typename Kind::Rows;
    const int64_t width = experts.width, panel_bytes = Kind::panel_bytes(experts.gate_up);
    const auto product_of = [&](int64_t expert) {
        const float* bias = experts.gate_up_bias ? experts.gate_up_bias + expert * 2 * width : nullptr;
        return Product<Rows>{input, weight_of_expert(experts.gate_up, expert, 2 * width, panel_bytes), bias};
    };
    const int64_t most_rows = Kind::rows_per_block(product_of(0));
    const int64_t num_blocks = plan.cut(experts.num_experts, most_rows);
    const int64_t sums_bytes = 2 * kPanel * sizeof(float) * std::max<int64_t>(1, std::min(most_rows, plan.num_pairs));
    const int64_t run = panels_per_task(divide_up(width, kPanel), panel_bytes, num_blocks);
    const int64_t group = std::clamp<int64_t>(kSumsBytes / sums_bytes, 1, run) * kPanel;
    const int64_t num_groups = divide_up(width, group);
    parallel(num_blocks * num_groups, [&](int64_t task) {
        const ExpertRows& own = plan.blocks[task / num_groups];
        const int64_t first = task % num_groups * group;
        multiply_gate_and_up<Kind>(experts, product_of(own.expert), own.rows,
                                   RowRange{first, std::min(group, width - first)}, activated);
    });
}

// Columns [first, first + count) of the token's sum over its experts.
void add_up(const Experts& experts, const ExpertPlan& plan, RowRange columns, Target outputs);

// All pairs through the second product, and the sums over each token's.
template <class Kind>
void multiply_outwards(const Experts& experts, const ExpertPlan& plan, const typename Kind::Rows& inner, float* memory,
                       int64_t memory_floats) {
    using Rows = typename Kind::Rows;
    using Block = typename Kind::Block;
    const int64_t hidden = experts.hidden, panel_bytes = Kind::panel_bytes(experts.down);
    const auto product_of = [&](int64_t expert) {
        const float* bias = experts.down_bias ? experts.down_bias + expert * hidden : nullptr;
        return Product<Rows>{inner, weight_of_expert(experts.down, expert, hidden, panel_bytes), bias};
    };
    const int64_t panels = divide_up(hidden, kPanel);
    const int64_t num_blocks = plan.cut(experts.num_experts, Kind::rows_per_block(product_of(0)));
    const int64_t pairs = std::max<int64_t>(1, plan.num_pairs);
    const int64_t fitting = std::min<int64_t>(memory_floats, std::max<int64_t>(kSummedBytes / 4, pairs * (kPanel + kApart)));
    const int64_t at_a_time = std::clamp<int64_t>((fitting / pairs - kApart) / kPanel, 1, panels);
    const Target outputs{memory, at_a_time * kPanel + kApart};
    for (int64_t first = 0; first < panels; first += at_a_time) {
        const int64_t end = std::min(panels, first + at_a_time);
        const int64_t group = panels_per_task(end - first, panel_bytes, num_blocks);
        const int64_t num_groups = divide_up(end - first, group);
        parallel(num_blocks * num_groups, [&](int64_t task) {
            const ExpertRows& own = plan.blocks[task / num_groups];
            const auto product = product_of(own.expert);
            const int64_t ready_bytes = round_up(Block::ready_bytes(product, own.rows.count), kRowAlign);
            const int64_t working_bytes = Block::working_bytes(product, own.rows.count);
            auto* scratch = static_cast<uint8_t*>(thread_scratch(ready_bytes + working_bytes));
            const Block block(product, own.rows, scratch);
            const int64_t first_panel = first + task % num_groups * group;
            for (int64_t panel = first_panel; panel < std::min(end, first_panel + group); ++panel)
                block.multiply(panel, outputs.from(own.rows.first, (panel - first) * kPanel), scratch + ready_bytes);
        });
        const int64_t column = first * kPanel;
        add_up(experts, plan, RowRange{column, std::min(hidden, end * kPanel) - column}, outputs);
    }
}

// What a pair needs of the memory: its rows before the products, and floats behind them. What the second product reads
// takes the place of what the first one read, and what it writes that of what the first one wrote.
struct PairMemory {
    int64_t row_bytes, floats;

    template <class Kind>
    static PairMemory of(const Experts& experts) {
        return {std::max(Kind::row_bytes(experts.hidden, experts.gate_up), Kind::row_bytes(experts.width, experts.down)),
                std::max(experts.width, kPanel) + kApart};
    }
    int64_t tokens_in(int64_t bytes, int64_t top_k) const {
        const int64_t pairs = (bytes - kRowAlign) / (row_bytes + floats * static_cast<int64_t>(sizeof(float)));
        return std::max<int64_t>(1, pairs / top_k);
    }
};

template <class Kind>
void compute_experts(const Experts& experts) {
    const auto memory = PairMemory::of<Kind>(experts);
    const int64_t most = memory.tokens_in(experts.memory_bytes, experts.top_k);
    for (int64_t first = 0; first < *experts.num_rows; first += most) {
        const RowRange tokens{first, std::min(most, *experts.num_rows - first)};
        const ExpertPlan plan = ExpertPlan::of(experts, tokens);
        const int64_t pairs = plan.num_pairs, hidden = experts.hidden, width = experts.width;
        const int64_t row_bytes = round_up(pairs * memory.row_bytes, kRowAlign);
        auto* floats = reinterpret_cast<float*>(experts.memory + row_bytes);
        const Target activated{floats, width + kApart};

        const auto input = Kind::rows_in(experts.memory, pairs, hidden, experts.gate_up);
        over_rows(pairs, hidden, [&](int64_t row) {
            Kind::take_row(input, row, experts, tokens.first + plan.pairs[row] / experts.top_k);
        });
        multiply_inwards<Kind>(experts, plan, input, activated);
        const auto inner = Kind::rows_in(experts.memory, pairs, width, experts.down);
        over_rows(pairs, width, [&](int64_t row) { Kind::put_row(inner, row, activated.row(row), width); });
        multiply_outwards<Kind>(experts, plan, inner, floats,
                                (experts.memory_bytes - row_bytes) / static_cast<int64_t>(sizeof(float)));
    }
}

}  // namespace penstock
