// What a mixture of experts does whatever its weights are stored as: which rows meet which expert, and each token's sum.
#include "experts.hpp"

#include <algorithm>

namespace penstock {

ExpertPlan ExpertPlan::of(const Experts& experts, RowRange tokens) {
    const int64_t count = tokens.count * experts.top_k, num_experts = experts.num_experts;
    const int32_t* chosen = experts.experts + tokens.first * experts.top_k;
    auto* blocks = static_cast<ExpertRows*>(
        region_scratch(count * sizeof(ExpertRows) + (2 * count + num_experts + 1) * sizeof(int32_t)));
    auto* pairs = reinterpret_cast<int32_t*>(blocks + count);
    int32_t *places = pairs + count, *starts = places + count;

    const auto here = [&](int64_t pair) {
        const int64_t number = chosen[pair] - experts.first;
        return number >= 0 && number < num_experts ? number : -1;
    };
    std::fill(starts, starts + num_experts + 1, 0);
    for (int64_t pair = 0; pair < count; ++pair)
        if (here(pair) >= 0) ++starts[here(pair) + 1];
    for (int64_t expert = 0; expert < num_experts; ++expert) starts[expert + 1] += starts[expert];
    // A start moves to its expert's end, and thereby to the next one's start.
    for (int64_t pair = 0; pair < count; ++pair) {
        const int64_t expert = here(pair);
        places[pair] = expert < 0 ? -1 : starts[expert]++;
        if (expert >= 0) pairs[places[pair]] = static_cast<int32_t>(pair);
    }
    std::copy_backward(starts, starts + num_experts, starts + num_experts + 1);
    starts[0] = 0;
    return {tokens, starts[num_experts], pairs, places, starts, blocks};
}

int64_t ExpertPlan::cut(int64_t num_experts, int64_t most_rows) const {
    int64_t count = 0;
    for (int64_t expert = 0; expert < num_experts; ++expert) {
        const int64_t rows = starts[expert + 1] - starts[expert], pieces = (rows + most_rows - 1) / most_rows;
        for (int64_t piece = 0; piece < pieces; ++piece) {
            const int64_t first = piece * rows / pieces, end = (piece + 1) * rows / pieces;
            blocks[count++] = {expert, {starts[expert] + first, end - first}};
        }
    }
    return count;
}

void add_up(const Experts& experts, const ExpertPlan& plan, RowRange columns, Target outputs) {
    const int64_t top_k = experts.top_k;
    over_rows(plan.tokens.count, top_k * columns.count, [&](int64_t token) {
        const int32_t* places = plan.places + token * top_k;
        const float* weights = experts.weights + (plan.tokens.first + token) * top_k;
        float* to = experts.output + (plan.tokens.first + token) * experts.hidden + columns.first;
        over_lanes(columns.count, [&](int64_t i, auto lanes) {
            Vec total = zero();
            for (int64_t rank = 0; rank < top_k; ++rank) {
                if (places[rank] < 0) continue;
                total = fma(broadcast(weights[rank]), load(outputs.row(places[rank]) + i, lanes), total);
            }
            store(to + i, total, lanes);
        });
    });
}

}  // namespace penstock
