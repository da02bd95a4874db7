// What the kernels of one step share: how many rows there are and where they lie.
//
// Every kernel is a function of one pointer to its own arguments, which are filled once when a model is loaded and
// never change; whatever changes from step to step stands here, and arguments point to it.
#pragma once
#include <cstdint>

namespace penstock {

// Neighbours in the list of a step's tokens that have an adapter, all with the same one.
struct AdaptedBlock {
    int32_t adapter, first, count;
};

// Each group of layers has its own: all but the tables of blocks, or the segments, are the same.
struct Step {
    int32_t num_tokens;  // T, flat over the rows
    int32_t num_rows;    // R: a row is one request's share of the step
    int32_t num_logits;  // S: tokens whose hidden states go to the head
    int32_t table_width;
    const int64_t* token_ids;        // [T]
    const int64_t* positions;        // [T]
    const int64_t* seen_ends;        // [T]: the end of the keys that each token sees; null: it sees itself last
    const int32_t* token_kinds;      // [T]: which experts serve them, where there are several kinds; null: all 0
    const int64_t* rotations;        // [T]: the tokens' rows in rotary tables
    const int64_t* kv_slots;         // [T]: block × block_size + offset where each token's key and value go
    const int64_t* logit_rows;       // [S]
    const int32_t* query_starts;     // [R + 1]: the tokens of row r are query_starts[r] up to query_starts[r + 1]
    const int32_t* context_lengths;  // [R]: tokens that the row's last query sees, itself included
    const int32_t* block_tables;     // [R, table_width]
    int64_t num_adapted;             // blocks of tokens that have an adapter
    const AdaptedBlock* adapted;     // [num_adapted]
    const int32_t* adapted_tokens;   // their tokens, block after block
    // Tokens whose embeddings are replaced by rows that were made elsewhere.
    int64_t num_placed;
    const int64_t* placed_tokens;  // [num_placed]
    const int64_t* placed_rows;    // [num_placed]: their rows of those that are kept
    const float* kept_rows;        // [any, kept_width]: of each its parts, side by side
    int64_t kept_width;
    // Of a group of layers with states: tokens of one row that read a state first and write one (see kernels/states.py).
    int32_t num_segments;
    const int32_t* segment_starts;    // [num_segments + 1], in tokens
    const int32_t* segment_reads;     // [num_segments]; below 0: zeros
    const int32_t* segment_writes;    // [num_segments]
    const int32_t* segments_of_rows;  // [R + 1]: row r's are segments_of_rows[r] up to segments_of_rows[r + 1]
};

// A rope's cosines and sines; the step says which rows its tokens have.
struct RotaryTable {
    const float* cosines;  // [rotations, numbers that may be rotated]
    const float* sines;    // the same, with the rotation's sign
    const float* query_scales;  // [rotations], or null: what queries are multiplied by
};

// Which numbers of a head cosines and sines turn against one another.
enum class Rotation : int64_t { kNone = 0, kHalves = 1, kPairs = 2 };

// A function of one pointer to its arguments, as Python and a recorded list of calls see it.
using Kernel = void (*)(const void*);

struct Call {
    Kernel kernel;
    const void* arguments;
};

}  // namespace penstock
