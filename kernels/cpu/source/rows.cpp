// Whole rows, and nothing between them: sums, gated ones too, and output[i] = input[indices[i]].
#include "rows.hpp"

#include <cstring>

#include "step.hpp"
#include "vector.hpp"

namespace penstock {

struct Add {
    const int32_t* num_rows;
    const float* stream;  // [rows, width]
    const float* update;  // [rows, width]
    int64_t width;
    float* output;  // [rows, width]: the stream itself, unless ranks share the sum
};

// output = total + update × sigmoid(gate)
struct AddGated {
    const int32_t* num_rows;
    const float* total;   // [rows, width]
    const float* update;  // [rows, width]
    const float* gate;    // [rows]
    int64_t width;
    float* output;  // [rows, width]: the total itself, unless ranks share the sum
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
        const float* stream = add.stream + row * add.width;
        const float* update = add.update + row * add.width;
        float* output = add.output + row * add.width;
        over_lanes(add.width, [&](int64_t i, auto lanes) {
            store(output + i, load(stream + i, lanes) + load(update + i, lanes), lanes);
        });
    });
}

static void add_gated_rows(const AddGated& add) {
    over_rows(*add.num_rows, add.width, [&](int64_t row) {
        const float* total = add.total + row * add.width;
        const float* update = add.update + row * add.width;
        float* output = add.output + row * add.width;
        const Vec one = broadcast(1.0f), gate = one / (exp(zero() - broadcast(add.gate[row])) + one);
        over_lanes(add.width, [&](int64_t i, auto lanes) {
            store(output + i, load(total + i, lanes) + load(update + i, lanes) * gate, lanes);
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

extern "C" void penstock_add_gated(const void* arguments) {
    penstock::add_gated_rows(*static_cast<const penstock::AddGated*>(arguments));
}

extern "C" void penstock_gather_rows(const void* arguments) {
    penstock::gather_rows(*static_cast<const penstock::GatherRows*>(arguments));
}
