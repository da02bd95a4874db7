// One tile of tokens and one key head: its query heads are the tile's rows.
//
// Stretch by stretch: scores of all rows, their weights, then weights × values, added to the split's sums. These are
// folded into what earlier splits gave, or left as a part for later. The rows are in attention_rows.hpp, the places of
// keys and values in attention_places.hpp, both products in attention_in_registers.hpp and attention_in_tiles.hpp,
// weights in attention_weights.hpp, and what the formats do differently in attention_formats.hpp. Of other tiles it
// knows only where the next one begins.
#pragma once
#include "attention_in_registers.hpp"
#include "attention_in_tiles.hpp"
#include "attention_latent_bytes.hpp"

namespace penstock {

using AttendTile = void(const Attention& attention, Piece piece, Piece next);
AttendTile attend_fp32, attend_fp16, attend_bf16, attend_int8, attend_uint4, attend_latent_bytes;

template <class Format>
class TileOfHead {
public:
    TileOfHead(const Attention& attention, Piece piece, Piece next)
        : a_(attention), piece_(piece), next_(next), places_(attention, piece, next), rows_(attention, piece) {
        Carver measure{nullptr};
        carve(measure);
        Carver carver{static_cast<uint8_t*>(thread_scratch(measure.used))};
        carve(carver);
    }

    void run() {
        rows_.prepare(a_, piece_);
        if (!leaves_parts()) std::fill(totals_, totals_ + rows_.num_rows * rows_.value_dim, 0.0f);
        for (int64_t split = piece_.tile.first_split; split < piece_.tile.end_split; ++split) attend_split(split);
        if (leaves_parts()) return;
        for (int64_t i = 0; i < rows_.num_rows; ++i) {
            const Row& row = rows_.rows[i];
            row.running.finish(output_of(a_, row.token, row.head), totals_of(i), rows_.value_dim);
        }
    }

private:
    void carve(Carver& carver) {
        int64_t reserved = rows_.num_rows;
#if defined(__AMX_TILE__)
        if (in_tiles_) {
            reserved = tiled_rows(rows_.num_rows);
            tiles_.carve(carver);
        }
#endif
        rows_.carve(carver, reserved);
        if (!leaves_parts()) totals_ = carver.template take<float>(rows_.num_rows * rows_.value_dim);
        if constexpr (!kIsPaired<Format>) registers_.carve(carver);
        if constexpr (kIsLatentBytes<Format>)
            latents_.carve(carver.template take<uint8_t>(LatentsAsKeys::bytes(rows_.head_dim)));
    }

    bool leaves_parts() const { return piece_.tile.leaves_parts; }
    float* totals_of(int64_t row) const { return totals_ + row * rows_.value_dim; }
    float* sums_of(int64_t row) const { return rows_.sums + row * rows_.value_dim; }

    void attend_split(int64_t split) {
        for (int64_t i = 0; i < rows_.num_rows; ++i) {
            rows_.rows[i].maximum = kLowest;
            rows_.rows[i].sum = 0;
        }
        std::fill(rows_.sums, sums_of(rows_.num_rows), 0.0f);
        const int64_t end = std::min(split_begin(split + 1) / kStretch, places_.end_stretch());
        for (int64_t stretch = split_begin(split) / kStretch; stretch < end; ++stretch) attend_stretch(stretch);
        for (int64_t i = 0; i < rows_.num_rows; ++i)
            if (rows_.rows[i].sees(split)) keep_split(i, split);
    }

    // A row's sums over a split: into its part, or into what all splits gave.
    void keep_split(int64_t i, int64_t split) {
        Row& row = rows_.rows[i];
        const float* sums = sums_of(i);
        const int64_t size = rows_.value_dim;
        if (!leaves_parts()) return row.running.fold(totals_of(i), sums, row.maximum, row.sum, size);
        float* part = part_of(a_, row.token, row.head, split);
        std::copy(sums, sums + size, part);
        part[size] = row.maximum;
        part[size + 1] = row.sum;
    }

    // What is computed begins and ends at multiples of so many keys.
    int64_t alignment() const {
#if defined(__AMX_TILE__)
        if constexpr (kHasTiles<Format>)
            if (in_tiles_) return tiles_.alignment();
#endif
        return WideSum::kWidth;
    }

    void attend_stretch(int64_t stretch) {
        Sight seen = rows_.look_at(stretch);
        seen.first = seen.first / alignment() * alignment();
        if (seen.first >= seen.end) return;
        places_.find(stretch, seen, alignment());
#if defined(__AMX_TILE__)
        if constexpr (kHasTiles<Format>)
            if (in_tiles_) return attend_in_tiles(stretch, tiles_.in_whole_steps(seen));
#endif
        if constexpr (!kIsPaired<Format>) {
            score(registers_);
            weigh_rows(stretch, seen);
            registers_.multiply_values();
        }
    }

#if defined(__AMX_TILE__)
    void attend_in_tiles(int64_t stretch, Sight whole) {
        score(tiles_);
        weigh_rows(stretch, whole);
        tiles_.multiply_values(stretch, whole);
    }
#endif

    // Latents in bytes and the rotated keys behind them have scales of their own, so their products stay apart.
    template <class Products>
    void score(Products& products) {
        if constexpr (kIsLatentBytes<Format>) latents_.lay_out(places_.memory, rows_.head_dim);
        products.score();
        if constexpr (kIsLatentBytes<Format>) {
            LatentsAsKeys::begin_at(places_.memory, rows_.value_dim);
            rows_.swap_rotated();
            products.score();
            rows_.swap_rotated();
        }
    }

    // All maxima come first, for what follows waits for its row's. In the last stretch what comes next is fetched meanwhile:
    // where the row's output goes, and a query of the next piece.
    void weigh_rows(int64_t stretch, Sight seen) {
        const bool is_last = stretch + 1 == places_.end_stretch();
        const int64_t num_next = next_.tile.num_tokens * a_.plan->num_shared, size = rows_.value_dim;
        for (int64_t i = 0; i < rows_.num_rows; ++i) {
            Row& row = rows_.rows[i];
            if (is_last && !leaves_parts())
                fetch_to_second(output_of(a_, row.token, row.head), size * sizeof(float));
            if (is_last && i < num_next) fetch_to_second(query_of(a_, next_, i), rows_.head_dim * sizeof(float));
            take_maximum<Format>(row, rows_.scores_at(i), places_.scales, a_.softcap * kLog2OfE, sums_of(i), size);
        }
        for (int64_t i = 0; i < rows_.num_rows; ++i)
            weigh<Format>(rows_.rows[i], rows_.scores_at(i), rows_.weights_at(i), seen, places_.scales);
    }

    const Attention& a_;
    const Piece piece_;
    const Piece next_;
    Places<Format> places_;
    TileRows<Format> rows_;
    RegisterProducts<Format> registers_{rows_, places_.memory, is_latent(a_.kv)};
#if defined(__AMX_TILE__)
    const bool in_tiles_ = rows_.num_rows >= Format::kFewestForTiles && (kIsInteger<Format> || !is_latent(a_.kv));
    TiledProducts<Format> tiles_{rows_, places_.memory, a_.kv.block_size,
                                 a_.plan->step->context_lengths[piece_.tile.row]};
#endif
    LatentsAsKeys latents_;
    float* totals_ = nullptr;  // [rows, value_dim]: what all splits so far gave
};

}  // namespace penstock
