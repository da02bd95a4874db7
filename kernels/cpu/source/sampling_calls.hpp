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

struct Choose {
    Logits logits;  // with their maxima
    const float* largest;
    const int64_t* best;
    const int64_t* kinds;
    const float* temperatures;
    const float* top_ps;
    const float* min_ps;
    const int64_t* top_ks;
    const int64_t* seeds;
    const int64_t* samples;
    const int64_t* positions;
    double* sums;  // [rows, blocks], to work in
    int64_t* token_ids;
};

void scan(const Scan& scan);
void choose(const Choose& choose);

}  // namespace penstock
