// Products of rows with a packed weight matrix: their arguments, and how the weights lie.
//
//   output[m, n] = Σ_k input[m, k] × weight[n, k] + bias[n]
//
// A weight lies in panels of kPanel output features, so that a vector's lanes are output features and no sum crosses
// lanes. Within a panel k runs slowest:
//   fp32, fp16    [k][32]
//   bf16          [k / 2][32][2]
//   int8          [k / 4][32][4], unsigned: value + 128; behind all panels a float32 scale per (padded) output feature
//   int4          [group]{scales fp16 [32], zeros int16 [32] if has_zeros, nibbles [k / 8][32][4]}
//                 a byte's low nibble is k + 0..3, its high nibble k + 4..7; unsigned, zero 8 if not has_zeros
//   mxfp4         [k / 64]{exponents [2][32], nibbles as int4's}: a byte each for 32 inputs and an output feature
//   ggml's types  [block]{scales, codes} as block_types.hpp says
// in_features are filled up to a multiple of kRowAlign, out_features to one of kPanel.
#pragma once
#include <cstdint>

#include "quantize.hpp"

namespace penstock {

constexpr int64_t kPanel = 32;
constexpr int64_t kInt8Zero = 128;
constexpr int64_t kInt4Zero = 8;

struct Weight {
    const uint8_t* panels;
    const float* scales;  // int8: one per output feature; null otherwise
    int64_t out_features;
    int64_t in_features;
    int64_t group_size;  // int4: input features that share a scale
    int64_t has_zeros;   // int4: every group has its own zero
    int64_t block_type;  // of ggml's blocks: which (block_types.hpp); else 0
};

struct Linear {
    const int32_t* num_rows;
    const float* input;         // [rows, in_features]: what float weights multiply
    Quantized quantized_input;  // what integer weights multiply
    Weight weight;
    const float* bias;  // [out_features], or null
    float* output;      // [rows, output_stride]
    int64_t output_stride;
};

// What a packer reads, and where to.
enum class SourceType : int64_t { kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2, kFloat8 = 3 };

// How a source of 8-bit floats is read: number = values[code] × the scale of the block that it lies in.
struct Float8Blocks {
    const float* values;   // [256]: what each code means
    const float* scales;   // [blocks of rows, scale_stride]
    int64_t scale_stride;  // blocks in a row
    int64_t rows;          // of a block
    int64_t columns;
    int64_t first_row;  // where in its block the source's first number lies
    int64_t first_column;
};

struct Pack {
    const void* source;  // [num_rows, in_features]
    SourceType source_type;
    int64_t source_stride;  // elements from row to row
    int64_t num_rows;
    int64_t first_row;    // the source's first row is this output feature of the weight
    Float8Blocks blocks;  // of kFloat8
    Weight weight;        // written
};

inline int64_t padded_in(const Weight& weight) { return round_up(weight.in_features, kRowAlign); }
inline int64_t num_panels(const Weight& weight) { return (weight.out_features + kPanel - 1) / kPanel; }

}  // namespace penstock
