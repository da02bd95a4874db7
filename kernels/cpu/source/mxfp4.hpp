// MXFP4: 4-bit floats in blocks of 32 inputs that share a power of 2, and where the parts of a packed weight lie.
//
//   weight[n, k] = doubled[code] × 2^(exponent - 128)
//
// Twice a value is a whole number up to 12, so an integer product is exact. Two blocks lie together, so that every line
// of memory holds one kind of bytes:
//
//   { exponents: [2][32], codes: [64 / 8][32][4] }      nibbles in the order of int4's
#pragma once
#include "linear.hpp"

namespace penstock {

constexpr int64_t kMxfp4Block = 32;
constexpr int64_t kMxfp4PairBytes = 2 * kPanel + 2 * kMxfp4Block * kPanel / 2;
// By code: twice the value, plus what makes all of them unsigned.
constexpr int kMxfp4Zero = 12;
constexpr uint8_t kMxfp4Unsigned[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
constexpr int8_t kMxfp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct Mxfp4Shape {
    int64_t width;  // inputs, padded
    int64_t num_groups;
    int64_t panel_bytes;
    static constexpr int64_t group_size = kMxfp4Block;

    explicit Mxfp4Shape(const Weight& weight)
        : width(padded_in(weight)),
          num_groups(width / kMxfp4Block),
          panel_bytes(num_groups / 2 * kMxfp4PairBytes) {}

    static int64_t scales_at(int64_t group) { return group / 2 * kMxfp4PairBytes + group % 2 * kPanel; }
    static int64_t nibbles_at(int64_t group) {
        return group / 2 * kMxfp4PairBytes + 2 * kPanel + group % 2 * (kMxfp4Block * kPanel / 2);
    }
};

}  // namespace penstock
