// The causal convolution of layers that keep states: of each channel a sum over its last inputs.
//
//   output[t] = activation(bias + Σ_tap weight[tap] × input[t - (width - 1) + tap])        taps ascend
//
// A state is the width - 1 inputs before a token; a segment begins with the one that it reads and leaves the one that
// it writes. A chunk of work is some channels of a row, whose tokens are taken one after another.
#include <algorithm>

#include "pool.hpp"
#include "step.hpp"
#include "vector.hpp"

namespace penstock {

constexpr int64_t kMostWidth = 16;

struct CausalConvolution {
    const Step* step;
    const float* input;  // [T, channels]
    int64_t channels;
    int64_t width;        // up to kMostWidth
    const float* weight;  // [width, channels]
    const float* bias;    // [channels], or null
    int64_t has_silu;
    float* states;  // [num_states, width - 1, channels]
    int64_t state_stride;
    float* output;  // [T, channels]
};

namespace {

constexpr int64_t kChunkChannels = 256;

// Some channels of one segment.
class Stretch {
public:
    Stretch(const CausalConvolution& a, int64_t segment, int64_t first, int64_t count)
        : a_(a),
          begin_(a.step->segment_starts[segment]),
          end_(a.step->segment_starts[segment + 1]),
          first_(first),
          count_(count),
          before_(state(a.step->segment_reads[segment])),
          behind_(state(a.step->segment_writes[segment])) {}

    void run() const {
        for (int64_t token = begin_; token < end_; ++token) convolve(token);
        for (int64_t i = 0; i + 1 < a_.width; ++i) {
            const float* from = input(end_ - begin_ + i);
            float* to = behind_ + i * a_.channels;
            if (from != to) std::copy(from, from + count_, to);
        }
    }

private:
    float* state(int32_t number) const { return number < 0 ? nullptr : a_.states + number * a_.state_stride + first_; }

    // Inputs counted from the first one that the state before holds.
    const float* input(int64_t number) const {
        static const float kNothing[kChunkChannels] = {};
        if (number >= a_.width - 1) return a_.input + (begin_ + number - (a_.width - 1)) * a_.channels + first_;
        return before_ ? before_ + number * a_.channels : kNothing;
    }

    void convolve(int64_t token) const {
        const float* inputs[kMostWidth];
        for (int64_t tap = 0; tap < a_.width; ++tap) inputs[tap] = input(token - begin_ + tap);
        float* output = a_.output + token * a_.channels + first_;
        over_lanes(count_, [&](int64_t i, auto lanes) {
            Vec total = a_.bias ? load(a_.bias + first_ + i, lanes) : zero();
            for (int64_t tap = 0; tap < a_.width; ++tap)
                total = fma(load(inputs[tap] + i, lanes), load(a_.weight + tap * a_.channels + first_ + i, lanes), total);
            if (a_.has_silu) total = total / (exp(zero() - total) + broadcast(1.0f));
            store(output + i, total, lanes);
        });
    }

    const CausalConvolution& a_;
    const int64_t begin_, end_;    // tokens
    const int64_t first_, count_;  // channels
    const float* before_;          // null: nothing came before
    float* behind_;
};

void convolve(const CausalConvolution& a) {
    const int64_t num_chunks = (a.channels + kChunkChannels - 1) / kChunkChannels;
    parallel(a.step->num_rows * num_chunks, [&](int64_t item) {
        const int64_t row = item / num_chunks, first = item % num_chunks * kChunkChannels;
        const int64_t count = std::min(kChunkChannels, a.channels - first);
        const int32_t* of_rows = a.step->segments_of_rows;
        for (int64_t segment = of_rows[row]; segment < of_rows[row + 1]; ++segment)
            Stretch(a, segment, first, count).run();
    });
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_causal_convolution(const void* arguments) {
    penstock::convolve(*static_cast<const penstock::CausalConvolution*>(arguments));
}
