// log_softmax of chosen tokens and of the most likely ones, and the rank of the chosen; no row is copied.
//
//     logprob = logit - largest - log Σ exp(logit - largest)
//     rank    = 1 + tokens with a larger logit + tokens with an equal one and a lower id
//
// Both are summed block by block, pieces shared among the threads; blocks' sums are added in float64, in order.
#include "logarithm.hpp"
#include "sampling.hpp"

namespace penstock {

struct RankedLogprobs {
    Logits logits;
    const int64_t* chosen;  // [rows]
    int64_t num_top;
    double* sums;        // [rows, blocks], to work in
    int32_t* ahead;      // [rows, blocks], to work in: tokens that come before the chosen one
    int32_t* token_ids;  // [rows, 1 + num_top]: the chosen one first
    float* logprobs;     // [rows, 1 + num_top]
    int32_t* ranks;      // [rows]
};

static void sum_block(const RankedLogprobs& wanted, int64_t row, int64_t block) {
    const Logits& logits = wanted.logits;
    const float* values = logits.row(row) + block * kBlock;
    const int64_t count = logits.block_size(block), index = row * logits.num_blocks() + block;
    float weights[kBlock];
    weigh(values, count, largest_of(logits.maxima_of(row), logits.num_blocks()), 1.0f, weights);
    wanted.sums[index] = sum_of(weights, count);

    const int64_t chosen = wanted.chosen[row], before = chosen - block * kBlock;
    const float value = logits.row(row)[chosen];
    int32_t ahead = 0;
    for (int32_t i = 0; i < count; ++i) ahead += values[i] > value;
    for (int32_t i = 0; i < count && i < before; ++i) ahead += values[i] == value;
    wanted.ahead[index] = ahead;
}

static void write_row(const RankedLogprobs& wanted, int64_t row) {
    const Logits& logits = wanted.logits;
    const int64_t blocks = logits.num_blocks(), width = 1 + wanted.num_top, chosen = wanted.chosen[row];
    const double largest = largest_of(logits.maxima_of(row), blocks);
    const double log_total = natural_logarithm(sum_of(wanted.sums + row * blocks, blocks));
    const auto write = [&](int64_t index, int64_t id, float logit) {
        wanted.token_ids[row * width + index] = static_cast<int32_t>(id);
        wanted.logprobs[row * width + index] = static_cast<float>(logit - largest - log_total);
    };
    write(0, chosen, logits.row(row)[chosen]);
    wanted.ranks[row] = 1;
    for (int64_t block = 0; block < blocks; ++block) wanted.ranks[row] += wanted.ahead[row * blocks + block];
    if (wanted.num_top == 0) return;
    Key* keys = static_cast<Key*>(thread_scratch(most_likely_bytes(logits)));
    float* maxima = reinterpret_cast<float*>(keys + logits.width + 1);
    const int64_t found = most_likely(logits, row, wanted.num_top, keys, maxima);
    for (int64_t i = 0; i < wanted.num_top; ++i) {
        write(1 + i, i < found ? id_of(keys[i]) : 0, i < found ? logit_of(keys[i]) : NAN);
    }
}

static void ranked_logprobs(const RankedLogprobs& wanted) {
    find_maxima(wanted.logits);
    over_blocks(wanted.logits, every_row, [&](int64_t row, int64_t block) { sum_block(wanted, row, block); });
    parallel(wanted.logits.num_rows, [&](int64_t row) { write_row(wanted, row); });
}

}  // namespace penstock

extern "C" void penstock_ranked_logprobs(const void* arguments) {
    penstock::ranked_logprobs(*static_cast<const penstock::RankedLogprobs*>(arguments));
}
