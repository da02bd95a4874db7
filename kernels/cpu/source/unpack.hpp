// Single rows of integer weights as float32, for embeddings.
//
//   int8: (u - 128) × scale        int4: (u - zero) × the group's scale
//
// Panels lie as linear.hpp and int4.hpp say. A row's bytes are far apart, so there is nothing here for vectors.
#pragma once
#include <algorithm>
#include <cstring>

#include "int4.hpp"
#include "vector.hpp"

namespace penstock {

inline void unpack_int8_row(const Weight& weight, int64_t row, float* to) {
    const uint8_t* column = weight.panels + row / kPanel * padded_in(weight) * kPanel + row % kPanel * 4;
    const float scale = weight.scales[row];
    for (int64_t k = 0; k < weight.in_features; ++k) {
        const int64_t value = column[k / 4 * kPanel * 4 + k % 4] - kInt8Zero;
        to[k] = static_cast<float>(value) * scale;
    }
}

inline void unpack_int4_row(const Weight& weight, int64_t row, float* to) {
    const Int4Shape shape(weight);
    const int64_t lane = row % kPanel;
    for (int64_t index = 0, start = 0; start < weight.in_features; ++index, start += weight.group_size) {
        const uint8_t* group = shape.group(weight, row, index);
        uint16_t half[kLanes] = {};
        std::memcpy(half, group + lane * sizeof *half, sizeof *half);
        float scale[kLanes];
        store(scale, load_fp16(half));
        int16_t zero = kInt4Zero;
        if (weight.has_zeros) std::memcpy(&zero, group + kHeaderBytes + lane * sizeof zero, sizeof zero);
        const uint8_t* column = group + shape.header_bytes + lane * 4;
        const int64_t count = std::min(weight.group_size, weight.in_features - start);
        for (int64_t k = 0; k < count; ++k) {
            const uint8_t byte = column[k / 8 * kPanel * 4 + k % 4];
            const int64_t value = (k % 8 < 4 ? byte & 15 : byte >> 4) - zero;
            to[start + k] = static_cast<float>(value) * scale[0];
        }
    }
}

}  // namespace penstock
