// The norm of all query heads of a token together, and of all its key heads, over the heads of all ranks.
//
//   sums[t] = Σ query², Σ key²                                  of this rank's heads; ranks add them up in between
//   x = clamp(x / sqrt(sum / total + ε) × weight, ±limit)       queries and keys; values are clamped only
//
// Rows are [queries, keys, values], changed in place.
#include <cmath>

#include "rows.hpp"
#include "step.hpp"
#include "vector.hpp"

namespace penstock {

struct SquareSums {
    const int32_t* num_rows;
    const float* heads;  // [rows, width]
    int64_t width;
    int64_t query_width;
    int64_t key_width;
    float* output;  // [rows, 2]: the sums
};

struct NormProjections {
    const int32_t* num_rows;
    float* heads;  // [rows, width], changed in place
    int64_t width;
    int64_t query_width;
    int64_t key_width;
    const float* sums;          // [rows, 2], of all ranks
    const float* query_weight;  // [query_width]
    const float* key_weight;    // [key_width]
    int64_t query_total;        // how many numbers the sums are of
    int64_t key_total;
    float epsilon;
    float limit;
};

static void square_sums(const SquareSums& a) {
    over_rows(*a.num_rows, a.width, [&](int64_t row) {
        const float* heads = a.heads + row * a.width;
        a.output[2 * row] = sum_of_squares(heads, a.query_width);
        a.output[2 * row + 1] = sum_of_squares(heads + a.query_width, a.key_width);
    });
}

static void scale_and_clamp(float* x, const float* weight, float factor, int64_t count, float limit) {
    const Vec scale = broadcast(factor), most = broadcast(limit), least = broadcast(-limit);
    over_lanes(count, [&](int64_t i, auto lanes) {
        Vec value = load(x + i, lanes) * scale;
        if (weight) value = value * load(weight + i, lanes);
        // What is no number stays: these take the second operand then.
        store(x + i, maximum(least, minimum(most, value)), lanes);
    });
}

static float factor_of(float squares, int64_t total, float epsilon) {
    return 1.0f / std::sqrt(squares / static_cast<float>(total) + epsilon);
}

static void norm_projections(const NormProjections& a) {
    over_rows(*a.num_rows, a.width, [&](int64_t row) {
        float* heads = a.heads + row * a.width;
        const float* sums = a.sums + 2 * row;
        const float query = factor_of(sums[0], a.query_total, a.epsilon);
        const float key = factor_of(sums[1], a.key_total, a.epsilon);
        const int64_t normed = a.query_width + a.key_width;
        scale_and_clamp(heads, a.query_weight, query, a.query_width, a.limit);
        scale_and_clamp(heads + a.query_width, a.key_weight, key, a.key_width, a.limit);
        if (std::isfinite(a.limit)) scale_and_clamp(heads + normed, nullptr, 1.0f, a.width - normed, a.limit);
    });
}

}  // namespace penstock

extern "C" void penstock_square_sums(const void* arguments) {
    penstock::square_sums(*static_cast<const penstock::SquareSums*>(arguments));
}

extern "C" void penstock_norm_projections(const void* arguments) {
    penstock::norm_projections(*static_cast<const penstock::NormProjections*>(arguments));
}
