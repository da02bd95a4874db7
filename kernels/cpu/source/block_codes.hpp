// How a block's codes become bytes that are multiplied: as a tile needs them, or those of a panel at once.
#pragma once
#include "block_types.hpp"
#include "partials.hpp"
#include "tiles.hpp"

namespace penstock {

// Whether codes of a type are bytes with a sign, as narrow products want what fills a byte.
template <class Type, class Sums>
constexpr bool kIsSigned = Sums::kIsNarrow && Type::kMost > 63;

// Codes of a block as they are packed. `four<T>(run, lane)` are those of inputs 4 T to 4 T + 3 of a run.
template <class Type, class Sums>
struct PackedCodes {
    const uint8_t* block;
    Bytes table{};

    PackedCodes(const uint8_t* block, const int8_t* values) : block(block) {
        if constexpr (Type::kCodes == Codes::kLookedUpNibbles)
            table = kIsSigned<Type, Sums> ? load_table(values) : flip_bits(load_table(values), 0x80);
    }

    template <int T>
    Bytes four(int64_t run, int64_t lane) const {
        const uint8_t *codes = block + Type::kCodesAt + lane * 4, *plane = block + Type::kPlaneAt + lane * 4;
        if constexpr (Type::kCodes == Codes::kBytes) {
            const Bytes bytes = load_bytes(codes + (run * 8 + T) * kPanel * 4);
            return kIsSigned<Type, Sums> ? flip_bits(bytes, 0x80) : bytes;
        }
        const Bytes pairs = load_bytes(codes + (run * 4 + T / 2) * kPanel * 4);
        const Bytes nibbles = T % 2 ? high_nibbles(pairs) : low_nibbles(pairs);
        if constexpr (Type::kCodes == Codes::kLookedUpNibbles) return look_up(table, nibbles);
        if constexpr (Type::kCodes == Codes::kNibblesAndBit)
            return join_bits(nibbles, keep_bits(shifted<4 - T>(load_bytes(plane + run * kPanel * 4)), 0x10));
        if constexpr (Type::kCodes == Codes::kNibblesAndTwoBits) {
            const Bytes bits = load_bytes(plane + (run * 2 + T / 4) * kPanel * 4);
            return join_bits(nibbles, keep_bits(shifted<4 - 2 * (T % 4)>(bits), 0x30));
        }
        return nibbles;
    }
};

// The same as bytes, [inputs / 4][32][4].
struct UnpackedCodes {
    const uint8_t* bytes;

    template <int T>
    Bytes four(int64_t run, int64_t lane) const {
        return load_bytes(bytes + (run * 8 + T) * kPanel * 4 + lane * 4);
    }
};

// Where the codes of a panel's blocks are: as they are packed, or taken apart before.
template <class Type, class Sums>
struct PackedPanel {
    const int8_t* values;
    PackedCodes<Type, Sums> block(const uint8_t* block, int64_t) const { return {block, values}; }
};
template <class Type>
struct UnpackedPanel {
    const uint8_t* bytes;
    UnpackedCodes block(const uint8_t*, int64_t index) const { return {bytes + index * Type::kInputs * kPanel}; }
};

template <class Type, class Sums>
void unpack_panel(uint8_t* to, const uint8_t* block, const int8_t* values, int64_t num_blocks) {
    for (int64_t index = 0; index < num_blocks; ++index, block += Type::kBytes) {
        const PackedCodes<Type, Sums> codes(block, values);
        for (int64_t line = 0; line < Type::kBytes; line += 64) __builtin_prefetch(block + kFetchAhead + line, 0, 2);
        for (int64_t run = 0; run < Type::kInputs / kRun; ++run, to += kRun * kPanel)
            unrolled<8>([&](auto t) PENSTOCK_INLINE {
                unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
                    const int64_t lane = v * kLanes;
                    store_bytes(to + t * kPanel * 4 + lane * 4, codes.template four<t>(run, lane));
                });
            });
    }
}

}  // namespace penstock
