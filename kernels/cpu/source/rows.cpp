// Whole rows, and nothing between them: sums, gated ones too, capped logits, output[i] = input[indices[i]], and rows made
// elsewhere that some tokens get.
#include "rows.hpp"

#include <cstring>

#include "quantize.hpp"
#include "step.hpp"
#include "vector.hpp"

namespace penstock {

// output = (stream + scale × update) × factor
struct Add {
    const int32_t* num_rows;
    const float* stream;  // [rows, width]
    const float* update;  // [rows, width]
    float scale;
    float factor;
    int64_t width;
    float* output;  // [rows, width]: the stream itself, unless ranks share the sum
    Quantized quantized;
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

// output = limit × tanh(input / limit)
struct Cap {
    const int32_t* num_rows;
    const float* input;  // [rows, width]
    int64_t width;
    float limit;
    float* output;  // [rows, output_stride]: the input itself, unless ranks share the rows
    int64_t output_stride;
};

struct GatherRows {
    const int32_t* num_rows;        // of the output
    const int64_t* const* indices;  // where the step says which rows of the input are wanted
    const float* input;             // [any, width]
    int64_t width;
    float* output;  // [rows, width]
};

struct PlaceRows {
    const Step* step;  // says which tokens get which rows
    float* stream;     // [rows, width], changed in place
    int64_t width;
    int64_t part;  // of the rows: numbers from part × width on
};

static void add_to_rows(const Add& add) {
    over_rows(*add.num_rows, add.width, [&](int64_t row) {
        const float* stream = add.stream + row * add.width;
        const float* update = add.update + row * add.width;
        float* output = add.output + row * add.width;
        const Vec scale = broadcast(add.scale), factor = broadcast(add.factor);
        over_lanes(add.width, [&](int64_t i, auto lanes) {
            store(output + i, (load(stream + i, lanes) + load(update + i, lanes) * scale) * factor, lanes);
        });
        if (add.quantized.values) quantize_row(output, add.width, add.quantized, row);
    });
}

// Rows of a vocabulary are long, and few.
static void cap_rows(const Cap& cap) {
    const int64_t num_chunks = (cap.width + kRowChunkElements - 1) / kRowChunkElements;
    parallel(num_chunks * *cap.num_rows, [&](int64_t item) {
        const int64_t row = item / num_chunks, first = item % num_chunks * kRowChunkElements;
        const float* input = cap.input + row * cap.width + first;
        float* output = cap.output + row * cap.output_stride + first;
        const Vec limit = broadcast(cap.limit);
        over_lanes(std::min(kRowChunkElements, cap.width - first), [&](int64_t i, auto lanes) {
            store(output + i, limit * tanh(load(input + i, lanes) / limit), lanes);
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

// Calls place(row of the stream, row that its token gets) for each such token.
template <class Place>
static void place_rows(const PlaceRows& a, const Place& place) {
    const Step& step = *a.step;
    over_rows(step.num_placed, a.width, [&](int64_t i) {
        place(a.stream + step.placed_tokens[i] * a.width,
              step.kept_rows + step.placed_rows[i] * step.kept_width + a.part * a.width);
    });
}

static void put_rows(const PlaceRows& a) {
    place_rows(a, [&](float* row, const float* kept) { std::memcpy(row, kept, a.width * sizeof(float)); });
}

static void add_rows(const PlaceRows& a) {
    place_rows(a, [&](float* row, const float* kept) {
        over_lanes(a.width, [&](int64_t i, auto lanes) { store(row + i, load(row + i, lanes) + load(kept + i, lanes), lanes); });
    });
}

}  // namespace penstock

extern "C" void penstock_put_rows(const void* arguments) {
    penstock::put_rows(*static_cast<const penstock::PlaceRows*>(arguments));
}

extern "C" void penstock_add_rows(const void* arguments) {
    penstock::add_rows(*static_cast<const penstock::PlaceRows*>(arguments));
}

extern "C" void penstock_add(const void* arguments) {
    penstock::add_to_rows(*static_cast<const penstock::Add*>(arguments));
}

extern "C" void penstock_add_gated(const void* arguments) {
    penstock::add_gated_rows(*static_cast<const penstock::AddGated*>(arguments));
}

extern "C" void penstock_cap(const void* arguments) {
    penstock::cap_rows(*static_cast<const penstock::Cap*>(arguments));
}

extern "C" void penstock_gather_rows(const void* arguments) {
    penstock::gather_rows(*static_cast<const penstock::GatherRows*>(arguments));
}
