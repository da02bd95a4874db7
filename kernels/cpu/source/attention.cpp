// Causal attention of a step's queries over the paged memory of keys and values, read in place.
//
//   output[query] = Σ_key softmax(scale × query · key) × value       over the keys that the query sees
//
// Capped scores are softcap × tanh(scale × query · key / softcap) instead.
//
// A head's sink, if there are any, is one score more in its softmax, of a value that is 0: what all splits are folded
// into begins with it, wherever they are folded.
//
// A piece of work is a tile of tokens (attention.hpp) and one key head (attention_tile.hpp). What tiles left in parts
// is folded afterwards, token by token.
#include <algorithm>

#include "attention_tile.hpp"
#include "rows.hpp"

namespace penstock {
namespace {

void fold_parts(const Attention& a, int64_t token) {
    const Sight sight = sight_of(*a.plan->step, token, a.plan->window);
    const int64_t value_dim = a.kv.value_dim;
    auto* totals = static_cast<float*>(thread_scratch(value_dim * sizeof(float)));
    for (int64_t head = 0; head < num_query_heads(a); ++head) {
        std::fill(totals, totals + value_dim, 0.0f);
        Running running = beginning_of(a, head);
        for (int64_t split = first_split(sight); split < end_split(sight); ++split) {
            const float* part = part_of(a, token, head, split);
            running.fold(totals, part, part[value_dim], part[value_dim + 1], value_dim);
        }
        running.finish(output_of(a, token, head), totals, value_dim);
    }
}

void attend_piece(const Attention& a, Piece piece, Piece next) {
    switch (a.kv.format) {
        case KVFormat::kFp32: return attend_fp32(a, piece, next);
        case KVFormat::kFp16: return attend_fp16(a, piece, next);
        case KVFormat::kBf16: return attend_bf16(a, piece, next);
        case KVFormat::kInt8: return is_latent(a.kv) ? attend_latent_bytes(a, piece, next) : attend_int8(a, piece, next);
        case KVFormat::kUint4: return attend_uint4(a, piece, next);
    }
}

void attend(const Attention& a) {
    const AttentionPlan& plan = *a.plan;
    const int64_t num_tiles = plan.counts[0], num_parted = plan.counts[1];
    // Head by head, so that tiles find keys and values in the cache; of latents, which all heads share, tile by tile.
    // A row's last tile has the most to do: it is first.
    const int64_t num_pieces = num_tiles * plan.num_heads;
    const auto piece_of = [&](int64_t number) {
        const int64_t tile = is_latent(a.kv) ? number / plan.num_heads : number % num_tiles;
        const int64_t head = is_latent(a.kv) ? number % plan.num_heads : number / num_tiles;
        return Piece{plan.tiles[num_tiles - 1 - tile], head};
    };
    parallel(num_pieces, [&](int64_t number) {
        attend_piece(a, piece_of(number), piece_of(std::min(number + num_threads(), num_pieces - 1)));
    });
    if (num_parted) parallel(num_parted, [&](int64_t i) { fold_parts(a, plan.parted_tokens[i]); });
    if (a.quantized.values) {
        const int64_t width = num_query_heads(a) * a.kv.value_dim;
        over_rows(plan.step->num_tokens, width,
                  [&](int64_t row) { quantize_row(a.output + row * width, width, a.quantized, row); });
    }
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_attention(const void* arguments) {
    penstock::attend(*static_cast<const penstock::Attention*>(arguments));
}
