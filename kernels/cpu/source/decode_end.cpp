// The end of a step that only decodes: one token a row from the logits as they are, into the slots' histories.
//
// Choosing and keeping are two calls, because between them the ranks of a split model agree on what was chosen.
#include <algorithm>

#include "decode.hpp"
#include "sampling_calls.hpp"
#include "sampling_draw.hpp"

namespace penstock {

struct ChooseTokens {
    const Step* step;
    const int64_t* row_slots;
    Logits logits;  // the number of rows is the step's
    // Columns of the slots' parameters.
    const int64_t* kinds;
    const float* temperatures;
    const float* top_ps;
    const float* min_ps;
    const int64_t* top_ks;
    const int64_t* seeds;
    const int64_t* samples;
    // Memory to work in: a scan's, and the rows' own parameters one column after another.
    int64_t capacity;
    float* largest;
    int64_t* best;
    uint8_t* is_finite;
    double* sums;    // [capacity, blocks]
    float* reals;    // [3, capacity]
    int64_t* wholes; // [5, capacity]
    int64_t* token_ids;   // 0 where the logits are not finite
    int64_t* num_faults;  // rows whose logits are not
};

struct KeepTokens {
    const Slots* slots;
    const Step* step;
    const int64_t* row_slots;
    const int64_t* token_ids;
    int32_t* sampled;  // the same tokens, as results carry them
};

namespace {

template <class Value>
const Value* gathered(const ChooseTokens& call, const Value* of_slots, Value* of_rows, int64_t column) {
    Value* const to = of_rows + column * call.capacity;
    for (int64_t row = 0; row < call.logits.num_rows; ++row) to[row] = of_slots[call.row_slots[row]];
    return to;
}

void draw(const ChooseTokens& call, const Logits& logits, const int64_t* kinds) {
    int64_t* const positions = call.wholes + 4 * call.capacity;  // of the tokens to choose
    std::copy_n(call.step->context_lengths, logits.num_rows, positions);
    choose({logits, call.largest, call.best, kinds,
            gathered(call, call.temperatures, call.reals, 0), gathered(call, call.top_ps, call.reals, 1),
            gathered(call, call.min_ps, call.reals, 2), gathered(call, call.top_ks, call.wholes, 1),
            gathered(call, call.seeds, call.wholes, 2), gathered(call, call.samples, call.wholes, 3), positions,
            call.sums, call.token_ids});
}

void choose_tokens(ChooseTokens call) {
    call.logits.num_rows = call.step->num_rows;
    const int64_t rows = call.logits.num_rows;
    scan({call.logits, call.largest, call.best, call.is_finite});
    const int64_t* const kinds = gathered(call, call.kinds, call.wholes, 0);
    if (std::any_of(kinds, kinds + rows, [](int64_t kind) { return kind != kBest; }))
        draw(call, call.logits, kinds);
    else
        std::copy_n(call.best, rows, call.token_ids);
    *call.num_faults = 0;
    for (int64_t row = 0; row < rows; ++row) {
        if (call.is_finite[row]) continue;
        call.token_ids[row] = 0;
        ++*call.num_faults;
    }
}

void keep_tokens(const KeepTokens& call) {
    for (int64_t row = 0; row < call.step->num_rows; ++row) {
        const auto token = static_cast<int32_t>(call.token_ids[row]);
        call.slots->history(call.row_slots[row])[call.step->context_lengths[row]] = token;
        call.sampled[row] = token;
    }
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_choose_tokens(const void* arguments) {
    penstock::choose_tokens(*static_cast<const penstock::ChooseTokens*>(arguments));
}

extern "C" void penstock_keep_tokens(const void* arguments) {
    penstock::keep_tokens(*static_cast<const penstock::KeepTokens*>(arguments));
}
