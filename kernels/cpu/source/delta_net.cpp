// The gated delta net of a step's rows, from what the convolution gave to what the gated norm reads.
//
//   q = q / √(Σ q² + ε) / √key_dim        k = k / √(Σ k² + ε)
//   rate = sigmoid(b)                     kept = e^(-e^A_log × softplus(a + dt_bias))
//
// and then the steps of delta_net.hpp, token by token. A row of many tokens is cut by columns: so few that they stay in
// the first cache through all tokens lie in the thread's own memory meanwhile. A row of few tokens is a head at a time,
// stepped where it lies: each byte of a state is then read from memory once and in order.
#include "delta_net.hpp"

#include <algorithm>
#include <cmath>

#include "logarithm.hpp"
#include "pool.hpp"
#include "quads.hpp"
#include "step.hpp"

namespace penstock {

struct DeltaNet {
    const Step* step;
    float* convolved;  // [T, queries, keys, values]: queries and keys are overwritten
    float* b;          // [T, value heads]: overwritten by the rates of learning
    float* a;          // [T, value heads]: overwritten by what is kept of the state
    const float* decay;      // [value heads]: e^A_log
    const float* step_bias;  // [value heads]
    int64_t num_key_heads;
    int64_t num_value_heads;
    int64_t key_dim;
    int64_t value_dim;
    float* states;  // [num_states, value heads, key_dim, value_dim]
    int64_t state_stride;
    float* output;  // [T, value heads × value_dim]
};

namespace {

constexpr float kSmallestSquare = 1e-6f;
constexpr float kLinearFrom = 20.0f;    // log(1 + e^x) is x above, and NaN stays one
constexpr int64_t kFewTokens = 8;       // that a head in place is stepped through
constexpr int kVectorsOfMany = 2;       // columns of a row with more: 16 KB of 128 × 32 numbers
constexpr int kVectorsInPlace = kLanes == 16 ? 8 : 4;
constexpr int64_t kBlockColumns = kVectorsOfMany * kLanes;
constexpr int64_t kTokensAhead = 2;

int64_t key_width(const DeltaNet& a) { return a.num_key_heads * a.key_dim; }
int64_t value_width(const DeltaNet& a) { return a.num_value_heads * a.value_dim; }
int64_t token_width(const DeltaNet& a) { return 2 * key_width(a) + value_width(a); }

void make_unit(float* x, int64_t size, float scale) {
    const Vec factor = broadcast(1.0f / std::sqrt(sum_of_squares(x, size) + kSmallestSquare));
    over_lanes(size, [&](int64_t i, auto lanes) {
        store(x + i, load(x + i, lanes) * factor * broadcast(scale), lanes);
    });
}

// log(1 + e^x), and x where that is the same.
Vec softplus(Vec x) {
    float numbers[kLanes], powers[kLanes];
    store(numbers, x);
    store(powers, exp(x));
    for (int64_t lane = 0; lane < kLanes; ++lane)
        if (numbers[lane] <= kLinearFrom) numbers[lane] = static_cast<float>(natural_logarithm(1.0 + powers[lane]));
    return load(numbers);
}

void prepare(const DeltaNet& a, int64_t token) {
    float* queries = a.convolved + token * token_width(a);
    const float scale = 1.0f / std::sqrt(static_cast<float>(a.key_dim));
    for (int64_t head = 0; head < a.num_key_heads; ++head) {
        make_unit(queries + head * a.key_dim, a.key_dim, scale);
        make_unit(queries + key_width(a) + head * a.key_dim, a.key_dim, 1.0f);
    }
    float* rates = a.b + token * a.num_value_heads;
    float* kept = a.a + token * a.num_value_heads;
    const Vec one = broadcast(1.0f);
    over_lanes(a.num_value_heads, [&](int64_t head, auto lanes) {
        store(rates + head, one / (one + exp(zero() - load(rates + head, lanes))), lanes);
        const Vec steps = softplus(load(kept + head, lanes) + load(a.step_bias + head, lanes));
        store(kept + head, exp(zero() - load(a.decay + head, lanes) * steps), lanes);
    });
}

float* state_of(const DeltaNet& a, int32_t number, int64_t head) {
    return number < 0 ? nullptr : a.states + number * a.state_stride + head * a.key_dim * a.value_dim;
}

HeadToken token_of(const DeltaNet& a, int64_t token, int64_t head, int64_t column) {
    const int64_t key_head = head / (a.num_value_heads / a.num_key_heads);
    const float* queries = a.convolved + token * token_width(a);
    const float* query = queries + key_head * a.key_dim;
    const int64_t value = head * a.value_dim + column;
    return {query,
            query + key_width(a),
            queries + 2 * key_width(a) + value,
            a.a[token * a.num_value_heads + head],
            a.b[token * a.num_value_heads + head],
            a.output + token * value_width(a) + value};
}

// One head of a segment's tokens, where its state lies. What lies `ahead` is probably stepped next.
void step_in_place(const DeltaNet& a, int64_t segment, int64_t head, const float* ahead) {
    const Step& step = *a.step;
    const int64_t begin = step.segment_starts[segment], end = step.segment_starts[segment + 1];
    const int64_t size = a.key_dim * a.value_dim;
    const float* before = state_of(a, step.segment_reads[segment], head);
    float* behind = state_of(a, step.segment_writes[segment], head);
    if (!before) std::fill(behind, behind + size, 0.0f);
    else if (begin == end && before != behind) std::copy(before, before + size, behind);
    if (begin == end) return;
    const float* from = before ? before : behind;
    int64_t column = 0;
    const auto take = [&](auto vectors) {
        for (; column + vectors() * kLanes <= a.value_dim; column += vectors() * kLanes)
            step_tokens<vectors()>(
                {from + column, behind + column, a.value_dim, a.key_dim, ahead ? ahead + column : nullptr}, begin, end,
                [&](int64_t token) { return token_of(a, token, head, column); });
    };
    take(std::integral_constant<int, kVectorsInPlace>{});
    take(std::integral_constant<int, 1>{});
}

// Some columns of one head of a row, in the thread's own memory; lanes that there are none for stay 0.
class Block {
public:
    Block(const DeltaNet& a, int64_t head, int64_t first)
        : a_(a), head_(head), first_(first), count_(std::min(kBlockColumns, a.value_dim - first)) {
        auto* memory = static_cast<float*>(thread_scratch((a.key_dim + 2) * kBlockColumns * sizeof(float)));
        value_ = memory;
        output_ = memory + kBlockColumns;
        state_ = memory + 2 * kBlockColumns;
    }

    void run(int64_t segment) {
        const Step& step = *a_.step;
        const int64_t begin = step.segment_starts[segment], end = step.segment_starts[segment + 1];
        fetch_state(state_of(a_, step.segment_reads[segment], head_));
        if (begin < end) {
            if (count_ == kBlockColumns)
                step_tokens<kVectorsOfMany>(columns(), begin, end, [&](int64_t token) { return whole(token, end); });
            else
                for (int64_t token = begin; token < end; ++token) step_some(token);
        }
        keep_state(state_of(a_, step.segment_writes[segment], head_));
    }

private:
    Columns columns() const { return {state_, state_, kBlockColumns, a_.key_dim}; }

    // What a later token reads is fetched meanwhile: it lies too far away for the processor to guess.
    HeadToken whole(int64_t token, int64_t end) const {
        if (token + kTokensAhead < end) {
            const HeadToken later = token_of(a_, token + kTokensAhead, head_, first_);
            fetch(later.query, a_.key_dim * sizeof(float));
            fetch(later.key, a_.key_dim * sizeof(float));
            fetch(later.value, kBlockColumns * sizeof(float));
        }
        return token_of(a_, token, head_, first_);
    }

    // Fewer columns than a block has, by way of memory that has as many.
    void step_some(int64_t token) const {
        HeadToken some = token_of(a_, token, head_, first_);
        float* output = some.output;
        std::fill(value_, value_ + kBlockColumns, 0.0f);
        std::copy(some.value, some.value + count_, value_);
        some.value = value_;
        some.output = output_;
        step_tokens<kVectorsOfMany>(columns(), token, token + 1, [&](int64_t) { return some; });
        std::copy(output_, output_ + count_, output);
    }

    void fetch_state(const float* state) {
        std::fill(state_, state_ + a_.key_dim * kBlockColumns, 0.0f);
        if (!state) return;
        for (int64_t i = 0; i < a_.key_dim; ++i) {
            const float* row = state + i * a_.value_dim + first_;
            std::copy(row, row + count_, state_ + i * kBlockColumns);
        }
    }

    void keep_state(float* state) const {
        for (int64_t i = 0; i < a_.key_dim; ++i) {
            const float* row = state_ + i * kBlockColumns;
            std::copy(row, row + count_, state + i * a_.value_dim + first_);
        }
    }

    const DeltaNet& a_;
    const int64_t head_;
    const int64_t first_, count_;  // columns
    float* value_;                 // [kBlockColumns]
    float* output_;
    float* state_;  // [key_dim, kBlockColumns]
};

// How the rows are cut: row r's chunks are first_chunks[r] up to first_chunks[r + 1].
class Cuts {
public:
    explicit Cuts(const DeltaNet& a) : a_(a), num_blocks_((a.value_dim + kBlockColumns - 1) / kBlockColumns) {
        const int64_t num_rows = a.step->num_rows;
        first_chunks_ = static_cast<int64_t*>(region_scratch((num_rows + 1) * sizeof(int64_t)));
        first_chunks_[0] = 0;
        for (int64_t row = 0; row < num_rows; ++row)
            first_chunks_[row + 1] = first_chunks_[row] + a.num_value_heads * (is_in_place(row) ? 1 : num_blocks_);
    }

    int64_t count() const { return first_chunks_[a_.step->num_rows]; }

    void run(int64_t chunk) const {
        const int64_t row = row_of(chunk);
        const int64_t number = chunk - first_chunks_[row];
        const int32_t* of_rows = a_.step->segments_of_rows;
        if (is_in_place(row)) {
            for (int64_t segment = of_rows[row]; segment < of_rows[row + 1]; ++segment)
                step_in_place(a_, segment, number, state_in_place(chunk + num_threads()));
            return;
        }
        Block block(a_, number / num_blocks_, number % num_blocks_ * kBlockColumns);
        for (int64_t segment = of_rows[row]; segment < of_rows[row + 1]; ++segment) block.run(segment);
    }

private:
    int64_t row_of(int64_t chunk) const {
        return std::upper_bound(first_chunks_, first_chunks_ + a_.step->num_rows, chunk) - first_chunks_ - 1;
    }

    // The state that a chunk reads, if it does so in place.
    const float* state_in_place(int64_t chunk) const {
        if (chunk >= count()) return nullptr;
        const int64_t row = row_of(chunk);
        if (!is_in_place(row)) return nullptr;
        return state_of(a_, a_.step->segment_reads[a_.step->segments_of_rows[row]], chunk - first_chunks_[row]);
    }

    bool is_in_place(int64_t row) const {
        const Step& step = *a_.step;
        const int32_t* of_rows = step.segments_of_rows;
        const int64_t tokens = step.segment_starts[of_rows[row + 1]] - step.segment_starts[of_rows[row]];
        return tokens <= kFewTokens && a_.value_dim % kLanes == 0;
    }

    const DeltaNet& a_;
    const int64_t num_blocks_;
    int64_t* first_chunks_;
};

void run(const DeltaNet& a) {
    parallel(a.step->num_tokens, [&](int64_t token) { prepare(a, token); });
    const Cuts cuts(a);
    parallel(cuts.count(), [&](int64_t chunk) { cuts.run(chunk); });
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_delta_net(const void* arguments) {
    penstock::run(*static_cast<const penstock::DeltaNet*>(arguments));
}
