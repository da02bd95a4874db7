// One row's draw, in each of the three ways that sampling_choose.cpp states.
#pragma once
#include "sampling.hpp"

namespace penstock {

// How a row chooses; the reference numbers them likewise.
enum Kind : int64_t { kBest = 0, kOfTopK = 1, kOfTopP = 2, kOfAll = 3 };

struct Draw {
    const Logits& logits;  // with their maxima
    int64_t row;
    float largest;
    float temperature;
    float top_p;
    float min_p;
    int64_t top_k;
    const double* sums;  // of the row's blocks; not set for top_k
    double uniform;
};

int64_t draw_of_top_k(const Draw& draw);
int64_t draw_of_top_p(const Draw& draw);
int64_t draw_of_all(const Draw& draw);

inline void leave_out(float* weights, int64_t count, float least) {
    for (int64_t i = 0; i < count; ++i) weights[i] = weights[i] >= least ? weights[i] : 0;
}

}  // namespace penstock
