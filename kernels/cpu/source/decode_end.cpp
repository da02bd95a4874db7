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
    DrawColumns columns;  // a line for each slot
    // Memory to work in, for every row.
    float* largest;
    int64_t* best;
    uint8_t* is_finite;
    double* sums;               // [rows, blocks]
    int64_t* choice_positions;  // of the tokens to choose
    int64_t* token_ids;         // 0 where the logits are not finite
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

void choose_tokens(ChooseTokens call) {
    call.logits.num_rows = call.step->num_rows;
    const int64_t rows = call.logits.num_rows;
    scan({call.logits, call.largest, call.best, call.is_finite});
    const int64_t* const kinds = call.columns.kinds;
    if (std::any_of(call.row_slots, call.row_slots + rows, [&](int64_t slot) { return kinds[slot] != kBest; })) {
        std::copy_n(call.step->context_lengths, rows, call.choice_positions);
        choose({call.logits, call.largest, call.best, call.columns, call.row_slots, call.choice_positions, call.sums,
                call.token_ids});
    } else {
        std::copy_n(call.best, rows, call.token_ids);
    }
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
