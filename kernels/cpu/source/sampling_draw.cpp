// Draws of one row among the first k tokens in order, and among all of them by id: formulas in sampling_choose.cpp.
#include "sampling_draw.hpp"

#include <algorithm>

namespace penstock {

// As many of the first tokens as the rules keep; `total` is what top_p asks a share of.
static int64_t draw_of_ordered(const Key* keys, const float* weights, int64_t count, double total, const Draw& draw) {
    const DrawParameters& parameters = draw.parameters;
    const double share = parameters.top_p * total;
    double kept = 0;
    int64_t last = 0;
    for (; last < count; ++last) {
        // A token is kept while the share of those before it falls short of top_p.
        const bool is_kept = (kept < share || parameters.top_p >= 1) && weights[last] >= parameters.least_weight();
        if (!is_kept && last > 0) break;
        kept += weights[last];
    }
    const double target = draw.uniform * kept;
    double before = 0;
    for (int64_t index = 0; index < last; ++index) {
        before += weights[index];
        if (before > target) return id_of(keys[index]);
    }
    return id_of(keys[last - 1]);
}

int64_t draw_of_top_k(const Draw& draw) {
    const Logits& logits = draw.logits;
    Key* keys = static_cast<Key*>(thread_scratch(most_likely_bytes(logits) + logits.width * sizeof(float)));
    float* maxima = reinterpret_cast<float*>(keys + logits.width + 1);
    float* weights = maxima + logits.num_blocks();
    const int64_t found = most_likely(logits, draw.row, std::min(draw.parameters.top_k, logits.width), keys, maxima);
    for (int64_t i = 0; i < found; ++i) weights[i] = logit_of(keys[i]);
    weigh(weights, found, draw.largest, draw.parameters.temperature, weights);
    double total = 0;
    for (int64_t i = 0; i < found; ++i) total += weights[i];
    return draw_of_ordered(keys, weights, found, total, draw);
}

// Which block holds the target, then which of its tokens.
int64_t draw_of_all(const Draw& draw) {
    const Logits& logits = draw.logits;
    const int64_t last_block = logits.num_blocks() - 1;
    const double target = draw.uniform * sum_of(draw.sums, logits.num_blocks());
    double before = 0;
    int64_t block = 0;
    while (block < last_block && before + draw.sums[block] <= target) before += draw.sums[block++];

    float weights[kBlock];
    const int64_t count = logits.block_size(block);
    weigh(logits.row(draw.row) + block * kBlock, count, draw.largest, draw.parameters.temperature, weights);
    draw.parameters.leave_out(weights, count);
    // The block's own sum was rounded otherwise: where the target lies beyond its last token, that one is meant.
    int64_t chosen = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (weights[i] == 0) continue;
        chosen = i;
        before += weights[i];
        if (before > target) break;
    }
    return block * kBlock + chosen;
}

}  // namespace penstock
