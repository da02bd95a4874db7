// Attention's arguments, and the plan of a step that all layers with the same window share.
//
// A context is cut into splits at absolute positions. A split is computed by itself, in stretches of kStretch keys whose
// sums are carried on, and splits are folded in ascending order. A tile is a few tokens that look at the same blocks in a
// range of splits. It either covers all that its tokens see and writes the output, or leaves a part for each token and
// split, which are folded later by the same operations. So how a step is cut into tiles changes speed, never bits.
#pragma once
#include <cstdint>

#include "kv_layout.hpp"
#include "quantize.hpp"
#include "step.hpp"

namespace penstock {

constexpr int64_t kStretch = 256;  // a multiple of every block size
// Keys of a split: few at first, for a prefix is shared and a context spread over threads by whole splits, and more from
// kShortSplitsEnd on, for folding takes time.
constexpr int64_t kShortSplit = kStretch, kLongSplit = 1024, kShortSplitsEnd = 4096;
constexpr int64_t kNumShortSplits = kShortSplitsEnd / kShortSplit;
// Tokens × query heads to a key head, where more than one token fits. Keys and values of a long context come from beyond
// the second cache, for as many queries as possible at a time.
constexpr int64_t kTileQueries = 48, kTileQueriesOfLong = 144;
constexpr int64_t kLongContext = 2048;
constexpr int32_t kNoParts = INT32_MIN;

struct Tile {
    int32_t first_token;  // in tile_tokens
    int32_t num_tokens;
    int32_t row;  // whose block table serves all of them
    int32_t first_split;
    int32_t end_split;
    int32_t leaves_parts;
};

struct AttentionPlan {
    const Step* step;
    int64_t window;  // keys that a query sees, its own included; 0: all
    int64_t block_size;
    int64_t num_heads;   // of keys; of latents groups of query heads, which all look at the same ones
    int64_t num_shared;  // query heads to each of them
    int64_t max_parts;   // (token, split) pairs that there is room for
    int32_t* counts;      // [2], written: tiles, tokens that left parts
    Tile* tiles;          // [max tokens + max_parts], written
    int32_t* tile_tokens;   // [max tokens + max_parts], written
    int32_t* parts;         // [max tokens], written: a token's part of split s is number parts[token] + s, or kNoParts
    int32_t* parted_tokens;  // [max tokens], written: those that left parts
    int32_t* row_order;      // [2 × max rows]: memory for planning
};

struct Attention {
    const AttentionPlan* plan;
    KVMemory kv;
    const float* query;  // [T, query_stride]: heads of each token, query_step numbers apart
    int64_t query_stride;
    int64_t query_step;
    float scale;
    float softcap;       // a score s becomes softcap × tanh(s / softcap); 0: none
    const float* sinks;  // [query heads]: one score more of each head, whose value is 0; null: none
    float* parts;      // [max_parts, query heads, value_dim + 2]: what a split gave, then its maximum and its sum
    float* output;     // [T, query heads × value_dim]
    Quantized quantized;
};

// The keys that a token sees: [first, end).
struct Sight {
    int64_t first, end;
};
inline Sight sight_of(const Step& step, int64_t token, int64_t window) {
    const int64_t own = step.positions[token] + 1;
    return {window > 0 && own > window ? own - window : 0, step.seen_ends ? step.seen_ends[token] : own};
}
inline int64_t split_at(int64_t position) {
    return position < kShortSplitsEnd ? position / kShortSplit
                                      : kNumShortSplits + (position - kShortSplitsEnd) / kLongSplit;
}
inline int64_t split_begin(int64_t split) {
    return split < kNumShortSplits ? split * kShortSplit : kShortSplitsEnd + (split - kNumShortSplits) * kLongSplit;
}
inline int64_t first_split(Sight sight) { return split_at(sight.first); }
inline int64_t end_split(Sight sight) { return split_at(sight.end - 1) + 1; }

}  // namespace penstock
