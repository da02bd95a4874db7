// Where the parts of a packed int4 weight lie: a panel is a row of groups, one after the other.
//
//   group = { scales: fp16 [32], zeros: int16 [32] (if has_zeros), nibbles: [group_size / 8][32][4] }
//
// The last group of a panel has its full size too, but may have fewer inputs.
#pragma once
#include "linear.hpp"

namespace penstock {

constexpr int64_t kHeaderBytes = kPanel * 2;  // scales, and as much again for zeros

struct Int4Shape {
    int64_t width;  // inputs, padded
    int64_t group_size;
    int64_t num_groups;
    int64_t header_bytes;
    int64_t group_bytes;
    int64_t panel_bytes;

    explicit Int4Shape(const Weight& weight)
        : width(padded_in(weight)),
          group_size(weight.group_size),
          num_groups((width + group_size - 1) / group_size),
          header_bytes(weight.has_zeros ? 2 * kHeaderBytes : kHeaderBytes),
          group_bytes(header_bytes + group_size * kPanel / 2),
          panel_bytes(num_groups * group_bytes) {}

    int64_t scales_at(int64_t group) const { return group * group_bytes; }  // in a panel
    int64_t nibbles_at(int64_t group) const { return group * group_bytes + header_bytes; }

    const uint8_t* group(const Weight& weight, int64_t row, int64_t index) const {
        return weight.panels + row / kPanel * panel_bytes + index * group_bytes;
    }
};

}  // namespace penstock
