// Changes logits before a token is chosen, row by row and in place.
//
//     mask:        logit = allowed ? logit : -inf
//     repetition:  each token of a history once: logit > 0 ? logit / penalty : logit × penalty
//     generated:   each token of a history's end once: logit - (count × frequency + presence)
//
// A thread has one counter for every token of the vocabulary, and clears those that a history names.
#include "sampling.hpp"

namespace penstock {

// Some of the rows of logits, each with the tokens before it.
struct History {
    float* logits;  // [rows, width]
    int64_t width;
    int64_t count;           // of the rows meant
    const int64_t* rows;     // [count], of the logits
    const int32_t* tokens;   // [slots, stride]
    int64_t stride;
    const int64_t* slots;    // [count]
    const int64_t* lengths;  // [count]
};

struct ApplyMask {
    float* logits;  // [rows, width]
    int64_t width;
    int64_t count;         // of the rows meant
    const int64_t* rows;   // [count], of the logits
    const uint32_t* bits;  // [count, words]: lowest bit first; 1 allows
};

struct PenalizeRepetition {
    History history;
    const float* penalties;  // [count]
};

struct PenalizeGenerated {
    History history;
    const int64_t* starts;  // [count]: position of the first generated token
    const float* frequencies;
    const float* presences;
};

// body(row's index, its logits, its tokens, a counter for every token of the vocabulary with any content).
template <class Body>
static void over_histories(const History& history, const Body& body) {
    parallel(history.count, [&](int64_t index) {
        float* logits = history.logits + history.rows[index] * history.width;
        const int32_t* tokens = history.tokens + history.slots[index] * history.stride;
        body(index, logits, tokens, static_cast<int32_t*>(thread_scratch(history.width * sizeof(int32_t))));
    });
}

static void penalize_repetition(const PenalizeRepetition& wanted) {
    over_histories(wanted.history, [&](int64_t index, float* logits, const int32_t* tokens, int32_t* is_done) {
        const int64_t length = wanted.history.lengths[index];
        const float penalty = wanted.penalties[index];
        for (int64_t i = 0; i < length; ++i) is_done[tokens[i]] = 0;
        for (int64_t i = 0; i < length; ++i) {
            if (is_done[tokens[i]]) continue;
            is_done[tokens[i]] = 1;
            float& logit = logits[tokens[i]];
            logit = logit > 0 ? logit / penalty : logit * penalty;
        }
    });
}

static void penalize_generated(const PenalizeGenerated& wanted) {
    over_histories(wanted.history, [&](int64_t index, float* logits, const int32_t* tokens, int32_t* counts) {
        const int64_t start = wanted.starts[index], length = wanted.history.lengths[index];
        for (int64_t i = start; i < length; ++i) counts[tokens[i]] = 0;
        for (int64_t i = start; i < length; ++i) ++counts[tokens[i]];
        for (int64_t i = start; i < length; ++i) {
            if (counts[tokens[i]] == 0) continue;
            const float by_count = static_cast<float>(counts[tokens[i]]) * wanted.frequencies[index];
            logits[tokens[i]] -= by_count + wanted.presences[index];
            counts[tokens[i]] = 0;
        }
    });
}

static void apply_mask(const ApplyMask& mask) {
    const int64_t words = (mask.width + 31) / 32;
    parallel(mask.count, [&](int64_t index) {
        for (int64_t word = 0; word < words; ++word) {
            const uint32_t allowed = mask.bits[index * words + word];
            float* logits = mask.logits + mask.rows[index] * mask.width + word * 32;
            const int32_t count = static_cast<int32_t>(word * 32 + 32 <= mask.width ? 32 : mask.width - word * 32);
            for (int32_t i = 0; i < count; ++i) logits[i] = allowed >> i & 1 ? logits[i] : -INFINITY;
        }
    });
}

}  // namespace penstock

extern "C" void penstock_apply_mask(const void* arguments) {
    penstock::apply_mask(*static_cast<const penstock::ApplyMask*>(arguments));
}
extern "C" void penstock_penalize_repetition(const void* arguments) {
    penstock::penalize_repetition(*static_cast<const penstock::PenalizeRepetition*>(arguments));
}
extern "C" void penstock_penalize_generated(const void* arguments) {
    penstock::penalize_generated(*static_cast<const penstock::PenalizeGenerated*>(arguments));
}
