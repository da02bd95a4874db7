// One row's draw, in each of the three ways that sampling_choose.cpp states.
#pragma once
#include "sampling_calls.hpp"

namespace penstock {

// How a row chooses; the reference numbers them likewise.
enum Kind : int64_t { kBest = 0, kOfTopK = 1, kOfTopP = 2, kOfAll = 3 };

struct Draw {
    const Logits& logits;  // with their maxima
    int64_t row;
    float largest;
    DrawParameters parameters;
    const double* sums;  // of the row's blocks; not set for top_k
    double uniform;
};

int64_t draw_of_top_k(const Draw& draw);
int64_t draw_of_top_p(const Draw& draw);
int64_t draw_of_all(const Draw& draw);

}  // namespace penstock
