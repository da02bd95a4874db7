// From a plan's columns to a step of one token a row, if all rows are plain and the plan keeps every rule.
//
// Looked at first and done afterwards: of a step that is refused nothing has changed, so whoever takes rows of any kind
// can take it over, and say which rule was broken.
#include <algorithm>

#include "decode.hpp"

namespace penstock {

// A column of a plan as it came: in Python bytes.
using Column = const int32_t*;

// One group of layers: what the plan appends there, and the group's step, which has its columns in memory below.
struct DecodeGroup {
    Step* step;
    Column block_ids;  // [num_block_ids], or states, to append to the rows' tables
    int64_t num_block_ids;
    Column block_offsets;  // [num_offsets]: row r's are block_offsets[r] up to block_offsets[r + 1]
    int64_t num_offsets;
    Column starts;  // [num_starts], of states: the position from which each one is written
    int64_t num_starts;
    int64_t* kv_slots;
    int32_t* block_tables;
    int32_t* segment_reads;  // of states, as segment_writes
    int32_t* segment_writes;
};

struct BeginDecode {
    const Slots* slots;
    const DecodeGroup* groups;  // [num_groups of slots]
    int64_t capacity;           // rows that there is room for below
    int64_t num_rotations;      // rows of rotary tables
    Column rows;                // [num_rows]: each one's slot
    int64_t num_rows;
    Column num_tokens;          // [num_counts]
    int64_t num_counts;
    // The columns that all groups' steps share, written here.
    int64_t* row_slots;
    int64_t* token_ids;
    int64_t* positions;
    int64_t* rotations;
    int64_t* logit_rows;
    int32_t* query_starts;
    int32_t* context_lengths;
    uint8_t* is_met;    // [num_slots], zeros before and after
    int64_t* is_begun;  // 0: refused
};

namespace {

// What a row's token reads and writes of a group's states, and what its slot does behind the step.
struct StateTurn {
    int32_t read, write, next_read, next_write;
};

bool are_columns_whole(const BeginDecode& plan, const DecodeGroup& group, const GroupTables& tables) {
    return group.num_offsets == plan.num_rows + 1 && group.block_offsets[0] == 0 &&
           group.block_offsets[plan.num_rows] == group.num_block_ids &&
           (!tables.has_states() || group.num_starts == group.num_block_ids);
}

bool are_columns_whole(const BeginDecode& plan) {
    if (plan.num_rows <= 0 || plan.num_rows > plan.capacity || plan.num_counts != plan.num_rows) return false;
    for (int64_t group = 0; group < plan.slots->num_groups; ++group)
        if (!are_columns_whole(plan, plan.groups[group], plan.slots->groups[group])) return false;
    return true;
}

// A state that is appended at position p is written from there on, and reads what was written up to p.
bool find_turn(const GroupTables& tables, const DecodeGroup& group, int64_t row, int64_t slot, int64_t position,
               StateTurn& turn) {
    int32_t read = tables.reads[slot], write = tables.writes[slot];
    bool is_computed = false;
    const auto compute = [&] {
        turn.read = read;
        turn.write = read = write;
        is_computed = true;
    };
    for (int32_t i = group.block_offsets[row]; i < group.block_offsets[row + 1]; ++i) {
        if (group.starts[i] > position + 1) return false;
        if (group.starts[i] > position && !is_computed) compute();
        read = write;
        write = group.block_ids[i];
    }
    if (!is_computed) compute();
    turn.next_read = read;
    turn.next_write = write;
    return turn.write >= 0;
}

// Whether a slot with so many tokens finds what it needs in a group, with what the plan appends there.
bool is_served(const Slots& slots, const GroupTables& tables, const DecodeGroup& group, int64_t row, int64_t slot,
               int64_t known) {
    const int32_t first = group.block_offsets[row], end = group.block_offsets[row + 1];
    if (end < first || end > group.num_block_ids) return false;
    if (!std::all_of(group.block_ids + first, group.block_ids + end,
                     [&](int32_t block) { return block >= 0 && block < tables.num_blocks; }))
        return false;
    if (tables.has_states()) {
        StateTurn turn;
        return find_turn(tables, group, row, slot, known - 1, turn);
    }
    const int64_t blocks = tables.num_table[slot] + end - first;
    return blocks <= tables.max_blocks && blocks * slots.block_size >= known;
}

bool is_plain(const BeginDecode& plan, int64_t row) {
    const Slots& slots = *plan.slots;
    const int64_t slot = plan.rows[row];
    if (slot < 0 || slot >= slots.num_slots || !slots.is_taken[slot] || !slots.is_plain[slot]) return false;
    if (plan.is_met[slot]) return false;
    plan.is_met[slot] = 1;
    const int64_t known = slots.num_tokens[slot];
    if (plan.num_tokens[row] != 1 || slots.num_computed[slot] + 1 != known) return false;
    if (known >= slots.max_model_len || known + slots.rotation_starts[slot] > plan.num_rotations) return false;
    for (int64_t group = 0; group < slots.num_groups; ++group)
        if (!is_served(slots, slots.groups[group], plan.groups[group], row, slot, known)) return false;
    return true;
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

void take_blocks(const Slots& slots, const GroupTables& tables, const DecodeGroup& group, int64_t row, int64_t slot,
                 int64_t position) {
    const int32_t first = group.block_offsets[row], last = group.block_offsets[row + 1];
    int32_t* const table = tables.table(slot);
    std::copy(group.block_ids + first, group.block_ids + last, table + tables.num_table[slot]);
    tables.num_table[slot] += last - first;
    group.kv_slots[row] = table[position / slots.block_size] * slots.block_size + position % slots.block_size;
}

void take_states(const GroupTables& tables, const DecodeGroup& group, int64_t row, int64_t slot, int64_t position) {
    StateTurn turn;
    find_turn(tables, group, row, slot, position, turn);
    group.segment_reads[row] = turn.read;
    group.segment_writes[row] = turn.write;
    tables.reads[slot] = turn.next_read;
    tables.writes[slot] = turn.next_write;
}

void take_row(const BeginDecode& plan, int64_t row) {
    const Slots& slots = *plan.slots;
    const int64_t slot = plan.rows[row], end = slots.num_tokens[slot], position = end - 1;
    for (int64_t number = 0; number < slots.num_groups; ++number) {
        const GroupTables& tables = slots.groups[number];
        const DecodeGroup& group = plan.groups[number];
        if (tables.has_states()) take_states(tables, group, row, slot, position);
        else take_blocks(slots, tables, group, row, slot, position);
    }
    slots.num_computed[slot] = end;
    slots.num_tokens[slot] = end + 1;
    plan.row_slots[row] = slot;
    plan.token_ids[row] = slots.history(slot)[position];
    plan.positions[row] = position;
    plan.rotations[row] = position + slots.rotation_starts[slot];
    plan.logit_rows[row] = row;
    plan.query_starts[row + 1] = static_cast<int32_t>(row + 1);
    plan.context_lengths[row] = static_cast<int32_t>(end);
}

void fill_group(const BeginDecode& plan, const GroupTables& tables, const DecodeGroup& group, int32_t width) {
    Step& step = *group.step;
    step.num_tokens = step.num_rows = step.num_logits = static_cast<int32_t>(plan.num_rows);
    step.token_ids = plan.token_ids;
    step.positions = plan.positions;
    step.seen_ends = nullptr;
    step.token_kinds = nullptr;  // rows with another kind than 0 aren't plain
    step.rotations = plan.rotations;
    step.logit_rows = plan.logit_rows;
    step.query_starts = plan.query_starts;
    step.context_lengths = plan.context_lengths;
    step.num_adapted = step.num_placed = 0;
    if (tables.has_states()) {
        step.num_segments = step.num_rows;
        step.segment_starts = step.segments_of_rows = plan.query_starts;  // each row is a segment of one token
        step.segment_reads = group.segment_reads;
        step.segment_writes = group.segment_writes;
        return;
    }
    for (int64_t row = 0; row < plan.num_rows; ++row)
        std::copy_n(tables.table(plan.row_slots[row]), width, group.block_tables + row * width);
    step.table_width = width;
    step.kv_slots = group.kv_slots;
    step.block_tables = group.block_tables;
}

void begin_decode(const BeginDecode& plan) {
    *plan.is_begun = are_all_plain(plan);
    if (!*plan.is_begun) return;
    plan.query_starts[0] = 0;
    for (int64_t row = 0; row < plan.num_rows; ++row) take_row(plan, row);
    const int64_t longest = *std::max_element(plan.context_lengths, plan.context_lengths + plan.num_rows);
    const int64_t block_size = plan.slots->block_size;
    const auto width = static_cast<int32_t>((longest + block_size - 1) / block_size);
    for (int64_t group = 0; group < plan.slots->num_groups; ++group)
        fill_group(plan, plan.slots->groups[group], plan.groups[group], width);
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_begin_decode(const void* arguments) {
    penstock::begin_decode(*static_cast<const penstock::BeginDecode*>(arguments));
}
