// Scores of latents, which lie in the order of values (kv_layout.hpp): a vector's lanes are dimensions.
//
//   score[row, key] = Σ over lanes of Σ_i row[i + lane] × key[i + lane]     i ascends by vectors
//
// Each pair of a row and a key has a sum of its own in sixteen lanes, which are added in one fixed order in the end, so
// that a row's bits don't depend on its neighbours. Vectors of eight lanes take one half of them after the other. A tile
// is up to 6 rows (AVX2: 2) by 4 keys: a vector of keys serves all rows, and one of a row all keys.
#pragma once
#include "attention_products.hpp"

namespace penstock {

constexpr int64_t kLatentKeys = 4;
constexpr int64_t kLatentStep = 2 * kLanes;  // numbers that rows of queries are filled up to, with zeros
constexpr int64_t kMostLatentRows = kLanes == 16 ? 6 : 2;

// How so many keys are read side by side, and what they meet: kStep of their numbers, of which `left` are there.
template <class Format>
struct LatentKeys {
    static constexpr int64_t kStep = kLanes;
    using Operand = Vec;
    static void load(const uint8_t* from, int64_t value_step, int64_t, Operand (&keys)[kLatentKeys]) {
        for (int64_t key = 0; key < kLatentKeys; ++key) keys[key] = Format::load(from + key * value_step);
    }
    static Operand query(const float* row) { return penstock::load(row); }
    static Vec add(Vec sum, Operand key, Operand query) { return fma(key, query, sum); }
    static void order_query(float*) {}
};

#if defined(__AVX512BF16__)
// Lanes hold the numbers i and i + kLanes of one key, and so do those of a query.
template <>
struct LatentKeys<Bf16Format> {
    static constexpr int64_t kStep = 2 * kLanes;
    using Operand = Quads;
    static void load(const uint8_t* from, int64_t value_step, int64_t left, Operand (&keys)[kLatentKeys]) {
        for (int64_t key = 0; key < kLatentKeys; key += 2, from += value_step) {
            const Quads low = load_quads(from), high = left > kLanes ? load_quads(from + kLanes * 4) : zero_quads();
            keys[key] = join_firsts(low, high);
            keys[key + 1] = join_seconds(low, high);
        }
    }
    static Operand query(const uint16_t* row) { return load_quads(row); }
    static Vec add(Vec sum, Operand key, Operand query) { return dot_bf16(sum, key, query); }
    static void order_query(uint16_t* row) {
        uint16_t natural[kStep];
        std::copy(row, row + kStep, natural);
        for (int64_t i = 0; i < kLanes; ++i) {
            row[2 * i] = natural[i];
            row[2 * i + 1] = natural[kLanes + i];
        }
    }
};
#else
template <>
struct LatentKeys<Bf16Format> : LatentKeys<Fp32Format> {
    static void load(const uint8_t* from, int64_t value_step, int64_t, Operand (&keys)[kLatentKeys]) {
        for (int64_t key = 0; key < kLatentKeys; key += 2, from += value_step) {
            const Quads pairs = load_quads(from);
            keys[key] = first_of_pairs(pairs);
            keys[key + 1] = second_of_pairs(pairs);
        }
    }
};
#endif

template <class Format, int kRows>
inline void latent_score_tile(const StretchMemory& memory, int64_t vector, int64_t width,
                              const typename Format::Number* rows, int64_t row_stride, float* scores, bool is_first) {
    using Keys = LatentKeys<Format>;
    constexpr int64_t kUnits = kLatentKeys / Format::kPerUnit;  // that the keys of a tile lie in
    const uint8_t* ahead = memory.after_keys[vector];
    for (int64_t first = 0; first < kLanes; first += kLatentKeys) {
        const uint8_t* keys = memory.values[vector] + first / Format::kPerUnit * memory.value_step;
        Vec wide[WideSum::kParts][kRows][kLatentKeys];
#pragma GCC unroll 2
        for (int64_t part = 0; part < WideSum::kParts; ++part) {
            Vec sums[kRows][kLatentKeys];
            for (auto& of_row : sums)
                for (Vec& sum : of_row) sum = zero();
            for (int64_t i = part * kLanes; i < width; i += WideSum::kParts * Keys::kStep) {
                typename Keys::Operand operands[kLatentKeys];
                Keys::load(keys + i * Format::kUnitBytes, memory.value_step, width - i, operands);
                if (is_first) {
                    fetch_to_second(ahead, kUnits * Keys::kStep * Format::kUnitBytes);
                    ahead += kUnits * Keys::kStep * Format::kUnitBytes;
                }
#pragma GCC unroll 8
                for (int row = 0; row < kRows; ++row) {
                    const typename Keys::Operand query = Keys::query(rows + row * row_stride + i);
#pragma GCC unroll 4
                    for (int key = 0; key < kLatentKeys; ++key)
                        sums[row][key] = Keys::add(sums[row][key], operands[key], query);
                }
            }
            std::copy(&sums[0][0], &sums[0][0] + kRows * kLatentKeys, &wide[part][0][0]);
        }
        for (int row = 0; row < kRows; ++row) {
            Vec of_keys[kLatentKeys];
            for (int key = 0; key < kLatentKeys; ++key) {
                of_keys[key] = wide[0][row][key];
                if constexpr (WideSum::kParts == 2) of_keys[key] = of_keys[key] + wide[1][row][key];
            }
            store_sums(scores + row * kRowStride + vector * kLanes + first, of_keys);
        }
    }
}

}  // namespace penstock
