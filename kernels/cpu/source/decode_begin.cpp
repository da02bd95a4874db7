// From a plan's columns to a step of one token a row, if all rows are plain and the plan keeps every rule.
//
// Looked at first and done afterwards: of a step that is refused nothing has changed, so whoever takes rows of any kind
// can take it over, and say which rule was broken.
#include <algorithm>

#include "decode.hpp"

namespace penstock {

struct BeginDecode {
    const Slots* slots;
    Step* step;
    int64_t capacity;       // rows that there is room for below
    int64_t num_rotations;  // rows of rotary tables
    const int32_t* rows;    // [num_rows]: each one's slot
    int64_t num_rows;
    const int32_t* num_tokens;  // [num_counts]
    int64_t num_counts;
    const int32_t* block_ids;  // [num_block_ids], to append to the rows' tables
    int64_t num_block_ids;
    const int32_t* block_offsets;  // [num_offsets]: row r's are block_offsets[r] up to block_offsets[r + 1]
    int64_t num_offsets;
    // The step's columns, written here.
    int64_t* row_slots;
    int64_t* token_ids;
    int64_t* positions;
    int64_t* kv_slots;
    int64_t* logit_rows;
    int32_t* query_starts;
    int32_t* context_lengths;
    int32_t* block_tables;
    uint8_t* is_met;    // [num_slots], zeros before and after
    int64_t* is_begun;  // 0: refused
};

namespace {

bool are_columns_whole(const BeginDecode& plan) {
    return plan.num_rows > 0 && plan.num_rows <= plan.capacity && plan.num_counts == plan.num_rows &&
           plan.num_offsets == plan.num_rows + 1 && plan.block_offsets[0] == 0 &&
           plan.block_offsets[plan.num_rows] == plan.num_block_ids;
}

bool are_blocks_known(const BeginDecode& plan, int32_t first, int32_t end) {
    return std::all_of(plan.block_ids + first, plan.block_ids + end,
                       [&](int32_t block) { return block >= 0 && block < plan.slots->num_blocks; });
}

bool is_plain(const BeginDecode& plan, int64_t row) {
    const Slots& slots = *plan.slots;
    const int64_t slot = plan.rows[row];
    if (slot < 0 || slot >= slots.num_slots || !slots.is_taken[slot] || !slots.is_plain[slot]) return false;
    if (plan.is_met[slot]) return false;
    plan.is_met[slot] = 1;
    const int64_t known = slots.num_tokens[slot];
    if (plan.num_tokens[row] != 1 || slots.num_computed[slot] + 1 != known) return false;
    if (known >= slots.max_model_len || known > plan.num_rotations) return false;
    const int32_t first = plan.block_offsets[row], end = plan.block_offsets[row + 1];
    if (end < first || end > plan.num_block_ids || !are_blocks_known(plan, first, end)) return false;
    const int64_t blocks = slots.num_table[slot] + end - first;
    return blocks <= slots.max_blocks && blocks * slots.block_size >= known;
}

bool are_all_plain(const BeginDecode& plan) {
    if (!are_columns_whole(plan)) return false;
    int64_t row = 0;
    while (row < plan.num_rows && is_plain(plan, row)) ++row;
    const int64_t looked_at = std::min(row + 1, plan.num_rows);
    for (int64_t met = 0; met < looked_at; ++met) {
        const int64_t slot = plan.rows[met];
        if (slot >= 0 && slot < plan.slots->num_slots) plan.is_met[slot] = 0;
    }
    return row == plan.num_rows;
}

void take_row(const BeginDecode& plan, int64_t row) {
    const Slots& slots = *plan.slots;
    const int64_t slot = plan.rows[row], end = slots.num_tokens[slot], position = end - 1;
    const int32_t first = plan.block_offsets[row], last = plan.block_offsets[row + 1];
    int32_t* const table = slots.table(slot);
    std::copy(plan.block_ids + first, plan.block_ids + last, table + slots.num_table[slot]);
    slots.num_table[slot] += last - first;
    slots.num_computed[slot] = end;
    slots.num_tokens[slot] = end + 1;
    plan.row_slots[row] = slot;
    plan.token_ids[row] = slots.history(slot)[position];
    plan.positions[row] = position;
    plan.kv_slots[row] = table[position / slots.block_size] * slots.block_size + position % slots.block_size;
    plan.logit_rows[row] = row;
    plan.query_starts[row + 1] = static_cast<int32_t>(row + 1);
    plan.context_lengths[row] = static_cast<int32_t>(end);
}

void copy_tables(const BeginDecode& plan, int32_t width) {
    for (int64_t row = 0; row < plan.num_rows; ++row)
        std::copy_n(plan.slots->table(plan.row_slots[row]), width, plan.block_tables + row * width);
}

void fill_step(const BeginDecode& plan, int32_t table_width) {
    Step& step = *plan.step;
    step.num_tokens = step.num_rows = step.num_logits = static_cast<int32_t>(plan.num_rows);
    step.table_width = table_width;
    step.token_ids = plan.token_ids;
    step.positions = step.rotations = plan.positions;  // rows that are rotated otherwise aren't plain
    step.kv_slots = plan.kv_slots;
    step.logit_rows = plan.logit_rows;
    step.query_starts = plan.query_starts;
    step.context_lengths = plan.context_lengths;
    step.block_tables = plan.block_tables;
    step.num_adapted = 0;
}

void begin_decode(const BeginDecode& plan) {
    *plan.is_begun = are_all_plain(plan);
    if (!*plan.is_begun) return;
    plan.query_starts[0] = 0;
    for (int64_t row = 0; row < plan.num_rows; ++row) take_row(plan, row);
    const int64_t longest = *std::max_element(plan.context_lengths, plan.context_lengths + plan.num_rows);
    const int64_t block_size = plan.slots->block_size;
    const auto width = static_cast<int32_t>((longest + block_size - 1) / block_size);
    copy_tables(plan, width);
    fill_step(plan, width);
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_begin_decode(const void* arguments) {
    penstock::begin_decode(*static_cast<const penstock::BeginDecode*>(arguments));
}
