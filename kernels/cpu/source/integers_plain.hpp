// `Ints` as a plain array, for processors without a variant of their own. Included by integers.hpp alone.
#pragma once

namespace penstock {

struct Ints {
    int32_t lanes[Vec::kLanes];
};
struct Bytes {
    uint8_t groups[Vec::kLanes * 4];
};
struct Inputs {
    int8_t four[4];
};
constexpr int kTileRows = 4;
constexpr int kGroupTileRows = 2;

template <class Body>
inline Ints each_int(const Body& body) {
    Ints result;
    for (int64_t i = 0; i < Vec::kLanes; ++i) result.lanes[i] = static_cast<int32_t>(body(i));
    return result;
}
template <class Body>
inline Bytes each_byte(const Body& body) {
    Bytes result;
    for (int64_t i = 0; i < Vec::kLanes * 4; ++i) result.groups[i] = static_cast<uint8_t>(body(i));
    return result;
}

inline Ints broadcast_int(int32_t x) {
    return each_int([&](int64_t) { return x; });
}
inline Ints zero_ints() { return broadcast_int(0); }
inline Ints load_int16(const int16_t* from) {
    return each_int([&](int64_t i) { return from[i]; });
}
inline Ints load_uint8(const uint8_t* from) {
    return each_int([&](int64_t i) { return from[i]; });
}
inline Ints add(Ints a, Ints b) {
    return each_int([&](int64_t i) { return a.lanes[i] + b.lanes[i]; });
}
inline Ints subtract(Ints a, Ints b) {
    return each_int([&](int64_t i) { return a.lanes[i] - b.lanes[i]; });
}
inline Ints multiply(Ints a, Ints b) {
    return each_int([&](int64_t i) { return a.lanes[i] * b.lanes[i]; });
}
inline Ints shift_left(Ints x, int bits) {
    return each_int([&](int64_t i) { return static_cast<uint32_t>(x.lanes[i]) << bits; });
}
inline Ints maximum(Ints a, Ints b) {
    return each_int([&](int64_t i) { return a.lanes[i] > b.lanes[i] ? a.lanes[i] : b.lanes[i]; });
}
inline int32_t sum(Ints x) {
    int32_t total = 0;
    for (const int32_t lane : x.lanes) total += lane;
    return total;
}
inline int32_t largest(Ints x) {
    int32_t most = x.lanes[0];
    for (const int32_t lane : x.lanes) most = lane > most ? lane : most;
    return most;
}

inline Vec to_float(Ints x) {
    Vec result;
    for (int64_t i = 0; i < Vec::kLanes; ++i) result.lanes[i] = static_cast<float>(x.lanes[i]);
    return result;
}
inline Vec bits_to_float(Ints x) {
    Vec result;
    std::memcpy(result.lanes, x.lanes, sizeof result.lanes);
    return result;
}
inline Ints round_to_int(Vec x) {
    return each_int([&](int64_t i) { return std::nearbyint(x.lanes[i]); });
}
inline Ints magnitude_bits(Vec x) {
    Ints result;
    std::memcpy(result.lanes, x.lanes, sizeof result.lanes);
    for (int32_t& lane : result.lanes) lane &= 0x7fffffff;
    return result;
}
inline void store(int32_t* to, Ints x) { std::memcpy(to, x.lanes, sizeof x.lanes); }
inline void store_int8(int8_t* to, Ints x) {
    for (int64_t i = 0; i < Vec::kLanes; ++i) to[i] = static_cast<int8_t>(x.lanes[i]);
}

inline Bytes load_bytes(const uint8_t* from) {
    return each_byte([&](int64_t i) { return from[i]; });
}
inline void store_bytes(uint8_t* to, Bytes x) { std::memcpy(to, x.groups, sizeof x.groups); }
inline Bytes load_table(const void* from) {
    return each_byte([&](int64_t i) { return static_cast<const uint8_t*>(from)[i % 16]; });
}
inline Bytes look_up(Bytes table, Bytes nibbles) {
    return each_byte([&](int64_t i) { return table.groups[nibbles.groups[i]]; });
}
inline Bytes low_nibbles(Bytes x) {
    return each_byte([&](int64_t i) { return x.groups[i] & 0x0f; });
}
inline Bytes high_nibbles(Bytes x) {
    return each_byte([&](int64_t i) { return x.groups[i] >> 4; });
}

inline Inputs broadcast_inputs(const int8_t* four) {
    Inputs inputs;
    std::memcpy(inputs.four, four, sizeof inputs.four);
    return inputs;
}
inline Ints dot(Ints sum, Bytes weights, Inputs inputs) {
    for (int64_t lane = 0; lane < Vec::kLanes; ++lane)
        for (int64_t j = 0; j < 4; ++j) sum.lanes[lane] += weights.groups[lane * 4 + j] * inputs.four[j];
    return sum;
}

}  // namespace penstock
