// How keys and values lie in the blocks of the KV memory.
//
// All tokens of one block and one head lie together. When queries meet keys a vector's lanes are keys, when weights
// meet values they are dimensions, so that neither sum crosses lanes. A unit is what one lane takes in at once: a few
// numbers along the product. With B = block_size and d = head_dim:
//
//             numbers a unit   keys                values
//   fp32      1                [d][B]              [B][d]
//   fp16      1                [d][B]              [B][d]
//   bf16      2                [d / 2][B][2]       [B / 2][d][2]
//   int8      4                [d / 4][B][4]       [B / 4][d][4]     keys + 128, unsigned; values signed
//   uint4     8                [d / 8][B][4]       [B / 8][d][4]     low nibbles are numbers 0-3, high ones 4-7
//
// Where a value is the beginning of its key (latent attention), both are kept once, in the order of values, and all
// query heads look at the one that there is. In int8 it has two scales: the value's, and that of the rest of the key.
//
// int8 keeps a scale for each token and head, uint4 a scale and a minimum: number = scale × stored + minimum. They lie
// apart as float16, [blocks][heads][parts][B]. Slots beyond a request's context hold anything, NaN included.
#pragma once
#include <cstdint>

namespace penstock {

enum class KVFormat : int64_t { kFp32 = 0, kFp16 = 1, kBf16 = 2, kInt8 = 3, kUint4 = 4 };

struct FormatSizes {
    int64_t bits;         // a number
    int64_t per_unit;     // numbers in a unit
    int64_t unit_bytes;
    int64_t scale_parts;  // float16 numbers beside a token and head
};

inline FormatSizes sizes_of(KVFormat format) {
    switch (format) {
        case KVFormat::kFp32: return {32, 1, 4, 0};
        case KVFormat::kFp16: return {16, 1, 2, 0};
        case KVFormat::kBf16: return {16, 2, 4, 0};
        case KVFormat::kInt8: return {8, 4, 4, 1};
        default: return {4, 8, 4, 2};
    }
}

constexpr int kInt8KeyZero = 128;
constexpr int64_t kLatentScales = 2;  // of int8, a token

// One layer's memory.
struct KVMemory {
    uint8_t* keys;
    uint8_t* values;         // the keys themselves, where values are their beginnings
    uint16_t* key_scales;    // null where the format has none
    uint16_t* value_scales;
    KVFormat format;
    int64_t block_size;
    int64_t num_heads;
    int64_t head_dim;
    int64_t value_dim;  // the same, unless values are the keys' beginnings
};

inline bool is_latent(const KVMemory& kv) { return kv.keys == kv.values; }

// The place of one head's share of one block, counted in such shares.
inline int64_t block_head(const KVMemory& kv, int64_t block, int64_t head) { return block * kv.num_heads + head; }

inline int64_t bytes_of_block_head(const KVMemory& kv) {
    return kv.block_size * kv.head_dim * sizes_of(kv.format).bits / 8;
}

}  // namespace penstock
