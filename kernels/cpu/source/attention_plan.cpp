// Which tokens of a step attend together, made once a step for all layers of a group with one window.
//
// A row with many tokens is cut into tiles of its own. Rows with few, whose block tables agree over whole splits (a
// common prefix), look at these splits together, so that a block is read once for all of them. What one thread would be
// busy with for too long is cut by splits. None of it changes what is computed for a token; where the room for parts is
// spent, rows are simply left whole.
#include <algorithm>
#include <cstring>

#include "attention.hpp"
#include "pool.hpp"

namespace penstock {
namespace {

// Reading a stretch's keys and values takes as long as computing it for so many queries.
constexpr int64_t kReadCost = 24;
// Pieces of work that a step should have at least, where that needs cutting by splits, and large ones that a row should
// have for each thread.
constexpr int64_t kPieces = 32;
constexpr int64_t kLargePieces = 4;

class Planner {
public:
    explicit Planner(const AttentionPlan& plan) : plan_(plan), step_(*plan.step) {}

    void run() {
        plan_.counts[0] = plan_.counts[1] = 0;
        std::fill(plan_.parts, plan_.parts + step_.num_tokens, kNoParts);
        set_most_cost();
        gather_small_rows();
        share(0, num_small_, first_split_of_small_rows());
        for (int32_t row = 0; row < step_.num_rows; ++row) plan_row(row);
    }

private:
    int32_t* order() const { return plan_.row_order; }
    // Splits from the start on that a row looks at in company.
    int32_t& shared_end(int32_t row) const { return plan_.row_order[step_.num_rows + row]; }
    int64_t num_tokens(int32_t row) const { return step_.query_starts[row + 1] - step_.query_starts[row]; }
    Sight first_sight(int32_t row) const { return sight_of(step_, step_.query_starts[row], plan_.window); }
    int64_t row_first_split(int32_t row) const { return first_split(first_sight(row)); }
    int64_t row_end_split(int32_t row) const { return split_at(step_.context_lengths[row] - 1) + 1; }
    // Splits that lie wholly before the keys of which the row's first token sees only some.
    int64_t num_full_splits(int32_t row) const { return split_at(first_sight(row).end); }
    // Tokens of a tile.
    int64_t most_tokens(int32_t row) const {
        const int64_t num_large = num_tokens(row) * plan_.num_shared * plan_.num_heads / kTileQueriesOfLong;
        const bool is_large = step_.context_lengths[row] >= kLongContext && num_large >= kLargePieces * num_threads();
        return std::max<int64_t>(1, (is_large ? kTileQueriesOfLong : kTileQueries) / plan_.num_shared);
    }
    int64_t cost_of_stretch(int64_t tokens) const { return kReadCost + tokens * plan_.num_shared; }
    static int64_t num_stretches(int64_t split, int64_t until) {
        return (split_begin(until) - split_begin(split)) / kStretch;
    }

    void set_most_cost() {
        int64_t total = 0;
        for (int32_t row = 0; row < step_.num_rows; ++row) {
            const int64_t tokens = num_tokens(row), tiles = (tokens + most_tokens(row) - 1) / most_tokens(row);
            total += num_stretches(row_first_split(row), row_end_split(row)) *
                     (tiles * kReadCost + tokens * plan_.num_shared);
        }
        most_cost_ = total * plan_.num_heads / kPieces;
    }

    void gather_small_rows() {
        for (int32_t row = 0; row < step_.num_rows; ++row) {
            shared_end(row) = 0;
            if (num_tokens(row) < most_tokens(row) || num_tokens(row) == 1) order()[num_small_++] = row;
        }
    }

    // What lies before is seen by none of them; where a window's blocks were given back, their tables have 0 there.
    int64_t first_split_of_small_rows() const {
        int64_t first = num_small_ ? INT64_MAX : 0;
        for (int64_t at = 0; at < num_small_; ++at) first = std::min(first, row_first_split(order()[at]));
        return first;
    }

    bool sees_same(int32_t row, int32_t other, int64_t split) const {
        if (split >= num_full_splits(row) || split >= num_full_splits(other)) return false;
        const int64_t begin = split_begin(split), blocks = (split_begin(split + 1) - begin) / plan_.block_size;
        const int32_t* tables = step_.block_tables + begin / plan_.block_size;
        return std::memcmp(tables + row * static_cast<int64_t>(step_.table_width),
                           tables + other * static_cast<int64_t>(step_.table_width), blocks * sizeof(int32_t)) == 0;
    }

    // The rows order[begin, end) agree up to `split`. Plans what they see together from there on, then what groups
    // of them do.
    void share(int64_t begin, int64_t end, int64_t split) {
        if (end - begin < 2) return;
        int64_t until = split;
        const auto all_see = [&](int64_t s) {
            return std::all_of(order() + begin, order() + end,
                               [&](int32_t row) { return sees_same(row, order()[begin], s); });
        };
        while (all_see(until)) ++until;
        if (until > split) look_together(begin, end, split, until);
        for (int64_t at = begin; at < end;) {
            const int32_t leader = order()[at];
            int64_t next = at + 1;
            for (int64_t other = next; other < end; ++other)
                if (sees_same(order()[other], leader, until)) std::swap(order()[other], order()[next++]);
            share(at, next, until);
            at = next;
        }
    }

    void look_together(int64_t begin, int64_t end, int64_t split, int64_t until) {
        const int32_t row = order()[begin];
        const int32_t first = next_token_;
        for (int64_t at = begin; at < end; ++at) {
            const int32_t member = order()[at];
            if (row_first_split(member) >= until || !reserve_parts(member)) continue;
            shared_end(member) = static_cast<int32_t>(until);
            for (int32_t token = step_.query_starts[member]; token < step_.query_starts[member + 1]; ++token)
                plan_.tile_tokens[next_token_++] = token;
        }
        cut(row, first, next_token_ - first, split, until, true);
    }

    // Tiles for the tokens that were just listed, in a range of splits.
    void cut(int32_t row, int32_t first, int64_t tokens, int64_t split, int64_t until, bool leaves_parts) {
        for (int64_t done = 0; done < tokens; done += most_tokens(row)) {
            const int64_t count = std::min(most_tokens(row), tokens - done);
            const int64_t most_stretches = leaves_parts ? most_cost_ / cost_of_stretch(count) : INT64_MAX;
            for (int64_t begin = split, end; begin < until; begin = end) {
                end = begin + 1;
                while (end < until && num_stretches(begin, end + 1) <= most_stretches) ++end;
                plan_.tiles[plan_.counts[0]++] = {static_cast<int32_t>(first + done), static_cast<int32_t>(count), row,
                                                  static_cast<int32_t>(begin), static_cast<int32_t>(end), leaves_parts};
            }
        }
    }

    // Room for a part of each of the row's tokens and splits; false where there is not enough.
    bool reserve_parts(int32_t row) {
        const int32_t begin = step_.query_starts[row], end = step_.query_starts[row + 1];
        if (plan_.parts[begin] != kNoParts) return true;
        const int64_t first = row_first_split(row), splits = row_end_split(row) - first;
        if (used_parts_ + splits * (end - begin) > plan_.max_parts) return false;
        for (int32_t token = begin; token < end; ++token, used_parts_ += splits) {
            plan_.parts[token] = static_cast<int32_t>(used_parts_ - first);
            plan_.parted_tokens[plan_.counts[1]++] = token;
        }
        return true;
    }

    // What a row looks at alone.
    void plan_row(int32_t row) {
        const int32_t begin = step_.query_starts[row], end = step_.query_starts[row + 1];
        const int64_t split = std::max<int64_t>(shared_end(row), row_first_split(row)), until = row_end_split(row);
        const int64_t most = most_tokens(row);
        const int64_t cost = num_stretches(split, until) * cost_of_stretch(std::min<int64_t>(most, end - begin));
        const bool leaves_parts = plan_.parts[begin] != kNoParts ||
                                  (cost > most_cost_ && until - split > 1 && reserve_parts(row));
        for (int32_t token = begin; token < end; token += most) {
            const int32_t first = next_token_;
            const int32_t tokens = static_cast<int32_t>(std::min<int64_t>(most, end - token));
            for (int32_t i = 0; i < tokens; ++i) plan_.tile_tokens[next_token_++] = token + i;
            // A later tile of a row begins later where there is a window; an earlier one ends earlier.
            const Sight last = sight_of(step_, token + tokens - 1, plan_.window);
            const int64_t from = std::max(split, first_split(sight_of(step_, token, plan_.window)));
            cut(row, first, tokens, from, end_split(last), leaves_parts);
        }
    }

    const AttentionPlan& plan_;
    const Step& step_;
    int64_t most_cost_ = 0;
    int64_t num_small_ = 0;
    int64_t used_parts_ = 0;
    int32_t next_token_ = 0;
};

}  // namespace
}  // namespace penstock

extern "C" void penstock_plan_attention(const void* arguments) {
    penstock::Planner(*static_cast<const penstock::AttentionPlan*>(arguments)).run();
}
