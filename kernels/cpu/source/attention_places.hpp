// Where the keys and values of a piece lie, stretch by stretch, and what is fetched while they are multiplied.
#pragma once
#include "attention_weights.hpp"

namespace penstock {

// A tile and a key head: what a thread does at a time.
struct Piece {
    const Tile& tile;
    int64_t head;
};

inline const float* query_of(const Attention& a, Piece piece, int64_t row) {
    const int64_t shared = a.plan->num_shared, head = piece.head * shared + row % shared;
    const int64_t token = a.plan->tile_tokens[piece.tile.first_token + row / shared];
    return a.query + token * a.query_stride + head * a.query_step;
}

template <class Format>
class Places {
public:
    // `next` is the piece that the thread probably does afterwards.
    Places(const Attention& attention, Piece piece, Piece next)
        : a_(attention),
          step_(*attention.plan->step),
          piece_(piece),
          next_(next),
          block_shift_(__builtin_ctzll(attention.kv.block_size)),
          block_bytes_(bytes_of_block_head(attention.kv)) {
        memory.key_step = attention.kv.block_size * Format::kUnitBytes;
        memory.value_step = attention.kv.head_dim * Format::kUnitBytes;
    }

    int64_t end_stretch() const {
        const int64_t context = step_.context_lengths[piece_.tile.row];
        return std::min(split_begin(piece_.tile.end_split) / kStretch, (context + kStretch - 1) / kStretch);
    }

    // Finds the keys of a stretch up to a multiple of `alignment`.
    void find(int64_t stretch, Sight seen, int64_t alignment) {
        memory.first = seen.first / kLanes;
        memory.end = round_up(seen.end, alignment) / kLanes;
        for (int64_t vector = memory.first; vector < memory.end; ++vector) {
            const int64_t key = vector * kLanes;
            const Place place = place_of(piece_, stretch * kStretch + key);
            memory.keys[vector] = a_.kv.keys + place.bytes + place.offset * Format::kUnitBytes;
            memory.values[vector] = memory.after_keys[vector] = a_.kv.values + place.values;
            if constexpr (kIsInteger<Format>) widen_scales(place, key);
        }
        if (stretch + 1 < end_stretch()) fetch_following(piece_, (stretch + 1) * kStretch);
        else fetch_following(next_, split_begin(next_.tile.first_split));
    }

    StretchMemory memory;
    StretchScales scales;

private:
    // The stretch that begins there: its keys are fetched with the values before them, its scales at once.
    void fetch_following(Piece piece, int64_t first) {
        const int64_t end = std::min<int64_t>(first + kStretch, step_.context_lengths[piece.tile.row]);
        for (int64_t i = 0; i < memory.end - memory.first; ++i)
            memory.after_values[memory.first + i] =
                a_.kv.keys + place_of(piece, std::min(first + i * kLanes, end - 1)).values;
        if (is_latent(a_.kv))
            std::copy(memory.after_values + memory.first, memory.after_values + memory.end,
                      memory.after_keys + memory.first);
        if constexpr (kIsInteger<Format>)
            for (int64_t position = first; position < end; position += a_.kv.block_size) {
                const int64_t numbers = kScaleParts<Format> * a_.kv.block_size;
                const int64_t at = place_of(piece, position).block_head * numbers;
                fetch(a_.kv.key_scales + at, numbers * sizeof(uint16_t));
                fetch(a_.kv.value_scales + at, numbers * sizeof(uint16_t));
            }
    }

    struct Place {
        int64_t block_head;  // block and head, counted together
        int64_t offset;      // the token in them
        int64_t bytes;       // where they begin
        int64_t values;      // where the token's values begin
    };

    Place place_of(Piece piece, int64_t position) const {
        const int32_t* table = step_.block_tables + piece.tile.row * static_cast<int64_t>(step_.table_width);
        const int64_t number = block_head(a_.kv, table[position >> block_shift_], is_latent(a_.kv) ? 0 : piece.head);
        const int64_t offset = position & (a_.kv.block_size - 1), bytes = number * block_bytes_;
        return {number, offset, bytes, bytes + offset / Format::kPerUnit * memory.value_step};
    }

    void widen_scales(Place place, int64_t key) {
        const int64_t at = place.block_head * kScaleParts<Format> * a_.kv.block_size + place.offset;
        if constexpr (kIsLatentBytes<Format>) {
            store(scales.values + key, load_fp16(a_.kv.value_scales + at));
            store(scales.keys + key, load_fp16(a_.kv.value_scales + at + a_.kv.block_size));
            return;
        }
        store(scales.keys + key, load_fp16(a_.kv.key_scales + at));
        store(scales.values + key, load_fp16(a_.kv.value_scales + at));
        if constexpr (kHasMinimum<Format>) {
            store(scales.key_minima + key, load_fp16(a_.kv.key_scales + at + a_.kv.block_size));
            store(scales.value_minima + key, load_fp16(a_.kv.value_scales + at + a_.kv.block_size));
        }
    }

    const Attention& a_;
    const Step& step_;
    const Piece piece_;
    const Piece next_;
    const int block_shift_;  // blocks have 2^block_shift_ tokens
    const int64_t block_bytes_;
};

}  // namespace penstock
