// Attention over keys and values that are integers with scales.
#include "attention_tile.hpp"

namespace penstock {

void attend_int8(const Attention& a, Piece piece, Piece next) { TileOfHead<Int8Format>(a, piece, next).run(); }
void attend_uint4(const Attention& a, Piece piece, Piece next) { TileOfHead<Uint4Format>(a, piece, next).run(); }
void attend_latent_bytes(const Attention& a, Piece piece, Piece next) {
    TileOfHead<LatentBytesFormat>(a, piece, next).run();
}

}  // namespace penstock
