// How a file's blocks get into panels, and a row of them out again as floats.
//
// A type's reader takes one block of the file apart. Blocks of types without a reader come in parts (PackBlockParts).
#pragma once
#include <cstring>

#include "block_types.hpp"
#include "vector.hpp"

namespace penstock {

inline void read_half(uint16_t& to, const uint8_t* from) { std::memcpy(&to, from, sizeof to); }

// Four octets at once.
inline uint32_t read_word(const uint8_t* from) {
    uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}
inline void write_word(uint8_t* to, uint32_t word) { std::memcpy(to, &word, sizeof word); }

// Each `width` codes are the low halves of so many octets, then their high halves.
inline void read_nibbles(uint8_t* codes, const uint8_t* from, int64_t count, int64_t width) {
    for (int64_t start = 0; start < count; start += 2 * width, from += width)
        for (int64_t i = 0; i < width; i += 4) {
            const uint32_t word = read_word(from + i);
            write_word(codes + start + i, word & 0x0f0f0f0f);
            write_word(codes + start + width + i, word >> 4 & 0x0f0f0f0f);
        }
}

// Q4_K's and Q5_K's: 8 scales and 8 mins of 6 bits in 12 octets.
inline void read_six_bit_scales(FileBlock& to, const uint8_t* from) {
    for (int64_t i = 0; i < 4; ++i) {
        to.scales[i] = static_cast<int8_t>(from[i] & 63);
        to.mins[i] = static_cast<int8_t>(from[4 + i] & 63);
        to.scales[4 + i] = static_cast<int8_t>((from[8 + i] & 15) | (from[i] >> 2 & 48));
        to.mins[4 + i] = static_cast<int8_t>(from[8 + i] >> 4 | (from[4 + i] >> 2 & 48));
    }
}

struct ReadQ4_0 {
    static constexpr int64_t kFileBytes = 18;
    static void read(FileBlock& to, const uint8_t* from) {
        read_half(to.d, from);
        read_nibbles(to.codes, from + 2, 32, 16);
    }
};

struct ReadQ4_1 {
    static constexpr int64_t kFileBytes = 20;
    static void read(FileBlock& to, const uint8_t* from) {
        read_half(to.d, from);
        read_half(to.dmin, from + 2);
        read_nibbles(to.codes, from + 4, 32, 16);
    }
};

inline void add_bits(uint8_t* codes, const uint8_t* bits) {
    const uint32_t word = read_word(bits);
    for (int64_t i = 0; i < 32; ++i) codes[i] |= (word >> i & 1) << 4;
}

struct ReadQ5_0 {
    static constexpr int64_t kFileBytes = 22;
    static void read(FileBlock& to, const uint8_t* from) {
        read_half(to.d, from);
        read_nibbles(to.codes, from + 6, 32, 16);
        add_bits(to.codes, from + 2);
    }
};

struct ReadQ5_1 {
    static constexpr int64_t kFileBytes = 24;
    static void read(FileBlock& to, const uint8_t* from) {
        read_half(to.d, from);
        read_half(to.dmin, from + 2);
        read_nibbles(to.codes, from + 8, 32, 16);
        add_bits(to.codes, from + 4);
    }
};

struct ReadQ8_0 {
    static constexpr int64_t kFileBytes = 34;
    static void read(FileBlock& to, const uint8_t* from) {
        read_half(to.d, from);
        for (int64_t i = 0; i < 32; ++i) to.codes[i] = from[2 + i] ^ 0x80;
    }
};

struct ReadQ4K {
    static constexpr int64_t kFileBytes = 144;
    static void read(FileBlock& to, const uint8_t* from) {
        read_half(to.d, from);
        read_half(to.dmin, from + 2);
        read_six_bit_scales(to, from + 4);
        read_nibbles(to.codes, from + 16, 256, 32);
    }
};

struct ReadQ5K {
    static constexpr int64_t kFileBytes = 176;
    static void read(FileBlock& to, const uint8_t* from) {
        read_half(to.d, from);
        read_half(to.dmin, from + 2);
        read_six_bit_scales(to, from + 4);
        read_nibbles(to.codes, from + 48, 256, 32);
        for (int64_t run = 0; run < 8; ++run)
            for (int64_t i = 0; i < 32; ++i) to.codes[run * 32 + i] |= (from[16 + i] >> run & 1) << 4;
    }
};

struct ReadQ6K {
    static constexpr int64_t kFileBytes = 210;
    static void read(FileBlock& to, const uint8_t* from) {
        read_half(to.d, from + 208);
        std::memcpy(to.scales, from + 192, 16);
        read_nibbles(to.codes, from, 256, 64);
        for (int64_t run = 0; run < 8; ++run)
            for (int64_t i = 0; i < 32; ++i)
                to.codes[run * 32 + i] |= (from[128 + run / 4 * 32 + i] >> run % 4 * 2 & 3) << 4;
    }
};

struct ReadIq4Xs {
    static constexpr int64_t kFileBytes = 136;
    static void read(FileBlock& to, const uint8_t* from) {
        read_half(to.d, from);
        uint16_t high;
        read_half(high, from + 2);
        for (int64_t i = 0; i < 8; ++i)
            to.scales[i] = static_cast<int8_t>(((from[4 + i / 2] >> i % 2 * 4 & 15) | (high >> 2 * i & 3) << 4) - 32);
        read_nibbles(to.codes, from + 8, 256, 16);
    }
};

// Where a group's scale or min lies among those of a block.
inline int64_t place_of_group(int64_t group, int64_t lane) {
    return group / 2 * kPanel * 2 + lane * 2 + group % 2;
}

template <class Type>
void pack_block(uint8_t* block, int64_t lane, const FileBlock& from) {
    std::memcpy(block + lane * 2, &from.d, 2);
    if constexpr (Type::kHasMins) std::memcpy(block + Type::kMinAt + lane * 2, &from.dmin, 2);
    for (int64_t group = 0; Type::kIsSuper && group < Type::kNumGroups; ++group) {
        block[Type::kScalesAt + place_of_group(group, lane)] = static_cast<uint8_t>(from.scales[group]);
        if constexpr (Type::kHasMins)
            block[Type::kMinsAt + place_of_group(group, lane)] = static_cast<uint8_t>(from.mins[group]);
    }
    const uint8_t* codes = from.codes;
    uint8_t *to = block + Type::kCodesAt + lane * 4, *plane = block + Type::kPlaneAt + lane * 4;
    if constexpr (Type::kCodes == Codes::kBytes) {
        for (int64_t k = 0; k < Type::kInputs; k += 4) std::memcpy(to + k * kPanel, codes + k, 4);
        return;
    }
    for (int64_t k = 0; k < Type::kInputs; k += 8, to += kPanel * 4)
        write_word(to, (read_word(codes + k) & 0x0f0f0f0f) | (read_word(codes + k + 4) & 0x0f0f0f0f) << 4);
    if constexpr (Type::kCodes == Codes::kNibblesAndBit || Type::kCodes == Codes::kNibblesAndTwoBits) {
        constexpr bool kIsOneBit = Type::kCodes == Codes::kNibblesAndBit;
        constexpr int64_t kBits = kIsOneBit ? 1 : 2, kWords = 8 / kBits;
        for (int64_t start = 0; start < Type::kInputs; start += 4 * kWords, plane += kPanel * 4) {
            uint32_t octets = 0;
            for (int64_t word = 0; word < kWords; ++word)
                octets |= (read_word(codes + start + 4 * word) >> 4 & (kIsOneBit ? 0x01010101 : 0x03030303)) << word * kBits;
            write_word(plane, octets);
        }
    }
}

template <class Type, class Reader>
void pack_blocks(uint8_t* panel, int64_t lane, const uint8_t* blocks, int64_t num_blocks) {
    FileBlock block;
    for (int64_t index = 0; index < num_blocks; ++index, panel += Type::kBytes, blocks += Reader::kFileBytes) {
        Reader::read(block, blocks);
        pack_block<Type>(panel, lane, block);
    }
}

// One code of an output, unsigned.
template <class Type>
int code_of(const uint8_t* block, int64_t lane, int64_t k) {
    const uint8_t *codes = block + Type::kCodesAt + lane * 4, *plane = block + Type::kPlaneAt + lane * 4;
    if constexpr (Type::kCodes == Codes::kBytes) return codes[k / 4 * kPanel * 4 + k % 4];
    const int octet = codes[k / 8 * kPanel * 4 + k % 4], nibble = k % 8 < 4 ? octet & 15 : octet >> 4;
    if constexpr (Type::kCodes == Codes::kNibblesAndBit)
        return nibble | (plane[k / 32 * kPanel * 4 + k % 4] >> k % 32 / 4 & 1) << 4;
    if constexpr (Type::kCodes == Codes::kNibblesAndTwoBits)
        return nibble | (plane[k / 16 * kPanel * 4 + k % 4] >> k % 16 / 4 * 2 & 3) << 4;
    return nibble;
}

inline float widened(const uint8_t* half) {
    uint16_t halves[kLanes] = {};
    std::memcpy(halves, half, 2);
    float floats[kLanes];
    store(floats, load_fp16(halves));
    return floats[0];
}

// The numbers of an output, multiplied in ggml's order.
template <class Type>
void read_blocks(const Weight& weight, const int8_t* values, float unit, int64_t row, float* to) {
    const int64_t num_blocks = weight.in_features / Type::kInputs, lane = row % kPanel;
    const uint8_t* block = weight.panels + row / kPanel * num_blocks * Type::kBytes;
    for (int64_t index = 0; index < num_blocks; ++index, block += Type::kBytes) {
        const float d = widened(block + lane * 2) * unit;
        const float dmin = Type::kHasMins ? widened(block + Type::kMinAt + lane * 2) : 0.0f;
        for (int64_t k = 0; k < Type::kInputs; ++k) {
            const int64_t place = place_of_group(k / Type::kGroup, lane);
            const int code = code_of<Type>(block, lane, k);
            const int value = Type::kCodes == Codes::kLookedUpNibbles ? values[code] : code - Type::kZero;
            float scale = d, taken = dmin;
            if constexpr (Type::kIsSuper) {
                scale = d * static_cast<float>(static_cast<int8_t>(block[Type::kScalesAt + place]));
                taken = Type::kHasMins ? dmin * static_cast<float>(static_cast<int8_t>(block[Type::kMinsAt + place])) : 0.0f;
            }
            const float number = scale * static_cast<float>(value);
            if constexpr (Type::kHasMins) *to++ = Type::kIsSuper ? number - taken : number + taken;
            else *to++ = number;
        }
    }
}

}  // namespace penstock
