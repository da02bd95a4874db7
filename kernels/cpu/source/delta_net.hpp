// A gated delta net's step, on some columns of one head's state.
//
//   S = kept × S + k (rate × (v - kept × Sᵀ k))ᵀ        S is [key_dim, columns], k and q are key_dim numbers
//   o = Sᵀ q
//
// Lanes are columns, and a sum over key_dim goes from the first number to the last, so neither how columns are cut nor
// how many tokens follow one another changes a bit. A state is read and written once a token: what the pass over it
// sums for the query it sums for the next token's key, too.
#pragma once
#include <cstdint>

#include "quads.hpp"
#include "vector.hpp"

namespace penstock {

// What one head reads of a token, and writes.
struct HeadToken {
    const float* query;
    const float* key;
    const float* value;  // from the first of the columns on
    float kept;
    float rate;
    float* output;
};

// Where some columns of a state lie.
struct Columns {
    const float* from;  // the state before
    float* to;          // and behind; may be the same
    int64_t stride;     // numbers from one row to the next
    int64_t key_dim;
    const float* ahead = nullptr;  // as many columns of another state, fetched during the last token's pass
};

template <int kVectors>
struct Lanes {
    Vec vectors[kVectors];
};

// Sᵀ k
template <int kVectors>
inline Lanes<kVectors> read_state(const Columns& columns, const float* key) {
    Lanes<kVectors> sums;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums.vectors[v] = zero();
    const float* row = columns.from;
    for (int64_t i = 0; i < columns.key_dim; ++i, row += columns.stride) {
        const Vec factor = broadcast(key[i]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v)
            sums.vectors[v] = fma(load(row + v * kLanes), factor, sums.vectors[v]);
    }
    return sums;
}

// One token: `read` is Sᵀ k of the state before. Gives Sᵀ next_key of the state behind, if there is a next one.
template <int kVectors, bool kHasNext>
inline Lanes<kVectors> step_state(const Columns& columns, const HeadToken& token, Lanes<kVectors> read,
                                  const float* next_key) {
    const Vec kept = broadcast(token.kept), rate = broadcast(token.rate);
    Lanes<kVectors> change, output, next;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
        change.vectors[v] = (load(token.value + v * kLanes) - kept * read.vectors[v]) * rate;
        output.vectors[v] = next.vectors[v] = zero();
    }
    const float* from = columns.from;
    float* to = columns.to;
    for (int64_t i = 0; i < columns.key_dim; ++i, from += columns.stride, to += columns.stride) {
        const Vec key = broadcast(token.key[i]), query = broadcast(token.query[i]);
        const Vec following = kHasNext ? broadcast(next_key[i]) : zero();
        if (!kHasNext && columns.ahead)
            fetch_to_second(columns.ahead + i * columns.stride, kVectors * kLanes * sizeof(float));
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
            const Vec state = fma(key, change.vectors[v], load(from + v * kLanes) * kept);
            store(to + v * kLanes, state);
            output.vectors[v] = fma(state, query, output.vectors[v]);
            if constexpr (kHasNext) next.vectors[v] = fma(state, following, next.vectors[v]);
        }
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(token.output + v * kLanes, output.vectors[v]);
    return next;
}

// Tokens [begin, end), at least one; `token_of(number)` gives what each reads.
template <int kVectors, class TokenOf>
inline void step_tokens(Columns columns, int64_t begin, int64_t end, const TokenOf& token_of) {
    HeadToken token = token_of(begin);
    Lanes<kVectors> read = read_state<kVectors>(columns, token.key);
    for (int64_t number = begin; number + 1 < end; ++number) {
        const HeadToken next = token_of(number + 1);
        read = step_state<kVectors, true>(columns, token, read, next.key);
        columns.from = columns.to;
        token = next;
    }
    step_state<kVectors, false>(columns, token, read, nullptr);
}

}  // namespace penstock
