// How stored floats meet input rows, format by format.
//
// A format says how a panel of kPanel output features lies in memory, what its inputs are, and what one step of
// `kDepth` input features, taken in `kParts`, adds to a vector of sums. Sums are float32, k ascends.
//   fp32, fp16  [k][32], the input float32
//   bf16        [k / 2][32][2], so that pairs of input features meet a pair instruction where there is one: then the
//               input is rounded to bf16 as well; elsewhere it stays float32 and the weights are widened
#pragma once
#include <cstring>

#include "linear.hpp"
#include "vector.hpp"

namespace penstock {

struct Fp32 {
    using Input = float;
    using Stored = float;
    using Step = Vec;     // what a vector of output features has stored for one step
    using Operand = Vec;  // what is multiplied: a part of a step, or an input in all lanes
    static constexpr int64_t kDepth = 1;
    static constexpr int kParts = 1;
    static Step load_step(const Stored* from) { return load(from); }
    static Operand weights(const Step& step, int) { return step; }
    static Operand input(const Input* from, int) { return broadcast(*from); }
    static Vec add_product(Vec sum, Operand weights, Operand input) { return fma(weights, input, sum); }
};

struct Fp16 : Fp32 {
    using Stored = uint16_t;
    static Step load_step(const Stored* from) { return load_fp16(from); }
};

struct Bf16Widened {
    using Input = float;
    using Stored = uint16_t;
    using Step = Bf16Pairs;
    using Operand = Vec;
    static constexpr int64_t kDepth = 2;
    static constexpr int kParts = 2;
    static Step load_step(const Stored* from) { return load_pairs(from); }
    static Operand weights(const Step& pairs, int part) { return part == 0 ? firsts(pairs) : seconds(pairs); }
    static Operand input(const Input* from, int part) { return broadcast(from[part]); }
    static Vec add_product(Vec sum, Operand weights, Operand input) { return fma(weights, input, sum); }
};

#if defined(__AVX512BF16__)
struct Bf16Dot {
    using Input = uint16_t;
    using Stored = uint16_t;
    using Step = __m512bh;
    using Operand = __m512bh;
    static constexpr int64_t kDepth = 2;
    static constexpr int kParts = 1;
    static Step load_step(const Stored* from) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(from)); }
    static Operand weights(const Step& step, int) { return step; }
    static Operand input(const Input* from, int) {
        return reinterpret_cast<__m512bh>(_mm512_set1_epi32(word_at(from)));
    }
    // Sums of pairs of products, and zeros for denormal numbers.
    static Vec add_product(Vec sum, Operand weights, Operand input) {
        return {_mm512_dpbf16_ps(sum.lanes, weights, input)};
    }
};
using Bf16 = Bf16Dot;
#else
using Bf16 = Bf16Widened;
#endif

template <class Format>
inline typename Format::Stored* float_panel(const Weight& weight, int64_t index) {
    using Stored = typename Format::Stored;
    return reinterpret_cast<Stored*>(const_cast<uint8_t*>(weight.panels)) + index * padded_in(weight) * kPanel;
}

}  // namespace penstock
