// total += norm(x), row by row, where each part of a row has a norm of its own.
//
//   total = total + x / sqrt(mean(x²) + ε) × weight      of each part of `part` numbers; all have the same weight
//
// One pass over a part squares, the next one scales what the first left in the cache.
#include <cmath>

#include "rows.hpp"
#include "step.hpp"
#include "vector.hpp"

namespace penstock {

struct AddPartNorms {
    const int32_t* num_rows;
    float* total;         // [rows, width], updated in place
    const float* x;       // [rows, width]
    const float* weight;  // [part]
    float epsilon;
    int64_t part;
    int64_t width;  // a multiple of `part`
};

static void add_part_norm(const AddPartNorms& a, const float* x, float* total) {
    const Vec scale = broadcast(1.0f / std::sqrt(sum_of_squares(x, a.part) / static_cast<float>(a.part) + a.epsilon));
    over_lanes(a.part, [&](int64_t i, auto lanes) {
        store(total + i, load(total + i, lanes) + load(x + i, lanes) * scale * load(a.weight + i, lanes), lanes);
    });
}

static void add_part_norms(const AddPartNorms& a) {
    over_rows(*a.num_rows, a.width, [&](int64_t row) {
        for (int64_t first = 0; first < a.width; first += a.part)
            add_part_norm(a, a.x + row * a.width + first, a.total + row * a.width + first);
    });
}

}  // namespace penstock

extern "C" void penstock_add_part_norms(const void* arguments) {
    penstock::add_part_norms(*static_cast<const penstock::AddPartNorms*>(arguments));
}
