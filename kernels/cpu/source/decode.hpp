// The steps in which every row computes its newest token and samples the next one, as nearly all steps do.
//
// Their rows go from the plan's columns to the step, and from logits into the slots' histories, without the
// interpreter. What a slot is stands in columns that the interpreter keeps as well.
#pragma once
#include <cstdint>

#include "step.hpp"

namespace penstock {

struct Slots {
    int64_t num_slots;
    int64_t max_model_len;  // tokens in a line of `histories`
    int64_t max_blocks;     // in a line of `tables`
    int64_t num_blocks;
    int64_t block_size;
    const uint8_t* is_taken;
    const uint8_t* is_plain;  // its next token is chosen from the logits as they are, and nothing else is asked for
    int64_t* num_tokens;      // known, or being sampled
    int64_t* num_computed;
    int64_t* num_table;  // blocks in its line of `tables`
    int32_t* histories;  // [num_slots, max_model_len]
    int32_t* tables;     // [num_slots, max_blocks]

    int32_t* history(int64_t slot) const { return histories + slot * max_model_len; }
    int32_t* table(int64_t slot) const { return tables + slot * max_blocks; }
};

}  // namespace penstock
