// What differs between the formats of keys and values: how lanes are read, and what a row is multiplied as.
//
// A row is a query when it meets keys, and the weights of a query's keys when it meets values; a factor is the row's
// share of one unit (kv_layout.hpp), the same for all lanes. The float formats multiply rows of float32, except bf16
// where the processor multiplies bf16. The integer formats multiply integers, exactly: a query as signed bytes with
// one scale, and weights, the value's own scale in them, as whole numbers up to 65535 in two planes of bytes (one byte
// alone would lose all small weights beside a large one).
#pragma once
#include "amx.hpp"
#include "attention.hpp"
#include "quads.hpp"

namespace penstock {

enum class Side { kKeys, kValues };

struct Fp32Format {
    static constexpr KVFormat kFormat = KVFormat::kFp32;
    static constexpr int64_t kFewestForTiles = INT64_MAX;  // rows that are multiplied in tiles of AMX: none
    static constexpr int64_t kPerUnit = 1, kUnitBytes = 4, kPlanes = 1, kRegisters = 1;
    using Number = float;  // of a row
    using Lanes = Vec;
    using Factor = Vec;
    using Sum = Vec;
    static Sum zero_sum() { return zero(); }
    static Lanes load(const uint8_t* from) { return penstock::load(reinterpret_cast<const float*>(from)); }
    static Lanes load_first(const uint8_t* from) { return load(from); }
    static Factor factor(const Number* row) { return broadcast(*row); }
    template <Side>
    static Sum add(Sum sum, Lanes lanes, Factor factor) {
        return fma(lanes, factor, sum);
    }
    static void store_numbers(float* to, Vec x) { store(to, x); }
};

struct Fp16Format : Fp32Format {
    static constexpr KVFormat kFormat = KVFormat::kFp16;
    static constexpr int64_t kUnitBytes = 2;
    static Lanes load(const uint8_t* from) { return load_fp16(reinterpret_cast<const uint16_t*>(from)); }
    static Lanes load_first(const uint8_t* from) { return load(from); }
};

#if defined(__AVX512BF16__)
struct Bf16Format {
    static constexpr KVFormat kFormat = KVFormat::kBf16;
#if defined(__AMX_BF16__)
    static constexpr int64_t kFewestForTiles = 1;  // all, since tiles add in an order of their own
    using ScoreUnit = Bf16ByBf16;
    using ValueUnit = Bf16ByBf16;
#else
    static constexpr int64_t kFewestForTiles = INT64_MAX;
#endif
    static constexpr int64_t kPerUnit = 2, kUnitBytes = 4, kPlanes = 1, kRegisters = 1;
    using Number = uint16_t;
    using Lanes = Quads;
    using Factor = Quads;
    using Sum = Vec;
    static Sum zero_sum() { return zero(); }
    static Lanes load(const uint8_t* from) { return load_quads(from); }
    static Lanes load_first(const uint8_t* from) { return only_first_of_pairs(load_quads(from)); }
    static Factor factor(const Number* row) { return broadcast_quad(row); }
    template <Side>
    static Sum add(Sum sum, Lanes lanes, Factor factor) {
        return dot_bf16(sum, lanes, factor);
    }
    static void store_numbers(uint16_t* to, Vec x) { store_bf16(to, x); }
};
#else
struct Bf16Format {
    static constexpr KVFormat kFormat = KVFormat::kBf16;
    static constexpr int64_t kFewestForTiles = INT64_MAX;
    static constexpr int64_t kPerUnit = 2, kUnitBytes = 4, kPlanes = 1, kRegisters = 2;
    using Number = float;
    struct Lanes {
        Vec first, second;
    };
    using Factor = Lanes;
    using Sum = Vec;
    static Sum zero_sum() { return zero(); }
    static Lanes load(const uint8_t* from) {
        const Quads pairs = load_quads(from);
        return {first_of_pairs(pairs), second_of_pairs(pairs)};
    }
    static Lanes load_first(const uint8_t* from) { return {first_of_pairs(load_quads(from)), zero()}; }
    static Factor factor(const Number* row) { return {broadcast(row[0]), broadcast(row[1])}; }
    template <Side>
    static Sum add(Sum sum, const Lanes& lanes, const Factor& factor) {
        return fma(lanes.second, factor.second, fma(lanes.first, factor.first, sum));
    }
    static void store_numbers(float* to, Vec x) { store(to, x); }
};
#endif

struct Int8Format {
    static constexpr KVFormat kFormat = KVFormat::kInt8;
#if defined(__AMX_INT8__)
    static constexpr int64_t kFewestForTiles = 8;
    using ScoreUnit = SignedByUnsigned;
    using ValueUnit = UnsignedBySigned;
#else
    static constexpr int64_t kFewestForTiles = INT64_MAX;
#endif
    static constexpr int64_t kPerUnit = 4, kUnitBytes = 4, kPlanes = 2, kRegisters = 1;
    static constexpr int kKeyZero = kInt8KeyZero;
    using Number = uint8_t;
    using Lanes = Quads;
    using Factor = Quads;
    using Sum = Quads;
    static Sum zero_sum() { return zero_quads(); }
    static Lanes load(const uint8_t* from) { return load_quads(from); }
    static Factor factor(const Number* row) { return broadcast_quad(row); }
    template <Side side>
    static Sum add(Sum sum, Lanes lanes, Factor factor) {
        return side == Side::kKeys ? dot(sum, lanes, factor) : dot(sum, factor, lanes);
    }
};

struct Uint4Format {
    static constexpr KVFormat kFormat = KVFormat::kUint4;
    static constexpr int64_t kFewestForTiles = INT64_MAX;
    static constexpr int64_t kPerUnit = 8, kUnitBytes = 4, kPlanes = 2, kRegisters = 2;
    static constexpr int kKeyZero = 0;
    using Number = uint8_t;
    struct Lanes {
        Quads low, high;
    };
    using Factor = Lanes;
    using Sum = Quads;
    static Sum zero_sum() { return zero_quads(); }
    static Lanes load(const uint8_t* from) {
        const Quads both = load_quads(from);
        return {low_nibbles(both), high_nibbles(both)};
    }
    static Factor factor(const Number* row) { return {broadcast_quad(row), broadcast_quad(row + 4)}; }
    template <Side side>
    static Sum add(Sum sum, const Lanes& lanes, const Factor& factor) {
        if constexpr (side == Side::kKeys) return dot(dot(sum, lanes.low, factor.low), lanes.high, factor.high);
        return dot(dot(sum, factor.low, lanes.low), factor.high, lanes.high);
    }
};

template <class Format>
constexpr bool kIsInteger = Format::kPlanes == 2;
// Whether any number of rows is multiplied in tiles.
template <class Format>
constexpr bool kHasTiles = Format::kFewestForTiles < INT64_MAX;
template <class Format>
constexpr bool kHasMinimum = Format::kFormat == KVFormat::kUint4;

}  // namespace penstock
