// Finding the best tokens and choosing one a row, as other kernels call them. Their sources say what they do.
#pragma once
#include "sampling.hpp"

namespace penstock {

struct Scan {
    Logits logits;
    float* largest;      // [rows]
    int64_t* best;       // [rows]
    uint8_t* is_finite;  // [rows]
};

// What draws depend on, in columns of one value a line: the columns of `Columns` in kernels/reference.
struct DrawColumns {
    const int64_t* kinds;
    const float* temperature;
    const float* top_p;
    const float* min_p;
    const int64_t* top_k;
    const int64_t* seed;
    const int64_t* sample;
};

struct Choose {
    Logits logits;  // with their maxima
    const float* largest;
    const int64_t* best;
    DrawColumns columns;
    const int64_t* lines;  // of the columns, for each row; null: a row's own
    const int64_t* positions;
    double* sums;  // [rows, blocks], to work in
    int64_t* token_ids;
};

// The parameters of one line, with the rule that looks at a weight alone; the largest weighs 1.
struct DrawParameters {
    float temperature;
    float top_p;
    float min_p;
    int64_t top_k;

    DrawParameters(const DrawColumns& columns, int64_t line)
        : temperature(columns.temperature[line]),
          top_p(columns.top_p[line]),
          min_p(columns.min_p[line]),
          top_k(columns.top_k[line]) {}

    float least_weight() const { return min_p; }
    void leave_out(float* weights, int64_t count) const {
        for (int64_t i = 0; i < count; ++i) weights[i] = weights[i] >= min_p ? weights[i] : 0;
    }
};

void scan(const Scan& scan);
void choose(const Choose& choose);

}  // namespace penstock
