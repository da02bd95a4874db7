// Which experts a token goes to, and what their outputs are multiplied by, from a router's logits.
//
//   score:   softmax or sigmoid of the logits, or the logits themselves
//   chosen:  the top_k best by score + bias, best first, of equal ones the lowest number first; where groups are kept,
//            among the experts of the best groups alone
//   weight:  the chosen one's score (or its share of the softmax of those chosen), divided by their sum, or by
//            `least_sum` where that is more, if weights are renormalized; then × scale, and × its expert's factor
//
// A NaN counts as more than every number, so that a token whose logits went wrong comes out as NaN.
#include <algorithm>
#include <cmath>
#include <limits>

#include "rows.hpp"
#include "vector.hpp"

namespace penstock {

enum class Score : int64_t { kSoftmax = 0, kSigmoid = 1, kSoftmaxOfChosen = 2 };

struct Route {
    const int32_t* num_rows;
    const float* logits;  // [rows, num_experts]
    const float* bias;     // [num_experts], of the choice alone; or null
    const float* factors;  // [num_experts], of the weights; or null
    // Where the step says of which kind each token is, [rows]; or null. Tokens of other kinds than this get no expert. Of
    // a step that says nothing all are of kind 0.
    const int32_t* const* kinds;
    int64_t own_kind;
    int64_t num_experts;
    int64_t top_k;
    Score score;
    int64_t num_groups;
    int64_t kept_groups;
    int64_t counted;  // of a group: its best one, or its best two together
    int64_t renormalizes;
    float least_sum;
    float scale;
    int32_t* experts;  // [rows, top_k]
    float* weights;    // [rows, top_k]
};

static bool beats(float a, float b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

// The numbers of the best `wanted` of values [first, end), best first; returns how many there were.
static int64_t best_of(const float* values, int64_t first, int64_t end, int64_t wanted, int32_t* found) {
    int64_t num_found = 0;
    for (int64_t number = first; number < end; ++number) {
        if (num_found == wanted && !beats(values[number], values[found[wanted - 1]])) continue;
        int64_t slot = num_found < wanted ? num_found++ : wanted - 1;
        for (; slot > 0 && beats(values[number], values[found[slot - 1]]); --slot) found[slot] = found[slot - 1];
        found[slot] = static_cast<int32_t>(number);
    }
    return num_found;
}

static void softmax(float* values, int64_t count) {
    float most = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < count; ++i) most = beats(values[i], most) ? values[i] : most;
    over_lanes(count, [&](int64_t i, auto lanes) {
        store(values + i, exp(load(values + i, lanes) - broadcast(most)), lanes);
    });
    const Vec total = broadcast(sum_of(values, count));
    over_lanes(count, [&](int64_t i, auto lanes) { store(values + i, load(values + i, lanes) / total, lanes); });
}

static void score_row(const Route& route, const float* logits, float* scores) {
    std::copy(logits, logits + route.num_experts, scores);
    if (route.score == Score::kSoftmax) softmax(scores, route.num_experts);
    if (route.score != Score::kSigmoid) return;
    const Vec one = broadcast(1.0f);
    over_lanes(route.num_experts, [&](int64_t i, auto lanes) {
        store(scores + i, one / (exp(zero() - load(scores + i, lanes)) + one), lanes);
    });
}

// Experts of the groups that are not kept get -∞ as their choice.
static void leave_groups_out(const Route& route, float* choice, float* group_scores, int32_t* numbers) {
    const int64_t size = route.num_experts / route.num_groups;
    for (int64_t group = 0; group < route.num_groups; ++group) {
        const int64_t first = group * size;
        const int64_t found = best_of(choice, first, first + size, route.counted, numbers);
        group_scores[group] = 0;
        for (int64_t i = 0; i < found; ++i) group_scores[group] += choice[numbers[i]];
    }
    const int64_t kept = best_of(group_scores, 0, route.num_groups, route.kept_groups, numbers);
    for (int64_t group = 0; group < route.num_groups; ++group) {
        if (std::find(numbers, numbers + kept, group) != numbers + kept) continue;
        std::fill_n(choice + group * size, size, -std::numeric_limits<float>::infinity());
    }
}

static void weigh(const Route& route, const float* scores, const int32_t* experts, float* weights) {
    for (int64_t rank = 0; rank < route.top_k; ++rank) weights[rank] = scores[experts[rank]];
    if (route.score == Score::kSoftmaxOfChosen) softmax(weights, route.top_k);
    float divisor = 1;
    if (route.renormalizes) {
        divisor = 0;
        for (int64_t rank = 0; rank < route.top_k; ++rank) divisor += weights[rank];
        if (divisor < route.least_sum) divisor = route.least_sum;
    }
    for (int64_t rank = 0; rank < route.top_k; ++rank) {
        weights[rank] = weights[rank] / divisor * route.scale;
        if (route.factors) weights[rank] *= route.factors[experts[rank]];
    }
}

static bool is_of_kind(const Route& route, int64_t row) {
    if (!route.kinds) return true;
    return (*route.kinds ? (*route.kinds)[row] : 0) == route.own_kind;
}

static void route_rows(const Route& route) {
    const int64_t count = route.num_experts;
    over_rows(*route.num_rows, 16 * count, [&](int64_t row) {
        if (!is_of_kind(route, row)) {
            std::fill_n(route.experts + row * route.top_k, route.top_k, -1);
            std::fill_n(route.weights + row * route.top_k, route.top_k, 0.0f);
            return;
        }
        auto* scores = static_cast<float*>(thread_scratch(4 * count * sizeof(float)));
        float *choice = scores + count, *group_scores = choice + count;
        auto* numbers = reinterpret_cast<int32_t*>(group_scores + count);
        score_row(route, route.logits + row * count, scores);
        for (int64_t i = 0; i < count; ++i) choice[i] = route.bias ? scores[i] + route.bias[i] : scores[i];
        if (route.kept_groups < route.num_groups) leave_groups_out(route, choice, group_scores, numbers);
        int32_t* experts = route.experts + row * route.top_k;
        best_of(choice, 0, count, route.top_k, experts);
        weigh(route, scores, experts, route.weights + row * route.top_k);
    });
}

}  // namespace penstock

extern "C" void penstock_route(const void* arguments) {
    penstock::route_rows(*static_cast<const penstock::Route*>(arguments));
}
