// stream += update, and output[i] = input[indices[i]]: whole rows, nothing between them.
#include "rows.hpp"

#include <cstring>

#include "step.hpp"
#include "vector.hpp"

namespace penstock {

struct Add {
    const int32_t* num_rows;
    float* stream;        // [rows, width], updated in place
    const float* update;  // [rows, width]
    int64_t width;
};

struct GatherRows {
    const int32_t* num_rows;        // of the output
    const int64_t* const* indices;  // where the step says which rows of the input are wanted
    const float* input;             // [any, width]
    int64_t width;
    float* output;  // [rows, width]
};

static void add_rows(const Add& add) {
    over_rows(*add.num_rows, add.width, [&](int64_t row) {
        float* stream = add.stream + row * add.width;
        const float* update = add.update + row * add.width;
        over_lanes(add.width, [&](int64_t i, auto lanes) {
            store(stream + i, load(stream + i, lanes) + load(update + i, lanes), lanes);
        });
    });
}

static void gather_rows(const GatherRows& gather) {
    const int64_t* indices = *gather.indices;
    over_rows(*gather.num_rows, gather.width, [&](int64_t row) {
        std::memcpy(gather.output + row * gather.width, gather.input + indices[row] * gather.width,
                    gather.width * sizeof(float));
    });
}

}  // namespace penstock

extern "C" void penstock_add(const void* arguments) {
    penstock::add_rows(*static_cast<const penstock::Add*>(arguments));
}

extern "C" void penstock_gather_rows(const void* arguments) {
    penstock::gather_rows(*static_cast<const penstock::GatherRows*>(arguments));
}
