// What becomes of a head on its way into the KV memory: norm, rotation, the memory's number format, a value's place.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kv_layout.hpp"
#include "quads.hpp"
#include "step.hpp"

namespace penstock {

constexpr int64_t kLargestHead = 1024;

// head / sqrt(mean(head²) + ε) × weight; the weight may be null
inline void normalize(const float* head, const float* weight, float epsilon, int64_t size, float* to) {
    const Vec scale = broadcast(1.0f / std::sqrt(sum_of_squares(head, size) / static_cast<float>(size) + epsilon));
    for (int64_t i = 0; i < size; i += kLanes) {
        const Vec normed = load(head + i) * scale;
        store(to + i, weight ? normed * load(weight + i) : normed);
    }
}

// The head less its mean.
inline void centre(const float* head, int64_t size, float* to) {
    const Vec mean = broadcast(sum_of(head, size) / static_cast<float>(size));
    for (int64_t i = 0; i < size; i += kLanes) store(to + i, load(head + i) - mean);
}

// The first `num_rotated` numbers turn (of pairs all, the others' sines being 0). Queries are rotated in place, so both
// partners are read before either is written.
inline void rotate(const float* head, const float* cosines, const float* sines, Rotation rotation, int64_t size,
                   int64_t num_rotated, float* to) {
    const auto turned = [&](Vec x, Vec partner, int64_t i, auto lanes) {
        return partner * load(sines + i, lanes) + x * load(cosines + i, lanes);
    };
    if (rotation == Rotation::kPairs) {
        for (int64_t i = 0; i < size; i += kLanes) {
            const Vec x = load(head + i);
            store(to + i, turned(x, swap_neighbours(x), i, AllLanes{}));
        }
        return;
    }
    const int64_t half = num_rotated / 2;
    over_lanes(half, [&](int64_t i, auto lanes) {
        const Vec x = load(head + i, lanes), y = load(head + half + i, lanes);
        store(to + i, turned(x, y, i, lanes), lanes);
        store(to + half + i, turned(y, x, half + i, lanes), lanes);
    });
    if (to != head) std::copy(head + 2 * half, head + size, to + 2 * half);
}

// The numbers of a head in the memory's format, one after another, and their scale and minimum where it has them.
struct Packed {
    alignas(64) uint8_t bytes[kLargestHead * sizeof(float)];
    uint16_t scale, minimum;
};

struct Range {
    float lowest, highest;  // NaN where any number is not finite
};

inline Range range_of(const float* x, int64_t count) {
    Vec lowest = load(x), highest = lowest, poison = zero();
    for (int64_t i = 0; i < count; i += kLanes) {
        lowest = minimum(load(x + i), lowest);
        highest = maximum(load(x + i), highest);
        poison = fma(load(x + i), zero(), poison);
    }
    return {-largest(zero() - lowest) + sum(poison), largest(highest) + sum(poison)};
}

// Whole numbers (x - minimum) / scale as bytes; zeros where the scale is no number, which alone says what went wrong.
inline void pack_bytes(const float* x, int64_t count, float minimum_of_all, float scale, float least, float most,
                       uint8_t* to) {
    const Vec inverse = broadcast(scale > 0 ? 1.0f / scale : 0.0f), offset = broadcast(minimum_of_all);
    for (int64_t i = 0; i < count; i += kLanes) {
        const Vec value = (load(x + i) - offset) * inverse;
        const Vec kept = scale > 0 ? minimum(maximum(value, broadcast(least)), broadcast(most)) : zero();
        store_signed_bytes(reinterpret_cast<int8_t*>(to + i), kept);
    }
}

inline float float_of_fp16(uint16_t bits) {
    const uint16_t lanes[kLanes] = {bits};
    float values[kLanes];
    store(values, load_fp16(lanes));
    return values[0];
}

// The nearest fp16 that is not below (up) or not above the number.
inline uint16_t fp16_towards(float x, bool up) {
    uint16_t lanes[kLanes];
    store_fp16(lanes, broadcast(x));
    const uint16_t nearest = lanes[0];
    const float found = float_of_fp16(nearest);
    if (up ? !(found < x) : !(found > x)) return nearest;
    if ((nearest & 0x7fff) == 0) return up ? 0x0001 : 0x8001;
    const bool grows = up == !(nearest & 0x8000);
    return static_cast<uint16_t>(grows ? nearest + 1 : nearest - 1);
}

// Scales are rounded up and minima down, so that no number is beyond the largest integer.
inline void pack_int8(const float* x, int64_t count, Packed& to) {
    const Range range = range_of(x, count);
    const float largest_number = range.highest > -range.lowest ? range.highest : -range.lowest;
    to.scale = fp16_towards(largest_number / 127.0f, true);
    pack_bytes(x, count, 0.0f, float_of_fp16(to.scale), -127.0f, 127.0f, to.bytes);
}

inline void pack_uint4(const float* x, int64_t count, Packed& to) {
    const Range range = range_of(x, count);
    to.minimum = fp16_towards(range.lowest, false);
    const float lowest = float_of_fp16(to.minimum);
    to.scale = fp16_towards((range.highest - lowest) / 15.0f, true);
    pack_bytes(x, count, lowest, float_of_fp16(to.scale), 0.0f, 15.0f, to.bytes);
}

inline void pack(const float* x, int64_t count, KVFormat format, Packed& to) {
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

// A value's number i goes into unit i of its token's row of units, whose other numbers stay: `most` << `shift` are its bits.
template <class Number>
inline void merge_into_units(const uint8_t* bytes, int64_t count, uint32_t most, int shift, uint8_t* to) {
    const auto* numbers = reinterpret_cast<const Number*>(bytes);
    auto* units = reinterpret_cast<uint32_t*>(to);
    const uint32_t kept = ~(most << shift);
    for (int64_t i = 0; i < count; ++i) units[i] = (units[i] & kept) | (numbers[i] & most) << shift;
}

inline void store_value(const Packed& packed, const KVMemory& kv, int64_t offset, uint8_t* to, uint16_t* scales) {
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

// The first token from here on that shares no byte of the memory with the one before it.
inline int64_t border(const Step& step, int64_t token, int64_t together) {
    const int64_t* slots = step.kv_slots;
    while (token > 0 && token < step.num_tokens && slots[token] / together == slots[token - 1] / together) ++token;
    return std::min<int64_t>(token, step.num_tokens);
}

}  // namespace penstock
