// Logits as the sampler's kernels see them: rows of a vocabulary, in blocks whose largest value is known.
//
// Blocks are the unit in which weights are summed and in which tokens that cannot matter are passed over; pieces of
// many blocks are what threads share. Both depend on the vocabulary's size alone, so a row's choice does not depend on
// its company. NaN never counts as a largest value.
#pragma once
#include <cstdint>
#include <cstring>

#include "pool.hpp"
#include "vector.hpp"

namespace penstock {

constexpr int64_t kBlock = 128;           // tokens
constexpr int64_t kPiece = 128 * kBlock;  // 64 KiB of logits

struct Logits {
    const float* values;  // [rows, width]
    int64_t num_rows;
    int64_t width;
    float* maxima;  // [rows, num_blocks()], filled by `find_maxima`

    int64_t num_blocks() const { return (width + kBlock - 1) / kBlock; }
    const float* row(int64_t row) const { return values + row * width; }
    const float* maxima_of(int64_t row) const { return maxima + row * num_blocks(); }
    int64_t block_size(int64_t block) const {
        return block * kBlock + kBlock <= width ? kBlock : width - block * kBlock;
    }
};

// body(row, block) for every block, pieces shared among the threads; rows that are not `wanted` are left out.
template <class Wanted, class Body>
void over_blocks(const Logits& logits, const Wanted& wanted, const Body& body) {
    const int64_t pieces = (logits.width + kPiece - 1) / kPiece;
    const int64_t blocks = logits.num_blocks();
    parallel(logits.num_rows * pieces, [&](int64_t chunk) {
        const int64_t row = chunk / pieces;
        if (!wanted(row)) return;
        const int64_t first = chunk % pieces * (kPiece / kBlock);
        const int64_t end = first + kPiece / kBlock < blocks ? first + kPiece / kBlock : blocks;
        for (int64_t block = first; block < end; ++block) body(row, block);
    });
}

inline bool every_row(int64_t) { return true; }

// The largest of `count` values; minus infinity where all are NaN.
inline float largest_of(const float* values, int64_t count) {
    Vec found = broadcast(-INFINITY);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) found = maximum(load(values + i), found);
    float result = largest(found);
    for (; i < count; ++i) result = values[i] > result ? values[i] : result;
    return result;
}

inline void find_maxima(const Logits& logits) {
    over_blocks(logits, every_row, [&](int64_t row, int64_t block) {
        logits.maxima[row * logits.num_blocks() + block] =
            largest_of(logits.row(row) + block * kBlock, logits.block_size(block));
    });
}

// exp((logit - largest) / temperature): the largest weighs 1, so that no temperature overflows.
inline void weigh(const float* logits, int64_t count, float largest, float temperature, float* weights) {
    const Vec shift = broadcast(largest), divisor = broadcast(temperature);
    over_lanes(count, [&](int64_t i, auto lanes) {
        store(weights + i, exp((load(logits + i, lanes) - shift) / divisor), lanes);
    });
}

inline double sum_of(const double* sums, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total += sums[i];
    return total;
}

// A token and its logit as one integer: the larger one comes first, among equal logits the one with the lower id.
using Key = uint64_t;

inline Key key_of(float logit, int64_t id) {
    const float one_zero_only = logit + 0.0f;
    uint32_t bits;
    std::memcpy(&bits, &one_zero_only, sizeof bits);
    bits ^= bits >> 31 ? 0xFFFFFFFFu : 0x80000000u;
    return static_cast<Key>(bits) << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(id));
}
inline int64_t id_of(Key key) { return 0xFFFFFFFFu - static_cast<uint32_t>(key); }
inline float logit_of(Key key) {
    uint32_t bits = static_cast<uint32_t>(key >> 32);
    bits ^= bits >> 31 ? 0x80000000u : 0xFFFFFFFFu;
    float logit;
    std::memcpy(&logit, &bits, sizeof logit);
    return logit;
}

// The `count` first tokens of a row in order, found in `keys`; fewer where the row has NaN.
// `keys` has room for width + 1, `maxima` for the row's blocks.
int64_t most_likely(const Logits& logits, int64_t row, int64_t count, Key* keys, float* maxima);

inline int64_t most_likely_bytes(const Logits& logits) {
    return (logits.width + 1) * sizeof(Key) + logits.num_blocks() * sizeof(float);
}

}  // namespace penstock
