// The rows of a tile for one key head, and what a thread keeps of them: queries, scores, weights and sums.
#pragma once
#include "attention_latent.hpp"
#include "attention_places.hpp"
#include "pool.hpp"

namespace penstock {

// Hands out pieces of a thread's scratch; measured first, with no memory behind it.
struct Carver {
    uint8_t* memory;
    int64_t used = 0;
    template <class T>
    T* take(int64_t count) {
        T* piece = reinterpret_cast<T*>(memory + used);
        used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
        return piece;
    }
};

template <class Format>
struct TileRows {
    using Number = typename Format::Number;

    TileRows(const Attention& a, Piece piece)
        : num_rows(piece.tile.num_tokens * a.plan->num_shared),
          head_dim(a.kv.head_dim),
          value_dim(a.kv.value_dim),
          query_stride(is_latent(a.kv) && !kIsInteger<Format> ? round_up(head_dim, kLatentStep) : kQueryStride<Number>),
          scored_dim(kIsLatentBytes<Format> ? value_dim : head_dim) {}

    // `reserved` rows, for products that fill them up to whole tiles.
    void carve(Carver& carver, int64_t reserved) {
        rows = carver.template take<Row>(num_rows);
        queries = carver.template take<Number>(reserved * query_stride);
        scores = carver.template take<float>(reserved * kRowStride);
        if constexpr (kIsLatentBytes<Format> || kIsPaired<Format>)
            second.queries = carver.template take<Number>(reserved * query_stride);
        if constexpr (kIsLatentBytes<Format>) second.scores = carver.template take<float>(reserved * kRowStride);
        if constexpr (std::is_same_v<Number, float>) weights = scores;
        else weights = carver.template take<Number>(reserved * Format::kPlanes * kRowStride);
        sums = carver.template take<float>(reserved * value_dim);
    }

    void prepare(const Attention& a, Piece piece) {
        const int64_t shared = a.plan->num_shared;
        for (int64_t i = 0; i < num_rows; ++i) {
            Row& row = rows[i] = Row{};
            row.token = a.plan->tile_tokens[piece.tile.first_token + i / shared];
            row.head = piece.head * shared + i % shared;
            row.sight = sight_of(*a.plan->step, row.token, a.plan->window);
            row.running = beginning_of(a, row.head);
            const float* query = query_of(a, piece, i);
            if constexpr (kIsInteger<Format>) quantize_query(query, query_factor(a), i);
            else scale_query(query, query_factor(a), is_latent(a.kv), i);
        }
    }

    // Puts what meets the rotated keys in the place of what meets latents, or back.
    void swap_rotated() {
        std::swap(queries, second.queries);
        std::swap(scores, second.scores);
        std::swap(scored_dim, second.dim);
    }

    float* scores_at(int64_t row) const { return scores + row * kRowStride; }
    Number* weights_at(int64_t row) const { return weights + row * Format::kPlanes * kRowStride; }

    // Remembers the part of a stretch that each row sees, and gives the union.
    Sight look_at(int64_t stretch) {
        Sight all{kStretch, 0};
        for (Row* row = rows; row < rows + num_rows; ++row) {
            row->first = std::clamp<int64_t>(row->sight.first - stretch * kStretch, 0, kStretch);
            row->end = std::clamp<int64_t>(row->sight.end - stretch * kStretch, 0, kStretch);
            if (row->sees()) all = {std::min(all.first, row->first), std::max(all.end, row->end)};
        }
        return all;
    }

    // The keys that any of these rows sees.
    Sight seen_by(int64_t first_row, int64_t count) const {
        Sight all{kStretch, 0};
        for (const Row* row = rows + first_row; row < rows + first_row + count; ++row)
            if (row->sees()) all = {std::min(all.first, row->first), std::max(all.end, row->end)};
        return {all.first / kLanes * kLanes, all.end};
    }

    // A row's whole sums over a stretch.
    void add_whole(int64_t i, int64_t dimension, Quads whole) {
        const Row& row = rows[i];
        if (!row.sees()) return;
        float* to = sums + i * value_dim + dimension;
        const Vec sums = fma(to_float(whole), broadcast(row.weight_scale), load(to));
        if constexpr (kHasMinimum<Format>) store(to, sums + broadcast(row.minimum_share));
        else store(to, sums);
    }

    const int64_t num_rows;
    const int64_t head_dim;
    const int64_t value_dim;
    const int64_t query_stride;  // from row to row of the queries
    int64_t scored_dim;          // numbers of a query that are multiplied at a time
    Row* rows;
    Number* queries;  // [rows, query_stride] as the format multiplies them
    float* scores;    // [rows, kRowStride]
    Number* weights;  // [rows, planes, kRowStride] as the format multiplies them; of floats in the scores' place
    float* sums;      // [rows, value_dim]: what the split at hand gave so far
    struct {
        Number* queries;
        float* scores;
        int64_t dim;
    } second;  // of latents in bytes what meets the rotated keys behind them; of pairs the queries' rests

private:
    void scale_query(const float* query, float factor, bool latent, int64_t i) {
        Number* to = queries + i * query_stride;
        for (int64_t d = 0; d < head_dim; d += kLanes) {
            const Vec x = load(query + d) * broadcast(factor);
            if constexpr (kIsPaired<Format>) store_whole_and_rest(to + d, second.queries + i * query_stride + d, x);
            else Format::store_numbers(to + d, x);
        }
        if constexpr (!kIsPaired<Format>) {
            if (!latent) return;
            std::fill(to + head_dim, to + query_stride, Number{0});
            for (int64_t d = 0; d < query_stride; d += kLatentStep) LatentKeys<Format>::order_query(to + d);
        }
    }

    void quantize_query(const float* query, float factor, int64_t i) {
        Row& row = rows[i];
        quantize_numbers(query, scored_dim, factor, queries + i * query_stride, row.query_scale, row.query_total);
        if constexpr (kIsLatentBytes<Format>) {
            second.dim = head_dim - value_dim;
            row.rotated_scores = second.scores + i * kRowStride;
            quantize_numbers(query + value_dim, second.dim, factor, second.queries + i * query_stride, row.rotated_scale,
                             row.rotated_total);
        }
    }

    static void quantize_numbers(const float* query, int64_t count, float factor, Number* to, float& scale, float& sum_of_all) {
        Vec most = zero(), poison = zero();
        for (int64_t d = 0; d < count; d += kLanes) {
            most = maximum(absolute(load(query + d)), most);
            poison = fma(load(query + d), zero(), poison);  // NaN where a number is not finite
        }
        const float largest_number = largest(most);
        const Vec inverse = broadcast(largest_number > 0 ? 127.0f / largest_number : 0.0f);
        int32_t total = 0;
        for (int64_t d = 0; d < count; d += kLanes) Format::store_query(to + d, load(query + d) * inverse);
        for (int64_t d = 0; d < count; ++d) total += Format::whole(to[d]);
        scale = (largest_number / 127.0f + sum(poison)) * factor;
        sum_of_all = static_cast<float>(total);
    }
};

}  // namespace penstock
