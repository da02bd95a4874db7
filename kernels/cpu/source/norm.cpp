// stream += update; output = stream / sqrt(mean(stream²) + ε) × weight, row by row.
//
// The first pass over a row adds and squares, the second scales what the first left in the cache.
#include <cmath>

#include "quantize.hpp"
#include "rows.hpp"
#include "step.hpp"
#include "vector.hpp"

namespace penstock {

struct AddRmsNorm {
    const int32_t* num_rows;
    float* stream;        // [rows, width]: the residual stream, updated in place
    const float* update;  // [rows, width]; null where nothing is added
    const float* weight;  // [width]
    float epsilon;
    int64_t width;
    float* output;  // [rows, width]; null where only the quantized form is wanted
    Quantized quantized;
};

// Adds the update to the row and returns the sum of its squares.
static float add_and_square(float* stream, const float* update, int64_t width) {
    Vec squares = zero();
    over_lanes(width, [&](int64_t i, auto lanes) {
        Vec x = load(stream + i, lanes);
        if (update) {
            x = x + load(update + i, lanes);
            store(stream + i, x, lanes);
        }
        squares = fma(x, x, squares);
    });
    return sum(squares);
}

static void add_rms_norm(const AddRmsNorm& norm) {
    const int64_t width = norm.width;
    over_rows(*norm.num_rows, width, [&](int64_t row) {
        float* stream = norm.stream + row * width;
        const float squares = add_and_square(stream, norm.update ? norm.update + row * width : nullptr, width);
        const Vec scale = broadcast(1.0f / std::sqrt(squares / static_cast<float>(width) + norm.epsilon));
        float* output = norm.output ? norm.output + row * width
                                    : static_cast<float*>(thread_scratch(width * sizeof(float)));
        over_lanes(width, [&](int64_t i, auto lanes) {
            store(output + i, load(stream + i, lanes) * scale * load(norm.weight + i, lanes), lanes);
        });
        if (norm.quantized.values) quantize_row(output, width, norm.quantized, row);
    });
}

}  // namespace penstock

extern "C" void penstock_add_rms_norm(const void* arguments) {
    penstock::add_rms_norm(*static_cast<const penstock::AddRmsNorm*>(arguments));
}
