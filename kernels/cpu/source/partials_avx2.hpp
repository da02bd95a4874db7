// `Partial` as one AVX2 register. Included by partials.hpp alone, which says what the functions mean.
#pragma once

namespace penstock {

struct Four {
    __m256i bytes;
};
inline Four broadcast_four(const int8_t* four) {
    return {_mm256_set1_epi32(word_at(four))};
}

inline Ints load_int8_pairs(const int8_t* from) {
    return {_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
inline Ints add_pair_products(Ints sum, Ints pairs, int32_t word) {
    return {_mm256_add_epi32(sum.lanes, _mm256_madd_epi16(pairs.lanes, _mm256_set1_epi32(word)))};
}

inline Ints high_halves(Ints x) { return {_mm256_srai_epi32(x.lanes, 16)}; }

// Bits move within pairs of bytes; what comes from a neighbour is for `keep_bits` to take away.
template <int kLeft>
inline Bytes shifted(Bytes x) {
    if constexpr (kLeft > 0) return {_mm256_slli_epi16(x.groups, kLeft)};
    if constexpr (kLeft < 0) return {_mm256_srli_epi16(x.groups, -kLeft)};
    return x;
}
inline Bytes keep_bits(Bytes x, int mask) {
    return {_mm256_and_si256(x.groups, _mm256_set1_epi8(static_cast<char>(mask)))};
}
inline Bytes join_bits(Bytes a, Bytes b) { return {_mm256_or_si256(a.groups, b.groups)}; }
inline Bytes flip_bits(Bytes x, int mask) {
    return {_mm256_xor_si256(x.groups, _mm256_set1_epi8(static_cast<char>(mask)))};
}

struct NarrowPartials {
    static constexpr bool kIsNarrow = true;
    using Inputs = Four;
    static Inputs broadcast(const int8_t* four) { return broadcast_four(four); }
    static Ints first_scale(Ints pairs) {
        return {_mm256_or_si256(_mm256_slli_epi32(pairs.lanes, 16),
                                _mm256_and_si256(pairs.lanes, _mm256_set1_epi32(0xffff)))};
    }
    static Ints second_scale(Ints pairs) { return {_mm256_blend_epi16(pairs.lanes, _mm256_srli_epi32(pairs.lanes, 16), 0x55)}; }
    static Ints no_scale() { return {_mm256_set1_epi16(1)}; }
    static Ints add_products(Ints partial, Bytes codes, Four inputs) {
        __m256i sum = _mm256_add_epi16(partial.lanes, _mm256_maddubs_epi16(codes.groups, inputs.bytes));
        asm("" : "+x"(sum));  // else g++ 12 adds products in another order, with all that are waiting in memory
        return {sum};
    }
    static Ints merged(Ints sum, Ints partial, Ints scale) {
        return {_mm256_add_epi32(sum.lanes, _mm256_madd_epi16(partial.lanes, scale.lanes))};
    }
    static Bytes magnitudes(Bytes codes) { return {_mm256_abs_epi8(codes.groups)}; }
    static Ints add_signed(Ints sum, Bytes magnitudes, Bytes codes, Four inputs, Ints scale) {
        const __m256i turned = _mm256_sign_epi8(inputs.bytes, codes.groups);
        __m256i total = merged(sum, {_mm256_maddubs_epi16(magnitudes.groups, turned)}, scale).lanes;
        asm("" : "+x"(total));  // likewise
        return {total};
    }
};

}  // namespace penstock
