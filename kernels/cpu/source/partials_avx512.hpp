// `Partial` as one AVX-512 register. Included by partials.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

struct Four {
    __m512i bytes;
};
inline Four broadcast_four(const int8_t* four) {
    return {_mm512_set1_epi32(word_at(four))};
}

inline Ints load_int8_pairs(const int8_t* from) {
    return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
inline Ints add_pair_products(Ints sum, Ints pairs, int32_t word) {
#if defined(__AVX512VNNI__)
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.lanes) : "v"(pairs.lanes), "v"(_mm512_set1_epi32(word)));
    return sum;
#else
    return {_mm512_add_epi32(sum.lanes, _mm512_madd_epi16(pairs.lanes, _mm512_set1_epi32(word)))};
#endif
}

#if defined(__AVX512VNNI__)
#define PENSTOCK_JOINS 1
// The low halves of both: pairs of 16 bits.
inline Ints join_halves(Ints first, Ints second) {
    return {_mm512_mask_blend_epi16(0xaaaaaaaa, first.lanes, _mm512_slli_epi32(second.lanes, 16))};
}
// In place: of a sum that is returned g++ 12 keeps two copies.
inline void add_products_of_pairs(Ints& sum, Ints a, Ints b) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.lanes) : "v"(a.lanes), "v"(b.lanes));
}
// Sums of 16 or 32 neighbours, each in all of its lanes.
template <int64_t kWidth>
inline __m512i sums_of_neighbours(__m512i bytes) {
    static_assert(kWidth == 16 || kWidth == 32);
    const __m512i fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), bytes, _mm512_set1_epi8(1));
    const __m512i eights = _mm512_add_epi32(fours, _mm512_shuffle_epi32(fours, _MM_PERM_BADC));
    const __m512i all = _mm512_add_epi32(eights, _mm512_shuffle_epi32(eights, _MM_PERM_CDAB));
    return kWidth == 16 ? all : _mm512_add_epi32(all, _mm512_shuffle_i64x2(all, all, 0xb1));
}
template <int64_t kWidth>
inline int32_t largest_sum(const int8_t* inputs, int64_t count, bool of_one_sign) {
    const __m512i none = _mm512_setzero_si512();
    __m512i most = none;
    for (int64_t i = 0; i < count; i += 64) {
        const __m512i bytes = _mm512_loadu_si512(inputs + i);
        const __m512i positive = sums_of_neighbours<kWidth>(_mm512_max_epi8(bytes, none));
        const __m512i negative = sums_of_neighbours<kWidth>(_mm512_max_epi8(_mm512_sub_epi8(none, bytes), none));
        const __m512i both = of_one_sign ? _mm512_max_epi32(positive, negative) : _mm512_add_epi32(positive, negative);
        most = _mm512_max_epi32(most, both);
    }
    return _mm512_reduce_max_epi32(most);
}
#endif

inline Ints high_halves(Ints x) { return {_mm512_srai_epi32(x.lanes, 16)}; }

// Bits move within pairs of bytes; what comes from a neighbour is for `keep_bits` to take away.
template <int kLeft>
inline Bytes shifted(Bytes x) {
    if constexpr (kLeft > 0) return {_mm512_slli_epi16(x.groups, kLeft)};
    if constexpr (kLeft < 0) return {_mm512_srli_epi16(x.groups, -kLeft)};
    return x;
}
inline Bytes keep_bits(Bytes x, int mask) {
    return {_mm512_and_si512(x.groups, _mm512_set1_epi8(static_cast<char>(mask)))};
}
inline Bytes join_bits(Bytes a, Bytes b) { return {_mm512_or_si512(a.groups, b.groups)}; }
inline Bytes flip_bits(Bytes x, int mask) {
    return {_mm512_xor_si512(x.groups, _mm512_set1_epi8(static_cast<char>(mask)))};
}

struct NarrowPartials {
    static constexpr bool kIsNarrow = true;
    using Inputs = Four;
    static Inputs broadcast(const int8_t* four) { return broadcast_four(four); }
    static Ints first_scale(Ints pairs) {
        return {_mm512_mask_blend_epi16(0xaaaaaaaa, pairs.lanes, _mm512_slli_epi32(pairs.lanes, 16))};
    }
    static Ints second_scale(Ints pairs) {
        return {_mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(pairs.lanes, 16), pairs.lanes)};
    }
    static Ints no_scale() { return {_mm512_set1_epi16(1)}; }
    static Ints add_products(Ints partial, Bytes codes, Four inputs) {
        return {_mm512_add_epi16(partial.lanes, _mm512_maddubs_epi16(codes.groups, inputs.bytes))};
    }
    static Ints merged(Ints sum, Ints partial, Ints scale) {
        return {_mm512_add_epi32(sum.lanes, _mm512_madd_epi16(partial.lanes, scale.lanes))};
    }
    static Bytes magnitudes(Bytes codes) { return {_mm512_abs_epi8(codes.groups)}; }
    static Ints add_signed(Ints sum, Bytes magnitudes, Bytes codes, Four inputs, Ints scale) {
        const __m512i turned = _mm512_mask_sub_epi8(inputs.bytes, _mm512_movepi8_mask(codes.groups), _mm512_setzero_si512(),
                                                    inputs.bytes);
        return merged(sum, {_mm512_maddubs_epi16(magnitudes.groups, turned)}, scale);
    }
};

}  // namespace penstock
