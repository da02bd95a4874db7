// `Partial` as a plain array, for processors without a variant of their own. Included by partials.hpp alone.
#pragma once

namespace penstock {

inline Ints load_int8_pairs(const int8_t* from) {
    return each_int([&](int64_t i) {
        return static_cast<uint32_t>(from[2 * i + 1]) << 16 | (static_cast<uint32_t>(from[2 * i]) & 0xffff);
    });
}
inline Ints add_pair_products(Ints sum, Ints pairs, int32_t word) {
    return each_int([&](int64_t i) {
        return sum.lanes[i] + static_cast<int16_t>(pairs.lanes[i]) * static_cast<int16_t>(word) +
               (pairs.lanes[i] >> 16) * (word >> 16);
    });
}

inline Ints high_halves(Ints x) {
    return each_int([&](int64_t i) { return x.lanes[i] >> 16; });
}

template <int kLeft>
inline Bytes shifted(Bytes x) {
    constexpr int kUp = kLeft > 0 ? kLeft : 0, kDown = kLeft < 0 ? -kLeft : 0;
    return each_byte([&](int64_t i) { return x.groups[i] << kUp >> kDown; });
}
inline Bytes keep_bits(Bytes x, int mask) {
    return each_byte([&](int64_t i) { return x.groups[i] & mask; });
}
inline Bytes join_bits(Bytes a, Bytes b) {
    return each_byte([&](int64_t i) { return a.groups[i] | b.groups[i]; });
}
inline Bytes flip_bits(Bytes x, int mask) {
    return each_byte([&](int64_t i) { return x.groups[i] ^ mask; });
}

}  // namespace penstock
