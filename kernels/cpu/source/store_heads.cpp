// From the projected heads of a step's tokens to queries that are ready to attend, and keys and values in their slots.
//
//   head = head - mean(head)                              queries and keys, where the model's norms do so
//   head = head / sqrt(mean(head²) + ε) × weight          queries and keys, where the model has such weights
//   head = partner(head) × sin + head × cos               queries and keys; the sine carries the rotation's sign.
//                                                         In some models it comes before the norm
//   value = value / sqrt(mean(value²) + ε)                where the model norms values
//   query = query × scale                                 where the model's queries grow with their position
//   memory[slot] = key, value                             in the memory's own format, as kv_layout.hpp says
//
// In some layers a key, as it was projected, serves as the value, too; others read what an earlier layer has stored, and
// have queries alone. A token's numbers depend on that token alone. Work is cut by key head and by tokens; tokens that share bytes of the
// memory (the two nibbles of uint4's values are two tokens) stay on one thread.
#include <algorithm>

#include "pool.hpp"
#include "stored_heads.hpp"

namespace penstock {

struct StoreHeads {
    const Step* step;
    float* heads;  // [T, query heads × query_step + projected × key heads × head_dim]: queries are overwritten
    int64_t num_query_heads;
    int64_t query_step;       // numbers from a query to the next one; behind it may stand a gate, which stays
    int64_t num_projected;    // 2: keys and values; 1: keys, which serve as values; 0: neither, and nothing is stored
    const float* query_norm;  // [head_dim] for all heads, or for each, or null
    const float* key_norm;
    int64_t norm_stride;      // from one head's weight to the next one's; 0: all have one
    int64_t norms_have_mean;  // which they take off first
    int64_t norms_follow;     // norms come behind the rotation
    int64_t norms_values;     // without a weight
    float epsilon;
    const RotaryTable* rotary;  // null where nothing is rotated
    Rotation rotation;
    int64_t num_rotated;  // of a head, the first ones; of pairs, the others' sines are 0
    KVMemory kv;
};

static constexpr int64_t kChunkTokens = 32;
static constexpr int64_t kManyChunks = 4;
static constexpr int64_t kTokensAhead = 1;

// Norms and rotations may be computed in place.
static void norm_head(const StoreHeads& a, const float* head, const float* norm, float* to) {
    if (a.norms_have_mean) {
        centre(head, a.kv.head_dim, to);
        head = to;
    }
    normalize(head, norm, a.epsilon, a.kv.head_dim, to);
}

static void rotate_head(const StoreHeads& a, int64_t token, const float* head, float* to) {
    const int64_t size = a.kv.head_dim;
    if (a.rotation == Rotation::kNone) {
        std::copy(head, head + size, to);
        return;
    }
    const int64_t row = a.step->rotations[token] * size;
    rotate(head, a.rotary->cosines + row, a.rotary->sines + row, a.rotation, size, a.num_rotated, to);
}

// One head of one token, wherever it came from and wherever it goes.
static void make_ready(const StoreHeads& a, int64_t token, const float* head, const float* norm, float* to) {
    if (norm && !a.norms_follow) {
        norm_head(a, head, norm, to);
        head = to;
    }
    rotate_head(a, token, head, to);
    if (norm && a.norms_follow) norm_head(a, to, norm, to);
}

static void scale_query(const StoreHeads& a, int64_t token, float* query) {
    if (!a.rotary || !a.rotary->query_scales) return;
    const Vec scale = broadcast(a.rotary->query_scales[a.step->rotations[token]]);
    for (int64_t i = 0; i < a.kv.head_dim; i += kLanes) store(query + i, load(query + i) * scale);
}

// A key's units are whole: each has its own offset in the block.
template <class Unit>
static void scatter_units(const uint8_t* bytes, int64_t num_units, int64_t block_size, int64_t offset, uint8_t* to) {
    for (int64_t unit = 0; unit < num_units; ++unit)
        std::memcpy(to + (unit * block_size + offset) * sizeof(Unit), bytes + unit * sizeof(Unit), sizeof(Unit));
}

static void store_key(Packed& packed, const KVMemory& kv, int64_t offset, uint8_t* to, uint16_t* scales) {
    const FormatSizes sizes = sizes_of(kv.format);
    const int64_t num_units = kv.head_dim / sizes.per_unit;
    if (sizes.scale_parts > 0) scales[offset] = packed.scale;
    if (kv.format == KVFormat::kInt8)
        for (int64_t i = 0; i < kv.head_dim; ++i)
            packed.bytes[i] = static_cast<uint8_t>(packed.bytes[i] + kInt8KeyZero);
    if (kv.format == KVFormat::kUint4) {
        scales[kv.block_size + offset] = packed.minimum;
        for (int64_t i = 0; i < kv.head_dim / 2; ++i) {
            const uint8_t* unit = packed.bytes + i / 4 * 8 + i % 4;
            packed.bytes[i] = static_cast<uint8_t>(unit[0] | unit[4] << 4);
        }
    }
    if (sizes.unit_bytes == 2) scatter_units<uint16_t>(packed.bytes, num_units, kv.block_size, offset, to);
    else scatter_units<uint32_t>(packed.bytes, num_units, kv.block_size, offset, to);
}

static float* queries_of(const StoreHeads& a, int64_t token) {
    return a.heads + token * (a.num_query_heads * a.query_step + a.num_projected * a.kv.num_heads * a.kv.head_dim);
}
// Keys, and behind them values.
static float* keys_of(const StoreHeads& a, int64_t token) {
    return queries_of(a, token) + a.num_query_heads * a.query_step;
}

static const float* value_of(const StoreHeads& a, int64_t token, int64_t head) {
    return keys_of(a, token) + ((a.num_projected - 1) * a.kv.num_heads + head) * a.kv.head_dim;
}

// A token's heads lie apart from one another, too short each for the processor to see what comes next.
static void fetch_token(const StoreHeads& a, int64_t token, int64_t head) {
    const int64_t size = a.kv.head_dim, bytes = size * sizeof(float), shared = a.num_query_heads / a.kv.num_heads;
    for (int64_t i = head * shared; i < (head + 1) * shared; ++i)
        fetch(queries_of(a, token) + i * a.query_step, bytes);
    if (a.num_projected == 0) return;
    fetch(keys_of(a, token) + head * size, bytes);
    fetch(value_of(a, token, head), bytes);
}

static const float* weight_of(const StoreHeads& a, const float* norm, int64_t head) {
    return norm ? norm + head * a.norm_stride : nullptr;
}

static void store_token(const StoreHeads& a, int64_t token, int64_t head) {
    const KVMemory& kv = a.kv;
    const int64_t size = kv.head_dim, shared = a.num_query_heads / kv.num_heads;
    for (int64_t i = head * shared; i < (head + 1) * shared; ++i) {
        float* query = queries_of(a, token) + i * a.query_step;
        make_ready(a, token, query, weight_of(a, a.query_norm, i), query);
        scale_query(a, token, query);
    }
    if (a.num_projected == 0) return;
    float key[kLargestHead];
    make_ready(a, token, keys_of(a, token) + head * size, weight_of(a, a.key_norm, head), key);

    const int64_t slot = a.step->kv_slots[token];
    const int64_t own = block_head(kv, slot / kv.block_size, head), offset = slot % kv.block_size;
    const int64_t bytes = own * bytes_of_block_head(kv);
    const int64_t scales = own * sizes_of(kv.format).scale_parts * kv.block_size;
    Packed packed;
    pack(key, size, kv.format, packed);
    store_key(packed, kv, offset, kv.keys + bytes, kv.key_scales + scales);
    const float* value = value_of(a, token, head);
    float normed[kLargestHead];
    if (a.norms_values) {
        normalize(value, nullptr, a.epsilon, size, normed);
        value = normed;
    }
    pack(value, size, kv.format, packed);
    store_value(packed, kv, offset, kv.values + bytes, kv.value_scales + scales);
}

// The tokens of a chunk, and of each of them these key heads and their queries.
static void store_chunk(const StoreHeads& a, int64_t chunk, int64_t first_head, int64_t end_head) {
    const int64_t together = sizes_of(a.kv.format).per_unit;
    const int64_t end = border(*a.step, (chunk + 1) * kChunkTokens, together);
    for (int64_t token = border(*a.step, chunk * kChunkTokens, together); token < end; ++token)
        for (int64_t head = first_head; head < end_head; ++head) {
            if (token + kTokensAhead < end) fetch_token(a, token + kTokensAhead, head);
            store_token(a, token, head);
        }
}

// Where there are tokens enough, a token's heads are read as they lie, one behind the other.
static void store_heads(const StoreHeads& a) {
    const int64_t num_chunks = (a.step->num_tokens + kChunkTokens - 1) / kChunkTokens, num_heads = a.kv.num_heads;
    const int64_t num_groups = num_chunks >= kManyChunks ? 1 : num_heads, heads = num_heads / num_groups;
    parallel(num_chunks * num_groups, [&](int64_t item) {
        const int64_t first_head = item % num_groups * heads;
        store_chunk(a, item / num_groups, first_head, first_head + heads);
    });
}

}  // namespace penstock

extern "C" void penstock_store_heads(const void* arguments) {
    penstock::store_heads(*static_cast<const penstock::StoreHeads*>(arguments));
}
