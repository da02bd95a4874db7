// What differs between the formats of keys and values: how lanes are read, and what a row is multiplied as.
//
// A row is a query when it meets keys, and the weights of a query's keys when it meets values; a factor is the row's
// share of one unit (kv_layout.hpp), the same for all lanes. The float formats multiply rows of float32, except bf16
// where the processor multiplies bf16. The integer formats multiply integers, exactly: a query as signed bytes with
// one scale, and weights, the value's own scale in them, as whole numbers up to 32767 (one byte alone would lose all
// small weights beside a large one). Where the processor multiplies bytes, these lie in two planes of bytes; where it
// multiplies pairs of 16 bits, rows are such pairs.
//
// Units that need unpacking are unpacked once where a tile has many rows: `unpack` gives the `kSteps` vectors of a unit,
// and `Steps` is the format that multiplies them, to the same bits.
#pragma once
#include <type_traits>

#include "amx.hpp"
#include "attention.hpp"
#include "bf16_pairs.hpp"
#include "quads.hpp"

namespace penstock {

enum class Side { kKeys, kValues };
constexpr int64_t kVectorBytes = kLanes * 4;
// From row to row of scores and of weights, in numbers: at multiples of large powers of two, rows would push one another
// out of the first cache.
constexpr int64_t kRowStride = kStretch + 64;

struct Fp32Format {
    static constexpr KVFormat kFormat = KVFormat::kFp32;
    static constexpr int64_t kFewestForTiles = INT64_MAX;  // rows that are multiplied in tiles of AMX: none
    static constexpr int64_t kPerUnit = 1, kUnitBytes = 4, kPlanes = 1, kRegisters = 1, kSteps = 1;
    static constexpr bool kIsInteger = false;
    using Steps = Fp32Format;
    using Number = float;  // of a row
    using Lanes = Vec;
    using Factor = Vec;
    using Sum = Vec;
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
    template <Side>
    static void unpack(Lanes lanes, float* to, int64_t) {
        store(to, lanes);
    }
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
    static constexpr int64_t kPerUnit = 2, kUnitBytes = 4, kPlanes = 1, kRegisters = 1, kSteps = 1;
    static constexpr bool kIsInteger = false;
    using Steps = Bf16Format;
    using Number = uint16_t;
    using Lanes = Quads;
    using Factor = Quads;
    using Sum = Vec;
    static Lanes load(const uint8_t* from) { return load_quads(from); }
    static Lanes load_first(const uint8_t* from) { return only_first_of_pairs(load_quads(from)); }
    static Factor factor(const Number* row) { return broadcast_quad(row); }
    template <Side>
    static Sum add(Sum sum, Lanes lanes, Factor factor) {
        return dot_bf16(sum, lanes, factor);
    }
    static void store_numbers(uint16_t* to, Vec x) { store_bf16(to, x); }
};
#if defined(__AMX_BF16__)
// Float16 as pairs of bf16 (attention_pairs.hpp): any number of rows goes through tiles, weights in two planes.
struct Fp16PairsFormat : Bf16Format {
    static constexpr KVFormat kFormat = KVFormat::kFp16;
    static constexpr int64_t kPerUnit = 1, kUnitBytes = 2, kPlanes = 2;
    static void store_numbers(uint16_t* to, Vec x) { store_whole_and_rest(to, to + kRowStride, x); }
};
#endif
#else
struct Bf16Format {
    static constexpr KVFormat kFormat = KVFormat::kBf16;
    static constexpr int64_t kFewestForTiles = INT64_MAX;
    static constexpr int64_t kPerUnit = 2, kUnitBytes = 4, kPlanes = 1, kRegisters = 2, kSteps = 2;
    static constexpr bool kIsInteger = false;
    using Steps = Fp32Format;
    using Number = float;
    struct Lanes {
        Vec first, second;
    };
    using Factor = Lanes;
    using Sum = Vec;
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
    template <Side>
    static void unpack(const Lanes& lanes, float* to, int64_t step) {
        store(to, lanes.first);
        store(to + step, lanes.second);
    }
    static void store_numbers(float* to, Vec x) { store(to, x); }
};
#endif

#if defined(PENSTOCK_MULTIPLIES_PAIRS)
// Rows of 16-bit numbers, of each four the first, the third, the second and the fourth: those that a unit's even and odd
// bytes meet.
struct PairRows {
    static constexpr int64_t kFewestForTiles = INT64_MAX, kPlanes = 1;
    static constexpr bool kIsInteger = true;
    using Number = int16_t;
    using Sum = Quads;
    static void store_query(Number* to, Vec x) { store_pairs(to, x); }
    static void store_weights(Number* to, Vec x) { store_pairs(to, x); }
    static int32_t whole(Number number) { return number; }
};

struct PairSteps : PairRows {
    static constexpr int64_t kPerUnit = 2;
    using Lanes = Quads;
    using Factor = Quads;
    static Lanes load(const uint8_t* from) { return load_quads(from); }
    static Factor factor(const Number* row) { return broadcast_quad(row); }
    template <Side>
    static Sum add(Sum sum, Lanes lanes, Factor factor) {
        return dot_pairs(sum, lanes, factor);
    }
};

struct Int8Format : PairRows {
    static constexpr KVFormat kFormat = KVFormat::kInt8;
    static constexpr int64_t kPerUnit = 4, kUnitBytes = 4, kRegisters = 1, kSteps = 2;
    static constexpr int kKeyZero = kInt8KeyZero;
    using Steps = PairSteps;
    using Lanes = Quads;
    struct Factor {
        Quads even, odd;
    };
    static Lanes load(const uint8_t* from) { return load_quads(from); }
    static Factor factor(const Number* row) { return {broadcast_quad(row), broadcast_quad(row + 2)}; }
    template <Side side>
    static Quads even(Lanes x) {
        return side == Side::kKeys ? even_bytes(x) : even_signed_bytes(x);
    }
    template <Side side>
    static Quads odd(Lanes x) {
        return side == Side::kKeys ? odd_bytes(x) : odd_signed_bytes(x);
    }
    template <Side side>
    static Sum add(Sum sum, Lanes lanes, const Factor& factor) {
        return dot_pairs(dot_pairs(sum, even<side>(lanes), factor.even), odd<side>(lanes), factor.odd);
    }
    template <Side side>
    static void unpack(Lanes lanes, float* to, int64_t step) {
        store_quads(to, even<side>(lanes));
        store_quads(to + step, odd<side>(lanes));
    }
};

struct Uint4Format : PairRows {
    static constexpr KVFormat kFormat = KVFormat::kUint4;
    static constexpr int64_t kPerUnit = 8, kUnitBytes = 4, kRegisters = 2, kSteps = 4;
    static constexpr int kKeyZero = 0;
    using Steps = PairSteps;
    struct Lanes {
        Quads low, high;
    };
    struct Factor {
        Quads of[4];
    };
    static Lanes load(const uint8_t* from) {
        const Quads both = load_quads(from);
        return {low_nibbles(both), high_nibbles(both)};
    }
    static Factor factor(const Number* row) {
        return {{broadcast_quad(row), broadcast_quad(row + 2), broadcast_quad(row + 4), broadcast_quad(row + 6)}};
    }
    template <Side>
    static Sum add(Sum sum, const Lanes& lanes, const Factor& factor) {
        sum = dot_pairs(dot_pairs(sum, even_bytes(lanes.low), factor.of[0]), odd_bytes(lanes.low), factor.of[1]);
        return dot_pairs(dot_pairs(sum, even_bytes(lanes.high), factor.of[2]), odd_bytes(lanes.high), factor.of[3]);
    }
    template <Side>
    static void unpack(const Lanes& lanes, float* to, int64_t step) {
        store_quads(to, even_bytes(lanes.low));
        store_quads(to + step, odd_bytes(lanes.low));
        store_quads(to + 2 * step, even_bytes(lanes.high));
        store_quads(to + 3 * step, odd_bytes(lanes.high));
    }
};
#else
// Rows of bytes.
struct ByteRows {
    static constexpr int64_t kPlanes = 2;
    static constexpr bool kIsInteger = true;
    using Number = uint8_t;
    using Sum = Quads;
    static void store_query(Number* to, Vec x) { store_signed_bytes(reinterpret_cast<int8_t*>(to), x); }
    static void store_weights(Number* to, Vec x) { store_planes(to, to + kRowStride, x); }
    static int32_t whole(Number number) { return static_cast<int8_t>(number); }
};

struct Int8Format : ByteRows {
    static constexpr KVFormat kFormat = KVFormat::kInt8;
#if defined(__AMX_INT8__)
    static constexpr int64_t kFewestForTiles = 8;
    using ScoreUnit = SignedByUnsigned;
    using ValueUnit = UnsignedBySigned;
#else
    static constexpr int64_t kFewestForTiles = INT64_MAX;
#endif
    static constexpr int64_t kPerUnit = 4, kUnitBytes = 4, kRegisters = 1, kSteps = 1;
    static constexpr int kKeyZero = kInt8KeyZero;
    using Steps = Int8Format;
    using Lanes = Quads;
    using Factor = Quads;
    static Lanes load(const uint8_t* from) { return load_quads(from); }
    static Factor factor(const Number* row) { return broadcast_quad(row); }
    template <Side side>
    static Sum add(Sum sum, Lanes lanes, Factor factor) {
        return side == Side::kKeys ? dot(sum, lanes, factor) : dot(sum, factor, lanes);
    }
    template <Side>
    static void unpack(Lanes lanes, float* to, int64_t) {
        store_quads(to, lanes);
    }
};

// Nibbles are as good as unsigned bytes that meet signed ones and as signed bytes that meet unsigned ones.
struct Uint4Format : ByteRows {
    static constexpr KVFormat kFormat = KVFormat::kUint4;
#if defined(__AMX_INT8__)
    static constexpr int64_t kFewestForTiles = 16;
#else
    static constexpr int64_t kFewestForTiles = INT64_MAX;
#endif
    static constexpr int64_t kPerUnit = 8, kUnitBytes = 4, kRegisters = 2, kSteps = 2;
    static constexpr int kKeyZero = 0;
    using Steps = Int8Format;
    struct Lanes {
        Quads low, high;
    };
    using Factor = Lanes;
    static Lanes load(const uint8_t* from) {
        const Quads both = load_quads(from);
        return {low_nibbles(both), high_nibbles(both)};
    }
    static Factor factor(const Number* row) { return {broadcast_quad(row), broadcast_quad(row + 4)}; }
    template <Side side>
    static Sum add(Sum sum, const Lanes& lanes, const Factor& factor) {
        return Steps::add<side>(Steps::add<side>(sum, lanes.low, factor.low), lanes.high, factor.high);
    }
    template <Side>
    static void unpack(const Lanes& lanes, float* to, int64_t step) {
        store_quads(to, lanes.low);
        store_quads(to + step, lanes.high);
    }
};
#endif

// Latents, laid out as keys and read as values (attention_latent_bytes.hpp).
struct LatentBytesFormat : Int8Format {
    using Steps = std::conditional_t<Int8Format::kSteps == 1, LatentBytesFormat, Int8Format::Steps>;
};

// Whether vectors are multiplied as something else than they lie.
template <class Format>
constexpr bool kIsPacked = !std::is_same_v<Format, typename Format::Steps>;
// Whether many rows meet a panel. Bytes are multiplied as they lie, but faster side by side.
template <class Format>
constexpr bool kHasPanel = kIsPacked<Format> || std::is_same_v<Format, Int8Format>;
template <class Format>
constexpr bool kIsInteger = Format::kIsInteger;
// Whether any number of rows is multiplied in tiles.
template <class Format>
constexpr bool kHasTiles = Format::kFewestForTiles < INT64_MAX;
template <class Format>
constexpr bool kHasMinimum = Format::kFormat == KVFormat::kUint4;
template <class Format>
constexpr bool kIsLatentBytes = std::is_same_v<Format, LatentBytesFormat>;
template <class Format>
constexpr bool kIsPaired = Format::kFormat == KVFormat::kFp16 && Format::kPlanes == 2;
// A scale and a minimum; a latent's scale and its key's.
template <class Format>
constexpr int64_t kScaleParts = kHasMinimum<Format> || kIsLatentBytes<Format> ? 2 : 1;

}  // namespace penstock
