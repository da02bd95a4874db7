// ggml's blocks of neighbouring inputs that share a scale: their types, and where the parts of a packed weight lie.
//
//   weight[n, k] = d × scales[g] × (code - zero) - dmin × mins[g],    g the group of inputs that k lies in
//
// A panel is a row of blocks, one behind the other; each has its parts for all 32 outputs:
//
//   blocks of 256   { d: fp16 [32], dmin: fp16 [32] (if it has mins), scales: int8 [groups / 2][32][2],
//                     mins: int8 [groups / 2][32][2] (if it has any), codes, plane }
//   blocks of 32    { d: fp16 [32], dmin: fp16 [32] (if it has mins), codes, plane }    every scale and min is 1
//
//   codes           nibbles [inputs / 8][32][4] in int4's order, or bytes [inputs / 4][32][4], each with 128 added
//   plane           what is above a nibble. One bit: [inputs / 32][32][4], bit t of byte j is of input 4 t + j;
//                   two bits: [inputs / 16][32][4], bits 2 t and 2 t + 1 likewise
//
// Nothing is rounded: numbers are those of the file, only scales of 6 bits get 8. A row that meets blocks of 256 has a
// scale for every 256 inputs, else for every 32, so that sums within a block are exact (block_tiles.hpp).
#pragma once
#include "linear.hpp"

namespace penstock {

enum class Codes { kNibbles, kNibblesAndBit, kNibblesAndTwoBits, kLookedUpNibbles, kBytes };

constexpr int64_t kSuperBlock = 256;
constexpr int64_t kRun = 32;  // inputs of which codes lie together, in blocks of every type
constexpr int64_t kHalfInputs = 16;

// What a type says: the inputs of a block, those of a group with a scale of its own, how codes are stored, which of them
// stands for 0, the largest distance of one from that, whether something is taken off.
template <int64_t Inputs, int64_t Group, Codes kStored, int Zero, int Most, bool HasMins>
struct BlockType {
    static constexpr int64_t kInputs = Inputs, kGroup = Group;
    static constexpr Codes kCodes = kStored;
    static constexpr int kZero = Zero, kMost = Most;
    static constexpr bool kHasMins = HasMins, kIsSuper = Inputs == kSuperBlock;
    // Whether its types' d is that of the file times a power of 2.
    static constexpr bool kHasUnit = Inputs == kSuperBlock && Group == kHalfInputs && kStored == Codes::kLookedUpNibbles;
    static constexpr int64_t kNumGroups = Inputs / Group;

    static constexpr int64_t kMinAt = 2 * kPanel;  // of dmin
    static constexpr int64_t kScalesAt = HasMins ? 4 * kPanel : 2 * kPanel;
    static constexpr int64_t kMinsAt = kScalesAt + (kIsSuper ? kNumGroups * kPanel : 0);
    static constexpr int64_t kCodesAt = kMinsAt + (kIsSuper && HasMins ? kNumGroups * kPanel : 0);
    static constexpr int64_t kPlaneAt = kCodesAt + Inputs * kPanel / (kStored == Codes::kBytes ? 1 : 2);
    static constexpr int64_t kBytes =
        kPlaneAt + (kStored == Codes::kNibblesAndBit       ? Inputs * kPanel / 8
                    : kStored == Codes::kNibblesAndTwoBits ? Inputs * kPanel / 4
                                                           : 0);
};

using Q4_0 = BlockType<32, 32, Codes::kNibbles, 8, 8, false>;
using Q4_1 = BlockType<32, 32, Codes::kNibbles, 0, 15, true>;
using Q5_0 = BlockType<32, 32, Codes::kNibblesAndBit, 16, 16, false>;
using Q5_1 = BlockType<32, 32, Codes::kNibblesAndBit, 0, 31, true>;
using Q8_0 = BlockType<32, 32, Codes::kBytes, 128, 128, false>;
using Iq4Nl = BlockType<32, 32, Codes::kLookedUpNibbles, 128, 128, false>;
using Q4K = BlockType<256, 32, Codes::kNibbles, 0, 15, true>;
using Q5K = BlockType<256, 32, Codes::kNibblesAndBit, 0, 31, true>;
using Q6K = BlockType<256, 16, Codes::kNibblesAndTwoBits, 32, 32, false>;
using Iq4Xs = BlockType<256, 32, Codes::kLookedUpNibbles, 128, 128, false>;
// Smaller types get a nibble a number, which loses nothing either: of no more than 16 numbers each is one.
using Q2K = BlockType<256, 16, Codes::kNibbles, 0, 3, true>;
using Q3K = BlockType<256, 16, Codes::kNibbles, 4, 4, false>;
using LookedUp = BlockType<256, 16, Codes::kLookedUpNibbles, 128, 128, false>;

// What looked up nibbles stand for.
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kIq1Values[16] = {-9, -7, -1, 1, 7, 9};
constexpr int8_t kIq2Values[16] = {-43, -25, -8, 8, 25, 43};
constexpr int8_t kIq3XxsValues[16] = {-62, -52, -44, -36, -28, -20, -12, -4, 4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SValues[16] = {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15};

// A block of one output, each code a byte, unsigned; scales and mins one a group.
struct FileBlock {
    uint16_t d, dmin;
    int8_t scales[16], mins[16];
    uint8_t codes[kSuperBlock];
};

// Rows that meet a panel, and what was made ready for it (block_rows.hpp).
struct BlockRows {
    const int8_t* inputs;    // [rows, width]
    const float* scales;     // [rows, num_scales]: one for each block
    // Made only for types that want them.
    const int32_t* offsets;  // [rows, groups of all blocks]: what partial sums start from
    const int32_t* mins;     // [rows, pairs of groups]: sums of their inputs, 16 bits each; of blocks of 256
    const float* terms;      // [rows, blocks]: scale × sum of the inputs; of blocks of 32
    const uint8_t* joins;    // [rows]: whether sums of all groups fit into 16 bits
    const int16_t* crossed;  // the inputs as crossed.hpp has them
    int64_t width, num_scales, num_blocks;
    float unit;
};

// One type's functions, and what the others have to know of it.
struct BlockKernels {
    int64_t inputs;       // of a block, and of a row that share a scale
    int64_t block_bytes;  // of a panel's 32 outputs
    float unit;           // what the file's d is multiplied by
    int64_t (*ready_bytes)(const Weight& weight, int64_t num_rows);
    int64_t (*working_bytes)(const Weight& weight, int64_t num_rows);
    // Rows of a block, prepared in so much memory; they meet a panel in memory to work in.
    BlockRows (*prepare)(const Quantized& inputs, int64_t first_row, int64_t num_rows, const Weight& weight, void* ready);
    void (*multiply)(const Weight& weight, const float* bias, int64_t panel, const BlockRows& rows, int64_t num_rows,
                     float* output, int64_t output_stride, void* working);
    void (*pack_row)(uint8_t* panel, int64_t lane, const uint8_t* blocks, int64_t num_blocks);  // or null
    void (*pack_block)(uint8_t* block, int64_t lane, const FileBlock& from);
    void (*read_row)(const Weight& weight, int64_t row, float* to);
#if defined(__AMX_INT8__)
    // totals = a panel × rows in squares of tiles (block_amx.hpp).
    void (*multiply_squares)(float (*totals)[kPanel], const uint8_t* panel, const struct SquaredRows& input, int64_t first_row,
                             int64_t num_rows, uint8_t* unpacked);
#endif
};

// As Python numbers them (weights/packed.py).
const BlockKernels& block_kernels(int64_t type);

// How many neighbours of a row share a scale where it meets this weight; 0: all.
inline int64_t row_group(const Weight& weight) {
    return weight.block_type ? block_kernels(weight.block_type).inputs : 0;
}

inline int64_t block_panel_bytes(const Weight& weight) {
    const BlockKernels& kernels = block_kernels(weight.block_type);
    return weight.in_features / kernels.inputs * kernels.block_bytes;
}

}  // namespace penstock
