// output[t, n] += Σ_r up[n, r] × Σ_k down[r, k] × input[t, k]: what low-rank adapters add to a product.
//
// Only tokens whose request has an adapter are visited, in blocks of one adapter each; without any, nothing is done.
// Two passes, each shared among the threads: `shrink` makes a block's `ranks` numbers a token, `expand` adds what they
// become to the product where that was written. A product may have parts side by side (query, key and value), each
// with its own matrices and its own rank. Every sum is one token's own, k and r ascending, so its bits depend neither
// on the block that it stands in nor on the threads.
//   down  [rank / 4][in / 16][4][16], filled up with zeros      up  [out / 32][rank][32], likewise
#include <algorithm>

#include "linear.hpp"
#include "pool.hpp"
#include "step.hpp"
#include "tiles.hpp"
#include "unrolled.hpp"
#include "vector.hpp"

namespace penstock {
namespace {

constexpr int64_t kQuad = 4;     // ranks that lie together in `down`
constexpr int64_t kInputs = 16;  // input features that lie together in it
constexpr int64_t kRanksPerChunk = 16;
constexpr int64_t kExpandChunkBytes = 32 << 10;
constexpr int kShrinkTokens = kLanes == 16 ? 4 : 2;  // sums, weights and an input fit into the registers
constexpr int kExpandTokens = 4;
constexpr int kExpandVectors = 2;

// One part of a product, for all adapters.
struct LoraPart {
    const void* down;      // [adapters] of the most that one takes
    const void* up;        // likewise
    const int32_t* ranks;  // [adapters]: 0 for one that leaves this part as it is
    int64_t first_output;
    int64_t out_features;
};

struct Lora {
    const Step* step;
    const Linear* product;  // whose output is added to
    const float* input;     // [rows, in_features]
    int64_t in_features;
    int64_t max_rank;  // of any adapter
    int64_t num_parts;
    const LoraPart* parts;
    float* shrunk;  // [tokens with an adapter, parts, max_rank rounded up to kQuad]
};

struct Float32 {
    using Stored = float;
    static Vec load_lanes(const Stored* from) { return load(from); }
};
struct Float16 {
    using Stored = uint16_t;
    static Vec load_lanes(const Stored* from) { return load_fp16(from); }
};
struct Bfloat16 {
    using Stored = uint16_t;
    static Vec load_lanes(const Stored* from) { return load_bf16(from); }
};

template <class Format>
inline const typename Format::Stored* down_of(const Lora& lora, const LoraPart& part, int32_t adapter) {
    const int64_t size = round_up(lora.max_rank, kQuad) * round_up(lora.in_features, kInputs);
    return static_cast<const typename Format::Stored*>(part.down) + adapter * size;
}

template <class Format>
inline const typename Format::Stored* up_of(const Lora& lora, const LoraPart& part, int32_t adapter) {
    const int64_t size = round_up(part.out_features, kPanel) * lora.max_rank;
    return static_cast<const typename Format::Stored*>(part.up) + adapter * size;
}

// The numbers that `shrink` leaves for a token, by its index in the list of tokens that have an adapter.
inline float* shrunk_of(const Lora& lora, int64_t index, int64_t part) {
    return lora.shrunk + (index * lora.num_parts + part) * round_up(lora.max_rank, kQuad);
}

inline int64_t largest_rank(const Lora& lora) {
    int32_t largest = 0;
    for (int64_t block = 0; block < lora.step->num_adapted; ++block) {
        for (int64_t part = 0; part < lora.num_parts; ++part) {
            largest = std::max(largest, lora.parts[part].ranks[lora.step->adapted[block].adapter]);
        }
    }
    return largest;
}

// Calls body(first index, std::integral_constant<int, tokens>) for the tiles of a block.
template <int MostTokens, class Body>
inline void over_token_tiles(const AdaptedBlock& block, const Body& body) {
    for (int32_t index = block.first; index < block.first + block.count; index += MostTokens) {
        with_rows<MostTokens>(std::min(MostTokens, block.first + block.count - index),
                              [&](auto tokens) { body(index, tokens); });
    }
}

// --- shrink ----------------------------------------------------------------------------------------------------------

// Adds a vector of input features, from k on, to all sums of a tile.
template <class Format, int Tokens, class Lanes>
PENSTOCK_INLINE inline void add_inputs(Vec (&sums)[Tokens][kQuad], const typename Format::Stored* quad,
                                       const float* const (&inputs)[Tokens], int64_t k, Lanes lanes) {
    const typename Format::Stored* from = quad + k / kInputs * (kQuad * kInputs) + k % kInputs;
    Vec weights[kQuad];
    unrolled<kQuad>([&](auto r) PENSTOCK_INLINE { weights[r] = Format::load_lanes(from + r * kInputs); });
    unrolled<Tokens>([&](auto t) PENSTOCK_INLINE {
        const Vec x = load(inputs[t] + k, lanes);
        unrolled<kQuad>([&](auto r) PENSTOCK_INLINE { sums[t][r] = fma(weights[r], x, sums[t][r]); });
    });
}

// One part of wide sums after the other: there are registers for no more.
template <class Format, int Tokens>
void shrink_tile(const Lora& lora, const typename Format::Stored* quad, int64_t index, int64_t part, int64_t rank) {
    const float* inputs[Tokens];
    WideSum wide[Tokens][kQuad];
    for (int t = 0; t < Tokens; ++t)
        inputs[t] = lora.input + lora.step->adapted_tokens[index + t] * lora.in_features;
    const int64_t count = lora.in_features;
    for (int64_t own = 0; own < WideSum::kParts; ++own) {
        Vec sums[Tokens][kQuad];
        unrolled<Tokens>([&](auto t) PENSTOCK_INLINE {
            unrolled<kQuad>([&](auto r) PENSTOCK_INLINE { sums[t][r] = zero(); });
        });
        int64_t k = own * kLanes;
        for (; k + kLanes <= count; k += WideSum::kWidth) add_inputs<Format>(sums, quad, inputs, k, AllLanes{});
        if (k < count) add_inputs<Format>(sums, quad, inputs, k, FirstLanes{count - k});
        unrolled<Tokens>([&](auto t) PENSTOCK_INLINE {
            unrolled<kQuad>([&](auto r) PENSTOCK_INLINE { wide[t][r].parts[own] = sums[t][r]; });
        });
    }
    for (int t = 0; t < Tokens; ++t)
        for (int64_t r = 0; r < kQuad; ++r) shrunk_of(lora, index + t, part)[rank + r] = wide[t][r].total();
}

template <class Format>
void shrink(const Lora& lora, int64_t most_ranks) {
    const int64_t groups = (most_ranks + kRanksPerChunk - 1) / kRanksPerChunk;
    parallel(lora.step->num_adapted * lora.num_parts * groups, [&](int64_t chunk) {
        const AdaptedBlock& block = lora.step->adapted[chunk / groups / lora.num_parts];
        const int64_t number = chunk / groups % lora.num_parts;
        const LoraPart& part = lora.parts[number];
        const int64_t first = chunk % groups * kRanksPerChunk;
        const int64_t end = std::min<int64_t>(part.ranks[block.adapter], first + kRanksPerChunk);
        const auto* down = down_of<Format>(lora, part, block.adapter);
        for (int64_t rank = first; rank < end; rank += kQuad) {
            const auto* quad = down + rank * round_up(lora.in_features, kInputs);
            over_token_tiles<kShrinkTokens>(block, [&](int64_t index, auto tokens) {
                shrink_tile<Format, tokens>(lora, quad, index, number, rank);
            });
        }
    });
}

// --- expand ----------------------------------------------------------------------------------------------------------

// Adds to `left` outputs of each token, or to a panel's if there are more.
template <class Format, int Tokens>
void expand_tile(const typename Format::Stored* panel, int64_t rank, const float* const (&shrunk)[Tokens],
                 float* const (&outputs)[Tokens], int64_t left) {
    for (int64_t first = 0; first < kPanel && first < left; first += kExpandVectors * kLanes) {
        Vec sums[Tokens][kExpandVectors];
        unrolled<Tokens>([&](auto t) PENSTOCK_INLINE {
            unrolled<kExpandVectors>([&](auto v) PENSTOCK_INLINE { sums[t][v] = zero(); });
        });
        for (int64_t r = 0; r < rank; ++r) {
            const typename Format::Stored* from = panel + r * kPanel + first;
            Vec weights[kExpandVectors];
            unrolled<kExpandVectors>([&](auto v) PENSTOCK_INLINE {
                weights[v] = Format::load_lanes(from + v * kLanes);
            });
            unrolled<Tokens>([&](auto t) PENSTOCK_INLINE {
                const Vec x = broadcast(shrunk[t][r]);
                unrolled<kExpandVectors>([&](auto v) PENSTOCK_INLINE { sums[t][v] = fma(weights[v], x, sums[t][v]); });
            });
        }
        unrolled<kExpandVectors>([&](auto v) PENSTOCK_INLINE {
            const int64_t output = first + v * kLanes;
            const auto add = [&](auto lanes) PENSTOCK_INLINE {
                unrolled<Tokens>([&](auto t) PENSTOCK_INLINE {
                    store(outputs[t] + output, load(outputs[t] + output, lanes) + sums[t][v], lanes);
                });
            };
            if (output + kLanes <= left) {
                add(AllLanes{});
            } else if (output < left) {
                add(FirstLanes{left - output});
            }
        });
    }
}

template <class Format, int Tokens>
void expand_tokens(const Lora& lora, const AdaptedBlock& block, int64_t number, int64_t index, int64_t first_panel,
                   int64_t end_panel) {
    const LoraPart& part = lora.parts[number];
    const int64_t rank = part.ranks[block.adapter];
    const float* shrunk[Tokens];
    float* rows[Tokens];
    for (int t = 0; t < Tokens; ++t) {
        const int64_t token = lora.step->adapted_tokens[index + t];
        shrunk[t] = shrunk_of(lora, index + t, number);
        rows[t] = lora.product->output + token * lora.product->output_stride + part.first_output;
    }
    const auto* up = up_of<Format>(lora, part, block.adapter);
    for (int64_t panel = first_panel; panel < end_panel; ++panel) {
        float* outputs[Tokens];
        for (int t = 0; t < Tokens; ++t) outputs[t] = rows[t] + panel * kPanel;
        expand_tile<Format>(up + panel * rank * kPanel, rank, shrunk, outputs, part.out_features - panel * kPanel);
    }
}

template <class Format>
void expand(const Lora& lora, int64_t most_ranks) {
    const int64_t panel_bytes = most_ranks * kPanel * sizeof(typename Format::Stored);
    const int64_t panels_per_chunk = std::max<int64_t>(1, kExpandChunkBytes / panel_bytes);
    const auto panels_of = [&](int64_t part) { return (lora.parts[part].out_features + kPanel - 1) / kPanel; };
    const auto chunks_of = [&](int64_t part) { return (panels_of(part) + panels_per_chunk - 1) / panels_per_chunk; };
    int64_t chunks = 0;  // of one block
    for (int64_t part = 0; part < lora.num_parts; ++part) chunks += chunks_of(part);
    parallel(lora.step->num_adapted * chunks, [&](int64_t chunk) {
        const AdaptedBlock& block = lora.step->adapted[chunk / chunks];
        int64_t part = 0, own = chunk % chunks;
        for (; own >= chunks_of(part); ++part) own -= chunks_of(part);
        const int64_t first = own * panels_per_chunk, end = std::min(panels_of(part), first + panels_per_chunk);
        if (lora.parts[part].ranks[block.adapter] == 0) return;
        over_token_tiles<kExpandTokens>(block, [&](int64_t index, auto tokens) {
            expand_tokens<Format, tokens>(lora, block, part, index, first, end);
        });
    });
}

template <class Format>
void add_lora(const void* arguments) {
    const Lora& lora = *static_cast<const Lora*>(arguments);
    if (lora.step->num_adapted == 0) return;
    const int64_t most_ranks = largest_rank(lora);
    if (most_ranks == 0) return;
    shrink<Format>(lora, most_ranks);
    expand<Format>(lora, most_ranks);
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_lora_fp32(const void* arguments) { penstock::add_lora<penstock::Float32>(arguments); }
extern "C" void penstock_lora_fp16(const void* arguments) { penstock::add_lora<penstock::Float16>(arguments); }
extern "C" void penstock_lora_bf16(const void* arguments) { penstock::add_lora<penstock::Bfloat16>(arguments); }
