// stream += scale × update, then a norm of the stream, row by row.
//
//   output = stream / sqrt(mean(stream²) + ε) × weight                      penstock_add_rms_norm
//   output = centred / sqrt(mean(centred²) + ε) × weight + bias             penstock_add_layer_norm
//
// where centred = stream - mean(stream). The first pass over a row adds and squares, or sums; the last one scales what
// the others left in the cache.
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
    float scale;          // of the update
    const float* weight;  // [width]
    float epsilon;
    int64_t width;
    float* output;  // [rows, width]; null where only the quantized form is wanted
    Quantized quantized;
};

struct AddLayerNorm {
    const int32_t* num_rows;
    float* stream;        // [rows, width], updated in place
    const float* update;  // [rows, width]; null where nothing is added
    float scale;          // of the update
    const float* weight;  // [width]
    const float* bias;    // [width], or null
    float epsilon;
    int64_t width;
    float* output;  // [rows, width]; null where only the quantized form is wanted
    Quantized quantized;
};

// Adds the update to the row; returns the sum of what take(number, sum) makes of the new numbers.
template <class Take>
static float add_update(float* stream, const float* update, float factor, int64_t width, const Take& take) {
    const Vec scale = broadcast(factor);
    return sum_over_lanes(width, [&](int64_t i, auto lanes, Vec sum) {
        Vec x = load(stream + i, lanes);
        if (update) {
            x = x + load(update + i, lanes) * scale;
            store(stream + i, x, lanes);
        }
        return take(x, sum);
    });
}

// Calls finish(stream, output) for every row, after what is added to it, and quantizes what it writes.
template <class Norm, class Take, class Finish>
static void norm_rows(const Norm& norm, const Take& take, const Finish& finish) {
    const int64_t width = norm.width;
    over_rows(*norm.num_rows, width, [&](int64_t row) {
        float* stream = norm.stream + row * width;
        const float* update = norm.update ? norm.update + row * width : nullptr;
        const float total = add_update(stream, update, norm.scale, width, take);
        float* output = norm.output ? norm.output + row * width
                                    : static_cast<float*>(thread_scratch(width * sizeof(float)));
        finish(stream, output, total / static_cast<float>(width));
        if (norm.quantized.values) quantize_row(output, width, norm.quantized, row);
    });
}

static void add_rms_norm(const AddRmsNorm& norm) {
    norm_rows(norm, [](Vec x, Vec squares) { return fma(x, x, squares); },
              [&](const float* stream, float* output, float square) {
        const Vec scale = broadcast(1.0f / std::sqrt(square + norm.epsilon));
        over_lanes(norm.width, [&](int64_t i, auto lanes) {
            store(output + i, load(stream + i, lanes) * scale * load(norm.weight + i, lanes), lanes);
        });
    });
}

// Lanes behind a row's end hold zeros, which must not become something else.
static Vec within(Vec x, AllLanes) { return x; }
static Vec within(Vec x, FirstLanes lanes) {
    float first[kLanes] = {};
    store(first, x, lanes);
    return load(first);
}

static float mean_square_from(const float* stream, float mean, int64_t width) {
    const float squares = sum_over_lanes(width, [&](int64_t i, auto lanes, Vec sum) {
        const Vec centred = within(load(stream + i, lanes) - broadcast(mean), lanes);
        return fma(centred, centred, sum);
    });
    return squares / static_cast<float>(width);
}

static void add_layer_norm(const AddLayerNorm& norm) {
    norm_rows(norm, [](Vec x, Vec sums) { return sums + x; },
              [&](const float* stream, float* output, float mean_of_row) {
        const Vec mean = broadcast(mean_of_row);
        const Vec scale = broadcast(1.0f / std::sqrt(mean_square_from(stream, mean_of_row, norm.width) + norm.epsilon));
        over_lanes(norm.width, [&](int64_t i, auto lanes) {
            const Vec normed = (load(stream + i, lanes) - mean) * scale * load(norm.weight + i, lanes);
            store(output + i, norm.bias ? normed + load(norm.bias + i, lanes) : normed, lanes);
        });
    });
}

}  // namespace penstock

extern "C" void penstock_add_rms_norm(const void* arguments) {
    penstock::add_rms_norm(*static_cast<const penstock::AddRmsNorm*>(arguments));
}

extern "C" void penstock_add_layer_norm(const void* arguments) {
    penstock::add_layer_norm(*static_cast<const penstock::AddLayerNorm*>(arguments));
}
