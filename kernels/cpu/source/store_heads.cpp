// From the projected heads of a step's tokens to queries that are ready to attend, and keys and values in their slots.
//
//   head = head / sqrt(mean(head²) + ε) × weight          queries and keys, where the model has such weights
//   head = partner(head) × sin + head × cos               queries and keys; the sine carries the rotation's sign
//   memory[slot] = key, value                             in the memory's own format, as kv_layout.hpp says
//
// A token's numbers depend on that token alone. Work is cut by key head and by tokens; tokens that share bytes of the
// memory (the two nibbles of uint4's values are two tokens) stay on one thread.
#include <algorithm>
#include <cmath>

#include "kv_layout.hpp"
#include "pool.hpp"
#include "quads.hpp"
#include "step.hpp"

namespace penstock {

enum class Rotation : int64_t { kNone = 0, kHalves = 1, kPairs = 2 };

struct StoreHeads {
    const Step* step;
    float* heads;  // [T, query heads + 2 × key heads, head_dim]: queries are overwritten by what attends
    int64_t num_query_heads;
    const float* query_norm;  // [head_dim], or null
    const float* key_norm;
    float epsilon;
    Rotation rotation;
    int64_t num_rotated;  // of a head, the first ones; of pairs, the others' sines are 0
    KVMemory kv;
};

static constexpr int64_t kChunkTokens = 32;
static constexpr int64_t kManyChunks = 4;
static constexpr int64_t kLargestHead = 256;
static constexpr int64_t kTokensAhead = 1;

static void normalize(const float* head, const float* weight, float epsilon, int64_t size, float* to) {
    Vec squares = zero();
    for (int64_t i = 0; i < size; i += kLanes) squares = fma(load(head + i), load(head + i), squares);
    const Vec scale = broadcast(1.0f / std::sqrt(sum(squares) / static_cast<float>(size) + epsilon));
    for (int64_t i = 0; i < size; i += kLanes) store(to + i, load(head + i) * scale * load(weight + i));
}

// Queries are rotated in place, so both partners are read before either is written.
static void rotate(const StoreHeads& a, const float* head, const float* cosines, const float* sines, float* to) {
    const int64_t size = a.kv.head_dim;
    const auto turned = [&](Vec x, Vec partner, int64_t i, auto lanes) {
        return partner * load(sines + i, lanes) + x * load(cosines + i, lanes);
    };
    if (a.rotation == Rotation::kPairs) {
        for (int64_t i = 0; i < size; i += kLanes) {
            const Vec x = load(head + i);
            store(to + i, turned(x, swap_neighbours(x), i, AllLanes{}));
        }
        return;
    }
    const int64_t half = a.num_rotated / 2;
    over_lanes(half, [&](int64_t i, auto lanes) {
        const Vec x = load(head + i, lanes), y = load(head + half + i, lanes);
        store(to + i, turned(x, y, i, lanes), lanes);
        store(to + half + i, turned(y, x, half + i, lanes), lanes);
    });
    if (to != head) std::copy(head + 2 * half, head + size, to + 2 * half);
}

// One head of one token, wherever it came from and wherever it goes.
static void make_ready(const StoreHeads& a, int64_t token, const float* head, const float* norm, float* to) {
    const int64_t size = a.kv.head_dim;
    if (norm) {
        normalize(head, norm, a.epsilon, size, to);
        head = to;
    }
    if (a.rotation == Rotation::kNone) {
        std::copy(head, head + size, to);
        return;
    }
    const int64_t row = a.step->rotations[token] * size;
    rotate(a, head, a.step->cosines + row, a.step->sines + row, to);
}

// The numbers of a head in the memory's format, one after another, and their scale and minimum where it has them.
struct Packed {
    alignas(64) uint8_t bytes[kLargestHead * sizeof(float)];
    uint16_t scale, minimum;
};

struct Range {
    float lowest, highest;  // NaN where any number is not finite
};

static Range range_of(const float* x, int64_t count) {
    Vec lowest = load(x), highest = lowest, poison = zero();
    for (int64_t i = 0; i < count; i += kLanes) {
        lowest = minimum(load(x + i), lowest);
        highest = maximum(load(x + i), highest);
        poison = fma(load(x + i), zero(), poison);
    }
    return {-largest(zero() - lowest) + sum(poison), largest(highest) + sum(poison)};
}

// Whole numbers (x - minimum) / scale as bytes; zeros where the scale is no number, which alone says what went wrong.
static void pack_bytes(const float* x, int64_t count, float minimum_of_all, float scale, float least, float most,
                       uint8_t* to) {
    const Vec inverse = broadcast(scale > 0 ? 1.0f / scale : 0.0f), offset = broadcast(minimum_of_all);
    for (int64_t i = 0; i < count; i += kLanes) {
        const Vec value = (load(x + i) - offset) * inverse;
        const Vec kept = scale > 0 ? minimum(maximum(value, broadcast(least)), broadcast(most)) : zero();
        store_signed_bytes(reinterpret_cast<int8_t*>(to + i), kept);
    }
}

// Scales are rounded up and minima down, so that no number is beyond the largest integer.
static void pack_int8(const float* x, int64_t count, Packed& to) {
    const Range range = range_of(x, count);
    const float largest_number = range.highest > -range.lowest ? range.highest : -range.lowest;
    to.scale = _cvtss_sh(largest_number / 127.0f, _MM_FROUND_TO_POS_INF);
    pack_bytes(x, count, 0.0f, _cvtsh_ss(to.scale), -127.0f, 127.0f, to.bytes);
}

static void pack_uint4(const float* x, int64_t count, Packed& to) {
    const Range range = range_of(x, count);
    to.minimum = _cvtss_sh(range.lowest, _MM_FROUND_TO_NEG_INF);
    const float lowest = _cvtsh_ss(to.minimum);
    to.scale = _cvtss_sh((range.highest - lowest) / 15.0f, _MM_FROUND_TO_POS_INF);
    pack_bytes(x, count, lowest, _cvtsh_ss(to.scale), 0.0f, 15.0f, to.bytes);
}

static void pack(const float* x, int64_t count, KVFormat format, Packed& to) {
    auto* halves = reinterpret_cast<uint16_t*>(to.bytes);
    switch (format) {
        case KVFormat::kFp32: std::memcpy(to.bytes, x, count * sizeof(float)); return;
        case KVFormat::kFp16:
            for (int64_t i = 0; i < count; i += kLanes) store_fp16(halves + i, load(x + i));
            return;
        case KVFormat::kBf16:
            for (int64_t i = 0; i < count; i += kLanes) store_bf16(halves + i, load(x + i));
            return;
        case KVFormat::kInt8: return pack_int8(x, count, to);
        case KVFormat::kUint4: return pack_uint4(x, count, to);
    }
}

// A key's units are whole: each goes to its own place in the block.
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

// A value's number i goes into unit i of its token's row of units, whose other numbers stay: `most` << `shift` are its bits.
template <class Number>
static void merge_into_units(const uint8_t* bytes, int64_t count, uint32_t most, int shift, uint8_t* to) {
    const auto* numbers = reinterpret_cast<const Number*>(bytes);
    auto* units = reinterpret_cast<uint32_t*>(to);
    const uint32_t kept = ~(most << shift);
    for (int64_t i = 0; i < count; ++i) units[i] = (units[i] & kept) | (numbers[i] & most) << shift;
}

static void store_value(const Packed& packed, const KVMemory& kv, int64_t offset, uint8_t* to, uint16_t* scales) {
    const FormatSizes sizes = sizes_of(kv.format);
    if (sizes.scale_parts > 0) scales[offset] = packed.scale;
    const int64_t count = kv.head_dim;
    const auto place = static_cast<int>(offset % sizes.per_unit);
    uint8_t* row = to + offset / sizes.per_unit * count * sizes.unit_bytes;
    switch (kv.format) {
        case KVFormat::kFp32: std::memcpy(row, packed.bytes, count * sizeof(float)); return;
        case KVFormat::kFp16: std::memcpy(row, packed.bytes, count * sizeof(uint16_t)); return;
        case KVFormat::kBf16: return merge_into_units<uint16_t>(packed.bytes, count, 0xffff, place * 16, row);
        case KVFormat::kInt8: return merge_into_units<uint8_t>(packed.bytes, count, 0xff, place * 8, row);
        case KVFormat::kUint4: break;
    }
    scales[kv.block_size + offset] = packed.minimum;
    merge_into_units<uint8_t>(packed.bytes, count, 0xf, place % 4 * 8 + place / 4 * 4, row);
}

static float* heads_of(const StoreHeads& a, int64_t token) {
    return a.heads + token * (a.num_query_heads + 2 * a.kv.num_heads) * a.kv.head_dim;
}

// A token's heads lie apart from one another, too short each for the processor to see what comes next.
static void fetch_token(const StoreHeads& a, int64_t token, int64_t head) {
    const int64_t size = a.kv.head_dim, bytes = size * sizeof(float), shared = a.num_query_heads / a.kv.num_heads;
    const float* heads = heads_of(a, token);
    fetch(heads + head * shared * size, shared * bytes);
    fetch(heads + (a.num_query_heads + head) * size, bytes);
    fetch(heads + (a.num_query_heads + a.kv.num_heads + head) * size, bytes);
}

static void store_token(const StoreHeads& a, int64_t token, int64_t head) {
    const KVMemory& kv = a.kv;
    const int64_t size = kv.head_dim, shared = a.num_query_heads / kv.num_heads;
    float* heads = heads_of(a, token);
    for (int64_t i = head * shared; i < (head + 1) * shared; ++i)
        make_ready(a, token, heads + i * size, a.query_norm, heads + i * size);
    float key[kLargestHead];
    make_ready(a, token, heads + (a.num_query_heads + head) * size, a.key_norm, key);

    const int64_t slot = a.step->kv_slots[token];
    const int64_t place = block_head(kv, slot / kv.block_size, head), offset = slot % kv.block_size;
    const int64_t bytes = place * bytes_of_block_head(kv);
    const int64_t scales = place * sizes_of(kv.format).scale_parts * kv.block_size;
    Packed packed;
    pack(key, size, kv.format, packed);
    store_key(packed, kv, offset, kv.keys + bytes, kv.key_scales + scales);
    pack(heads + (a.num_query_heads + kv.num_heads + head) * size, size, kv.format, packed);
    store_value(packed, kv, offset, kv.values + bytes, kv.value_scales + scales);
}

// The first token from here on that shares no byte of the memory with the one before it.
static int64_t border(const Step& step, int64_t token, int64_t together) {
    const int64_t* slots = step.kv_slots;
    while (token > 0 && token < step.num_tokens && slots[token] / together == slots[token - 1] / together) ++token;
    return std::min<int64_t>(token, step.num_tokens);
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
