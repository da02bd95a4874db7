// Attention over keys and values that are floats.
#include "attention_tile.hpp"

namespace penstock {

void attend_fp32(const Attention& a, Piece piece, Piece next) { TileOfHead<Fp32Format>(a, piece, next).run(); }
void attend_fp16(const Attention& a, Piece piece, Piece next) {
#if defined(__AMX_BF16__)
    if (!is_latent(a.kv)) return TileOfHead<Fp16PairsFormat>(a, piece, next).run();
#endif
    TileOfHead<Fp16Format>(a, piece, next).run();
}
void attend_bf16(const Attention& a, Piece piece, Piece next) { TileOfHead<Bf16Format>(a, piece, next).run(); }

}  // namespace penstock
