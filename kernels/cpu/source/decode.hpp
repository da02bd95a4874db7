// The steps in which every row computes its newest token and samples the next one, as nearly all steps do.
//
// Their rows go from the plan's columns to the step, and from logits into the slots' histories, without the
// interpreter. What a slot is stands in columns that the interpreter keeps as well.
#pragma once
#include <cstdint>

#include "step.hpp"

namespace penstock {

// By slot, where its tokens lie in the memory of one group of layers: a table of blocks, or a state to read and one to
// write.
struct GroupTables {
    int64_t num_blocks;  // or states
    int64_t max_blocks;  // in a line of `tables`; 0: the group has states
    int64_t* num_table;  // blocks in a slot's line of `tables`
    int32_t* tables;     // [num_slots, max_blocks]
    int32_t* reads;      // [num_slots], of states
    int32_t* writes;     // [num_slots]

    bool has_states() const { return max_blocks == 0; }
    int32_t* table(int64_t slot) const { return tables + slot * max_blocks; }
};

struct Slots {
    int64_t num_slots;
    int64_t max_model_len;  // tokens in a line of `histories`
    int64_t block_size;
    int64_t num_groups;
    const GroupTables* groups;  // [num_groups]
    const uint8_t* is_taken;
    const uint8_t* is_plain;  // its next token is chosen from the logits as they are, and nothing else is asked for
    int64_t* num_tokens;      // known, or being sampled
    int64_t* num_computed;
    const int64_t* rotation_starts;  // a position's row in the rotary tables is that much further on
    int32_t* histories;  // [num_slots, max_model_len]

    int32_t* history(int64_t slot) const { return histories + slot * max_model_len; }
};

}  // namespace penstock
