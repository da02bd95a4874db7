// One token per row: the best, or one drawn by the inverse of the cumulative distribution.
//
//     weight = exp((logit - largest) / temperature)
//     top_k: the draw is among the first k tokens in order, top_p then keeps of these a share of their sum
//     top_p: the draw is among the first tokens in order that hold this share of all weights
//     else:  the draw is among all tokens, in the order of their ids
//
// Weights below min_p are left out. Where all weights must be summed, blocks are summed in float32 and shared among
// the threads, and the blocks' sums are added in float64, in order; a row is then drawn by one thread.
#include "random.hpp"
#include "sampling_calls.hpp"
#include "sampling_draw.hpp"

namespace penstock {

static int64_t line_of(const Choose& choose, int64_t row) { return choose.lines ? choose.lines[row] : row; }

static int64_t kind_of(const Choose& choose, int64_t row) { return choose.columns.kinds[line_of(choose, row)]; }

static Draw draw_of(const Choose& choose, int64_t row) {
    const int64_t line = line_of(choose, row);
    return {choose.logits,
            row,
            choose.largest[row],
            {choose.columns, line},
            choose.sums + row * choose.logits.num_blocks(),
            uniform(choose.columns.seed[line], choose.columns.sample[line], choose.positions[row])};
}

static int64_t token_of(const Choose& choose, int64_t row) {
    switch (kind_of(choose, row)) {
        case kOfTopK: return draw_of_top_k(draw_of(choose, row));
        case kOfTopP: return draw_of_top_p(draw_of(choose, row));
        case kOfAll: return draw_of_all(draw_of(choose, row));
        default: return choose.best[row];
    }
}

static void sum_blocks(const Choose& choose) {
    const Logits& logits = choose.logits;
    const auto wants_sums = [&](int64_t row) {
        return kind_of(choose, row) == kOfTopP || kind_of(choose, row) == kOfAll;
    };
    over_blocks(logits, wants_sums, [&](int64_t row, int64_t block) {
        const DrawParameters parameters(choose.columns, line_of(choose, row));
        float weights[kBlock];
        const int64_t count = logits.block_size(block);
        weigh(logits.row(row) + block * kBlock, count, choose.largest[row], parameters.temperature, weights);
        // Of all tokens' weights top_p asks for a share; a draw among all has no use for those that are too light.
        if (kind_of(choose, row) == kOfAll) parameters.leave_out(weights, count);
        choose.sums[row * logits.num_blocks() + block] = sum_of(weights, count);
    });
}

void choose(const Choose& choose) {
    sum_blocks(choose);
    parallel(choose.logits.num_rows, [&](int64_t row) {
        // Where nothing may be chosen, or a logit is broken, the caller marks the row.
        choose.token_ids[row] = std::isfinite(choose.largest[row]) ? token_of(choose, row) : 0;
    });
}

}  // namespace penstock

extern "C" void penstock_choose(const void* arguments) {
    penstock::choose(*static_cast<const penstock::Choose*>(arguments));
}
