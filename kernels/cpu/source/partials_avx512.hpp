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
