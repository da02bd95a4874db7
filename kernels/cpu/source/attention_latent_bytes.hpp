// Latents in bytes, laid out as keys are, for the products of bytes (attention_products.hpp).
//
// They lie in the order of values (kv_layout.hpp): four tokens of a dimension together. A product with keys takes four
// dimensions of a token together, unsigned. A tile's rows are many, heads × tokens, so a stretch is laid out once for all.
#pragma once
#include "attention_products.hpp"

namespace penstock {

// [4 dimensions][4 tokens] of signed bytes as [4 tokens][4 dimensions] of unsigned ones, kInt8KeyZero higher.
inline void turn_bytes(const uint8_t* from, uint8_t* to) {
#if defined(__SSSE3__)
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i turned = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)), order);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_xor_si128(turned, _mm_set1_epi8(static_cast<char>(kInt8KeyZero))));
#else
    for (int64_t token = 0; token < 4; ++token)
        for (int64_t i = 0; i < 4; ++i) to[token * 4 + i] = from[i * 4 + token] ^ kInt8KeyZero;
#endif
}

class LatentsAsKeys {
public:
    void carve(uint8_t* memory) { keys_ = memory; }
    static int64_t bytes(int64_t head_dim) { return kStretch * head_dim; }

    // Lets the stretch's keys be those that its values are.
    void lay_out(StretchMemory& memory, int64_t head_dim) const {
        memory.key_step = kLanes * 4;
        for (int64_t vector = memory.first; vector < memory.end; ++vector) {
            uint8_t* to = keys_ + vector * kLanes * head_dim;
            memory.keys[vector] = to;
            for (int64_t token = 0; token < kLanes; token += 4) {
                const uint8_t* from = memory.values[vector] + token / 4 * memory.value_step;
                for (int64_t d = 0; d < head_dim; d += 4) turn_bytes(from + d * 4, to + d * kLanes + token * 4);
            }
        }
    }

    // From there on, the keys begin with this dimension.
    static void begin_at(StretchMemory& memory, int64_t dimension) {
        for (int64_t vector = memory.first; vector < memory.end; ++vector)
            memory.keys[vector] += dimension / 4 * memory.key_step;
    }

private:
    uint8_t* keys_ = nullptr;  // [vectors][head_dim / 4][lanes][4]
};

}  // namespace penstock
