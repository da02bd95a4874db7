// One tile of tokens and one key head: its query heads are the tile's rows.
//
// Stretch by stretch: scores of all rows, their weights, then weights × values, added to the split's sums. These are
// folded into what earlier splits gave, or left as a part for later. Both products are in attention_products.hpp, weights
// in attention_weights.hpp, and what the formats do differently in attention_formats.hpp. Of other tiles it knows only
// where the next one begins.
#pragma once
#include "attention_amx.hpp"
#include "attention_latent.hpp"
#include "attention_products.hpp"
#include "attention_weights.hpp"
#include "pool.hpp"

namespace penstock {

// A tile and a key head: what a thread does at a time.
struct Piece {
    const Tile& tile;
    int64_t head;
};

// `next` is the piece that the thread probably does afterwards.
using AttendTile = void(const Attention& attention, Piece piece, Piece next);
AttendTile attend_fp32, attend_fp16, attend_bf16, attend_int8, attend_uint4;

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
class TileOfHead {
public:
    TileOfHead(const Attention& attention, Piece piece, Piece next)
        : a_(attention),
          step_(*attention.plan->step),
          tile_(piece.tile),
          key_head_(piece.head),
          next_(next),
          head_dim_(attention.kv.head_dim),
          value_dim_(attention.kv.value_dim),
          query_stride_(is_latent(attention.kv) ? round_up(head_dim_, kLatentStep) : kQueryStride<Number>),
          num_rows_(tile_.num_tokens * attention.plan->num_shared),
          block_shift_(__builtin_ctzll(attention.kv.block_size)),
          block_bytes_(bytes_of_block_head(attention.kv)),
          in_tiles_(num_rows_ >= Format::kFewestForTiles && !is_latent(attention.kv)) {
        Carver measure{nullptr};
        carve(measure);
        Carver carver{static_cast<uint8_t*>(thread_scratch(measure.used))};
        carve(carver);
    }

    void run() {
        prepare_rows();
        for (int64_t split = tile_.first_split; split < tile_.end_split; ++split) attend_split(split);
        if (tile_.leaves_parts) return;
        for (int64_t i = 0; i < num_rows_; ++i) {
            const Row& row = rows_[i];
            row.running.finish(output_of(a_, row.token, row.head), totals_ + i * value_dim_, value_dim_);
        }
    }

private:
    using Number = typename Format::Number;
    using Steps = typename Format::Steps;
    using Sizes = TileSizes<Format>;

    void carve(Carver& carver) {
        rows_ = carver.template take<Row>(num_rows_);
        int64_t rows = num_rows_;
#if defined(__AMX_TILE__)
        if (in_tiles_) {
            rows = tiled_rows(num_rows_);
            if (kIsInteger<Format>) whole_sums_ = carver.template take<float>(rows * Format::kPlanes * head_dim_);
            else copied_ = carver.template take<uint8_t>(kStretch * head_dim_ * sizeof(Number));
        }
#endif
        queries_ = carver.template take<Number>(rows * query_stride_);
        scores_ = carver.template take<float>(rows * kRowStride);
        if constexpr (std::is_same_v<Number, float>) weights_ = scores_;
        else weights_ = carver.template take<Number>(rows * Format::kPlanes * kRowStride);
        sums_ = carver.template take<float>(rows * value_dim_);
        if (!tile_.leaves_parts) totals_ = carver.template take<float>(num_rows_ * value_dim_);
        if (is_unpacked())
            panel_ = carver.template take<float>(std::max(head_dim_, kStretch) / Format::kPerUnit * Format::kSteps *
                                                 Sizes::kPanelColumns * kLanes);
    }

    // Rows enough for a panel.
    bool is_unpacked() const { return kIsPacked<Format> && num_rows_ > Sizes::kRows; }

    void prepare_rows() {
        const int64_t shared = a_.plan->num_shared;
        for (int64_t i = 0; i < num_rows_; ++i) {
            Row& row = rows_[i] = Row{};
            row.token = a_.plan->tile_tokens[tile_.first_token + i / shared];
            row.head = key_head_ * shared + i % shared;
            row.sight = sight_of(step_, row.token, a_.plan->window);
            row.running = beginning_of(a_, row.head);
            const float* query = query_of({tile_, key_head_}, i);
            if constexpr (kIsInteger<Format>) quantize_query(query, row, i);
            else scale_query(query, i);
        }
        if (!tile_.leaves_parts) std::fill(totals_, totals_ + num_rows_ * value_dim_, 0.0f);
    }

    void scale_query(const float* query, int64_t i) {
        Number* to = queries_ + i * query_stride_;
        for (int64_t d = 0; d < head_dim_; d += kLanes)
            Format::store_numbers(to + d, load(query + d) * broadcast(query_factor(a_)));
        if (is_latent(a_.kv)) {
            std::fill(to + head_dim_, to + query_stride_, Number{0});
            for (int64_t d = 0; d < query_stride_; d += kLatentStep) LatentKeys<Format>::order_query(to + d);
        }
    }

    void quantize_query(const float* query, Row& row, int64_t i) {
        Number* to = queries_ + i * query_stride_;
        Vec most = zero(), poison = zero();
        for (int64_t d = 0; d < head_dim_; d += kLanes) {
            most = maximum(absolute(load(query + d)), most);
            poison = fma(load(query + d), zero(), poison);  // NaN where a number is not finite
        }
        const float largest_number = largest(most);
        const Vec inverse = broadcast(largest_number > 0 ? 127.0f / largest_number : 0.0f);
        int32_t total = 0;
        for (int64_t d = 0; d < head_dim_; d += kLanes) Format::store_query(to + d, load(query + d) * inverse);
        for (int64_t d = 0; d < head_dim_; ++d) total += Format::whole(to[d]);
        row.query_scale = (largest_number / 127.0f + sum(poison)) * query_factor(a_);
        row.query_total = static_cast<float>(total);
    }

    void attend_split(int64_t split) {
        for (int64_t i = 0; i < num_rows_; ++i) {
            rows_[i].maximum = kLowest;
            rows_[i].sum = 0;
        }
        std::fill(sums_, sums_ + num_rows_ * value_dim_, 0.0f);
        const int64_t end = std::min(split_begin(split + 1) / kStretch, end_stretch());
        for (int64_t stretch = split_begin(split) / kStretch; stretch < end; ++stretch) attend_stretch(stretch);
        for (int64_t i = 0; i < num_rows_; ++i)
            if (rows_[i].sees(split)) keep_split(i, split);
    }

    // A row's sums over a split: into its part, or into what all splits gave.
    void keep_split(int64_t i, int64_t split) {
        Row& row = rows_[i];
        const float* sums = sums_ + i * value_dim_;
        if (!tile_.leaves_parts) return row.running.fold(totals_ + i * value_dim_, sums, row.maximum, row.sum, value_dim_);
        float* part = part_of(a_, row.token, row.head, split);
        std::copy(sums, sums + value_dim_, part);
        part[value_dim_] = row.maximum;
        part[value_dim_ + 1] = row.sum;
    }

    int64_t end_stretch() const {
        const int64_t context = step_.context_lengths[tile_.row];
        return std::min(split_begin(tile_.end_split) / kStretch, (context + kStretch - 1) / kStretch);
    }

    // The part of a stretch that a row sees, and of all rows the union.
    Sight look_at(int64_t stretch) {
        Sight all{kStretch, 0};
        for (int64_t i = 0; i < num_rows_; ++i) {
            Row& row = rows_[i];
            row.first = std::clamp<int64_t>(row.sight.first - stretch * kStretch, 0, kStretch);
            row.end = std::clamp<int64_t>(row.sight.end - stretch * kStretch, 0, kStretch);
            if (!row.sees()) continue;
            all = {std::min(all.first, row.first), std::max(all.end, row.end)};
        }
        return {all.first / alignment() * alignment(), all.end};
    }

    // What is computed begins and ends at multiples of so many keys.
    int64_t alignment() const {
#if defined(__AMX_TILE__)
        if constexpr (kHasTiles<Format>)
            if (in_tiles_) return std::min(key_step(), a_.kv.block_size);
#endif
        return WideSum::kWidth;
    }

    float* scores_at(int64_t row) const { return scores_ + row * kRowStride; }
    Number* weights_at(int64_t row) const { return weights_ + row * Format::kPlanes * kRowStride; }

    void attend_stretch(int64_t stretch) {
        const Sight seen = look_at(stretch);
        if (seen.first >= seen.end) return;
        find(stretch, seen);
#if defined(__AMX_TILE__)
        if constexpr (kHasTiles<Format>)
            if (in_tiles_) return attend_in_tiles(stretch, seen);
#endif
        score();
        for (int64_t i = 0; i < num_rows_; ++i) weigh_row(i, stretch, seen);
        multiply_values();
    }

    // In the last stretch what comes next is fetched meanwhile: where the row's output goes, and a query of the next piece.
    void weigh_row(int64_t i, int64_t stretch, Sight seen) {
        Row& row = rows_[i];
        if (stretch + 1 == end_stretch()) {
            const int64_t shared = a_.plan->num_shared;
            if (!tile_.leaves_parts) fetch_to_second(output_of(a_, row.token, row.head), value_dim_ * sizeof(float));
            if (i < next_.tile.num_tokens * shared) fetch_to_second(query_of(next_, i), head_dim_ * sizeof(float));
        }
        weigh<Format>(row, scores_at(i), weights_at(i), seen, scales_, a_.softcap * kLog2OfE, sums_ + i * value_dim_,
                      value_dim_);
    }

    const float* query_of(Piece piece, int64_t i) const {
        const int64_t shared = a_.plan->num_shared, head = piece.head * shared + i % shared;
        const int64_t token = a_.plan->tile_tokens[piece.tile.first_token + i / shared];
        return a_.query + token * a_.query_stride + head * a_.query_step;
    }

#if defined(__AMX_TILE__)
    // Keys that a step of weights × values takes: as many as fit a tile's row. Steps of bytes, exact whatever their
    // length, stay within a block.
    int64_t key_step() const {
        constexpr int64_t kStep = kTileBytes / sizeof(Number);
        return kIsInteger<Format> ? std::min(kStep, a_.kv.block_size) : kStep;
    }

    void attend_in_tiles(int64_t stretch, Sight seen) {
        score_in_tiles();
        const Sight whole{seen.first / key_step() * key_step(), round_up(seen.end, key_step())};
        for (int64_t i = 0; i < num_rows_; ++i) weigh_row(i, stretch, whole);
        multiply_values_in_tiles(stretch, whole);
        if constexpr (kIsInteger<Format>)
            for (int64_t i = 0; i < num_rows_; ++i) join_sums(i);
    }

    void score_in_tiles() {
        constexpr int64_t kStep = kTileBytes / sizeof(Number);
        const int64_t rest = head_dim_ % kStep;
        const Tiles tiles(score_shapes(num_rows_, rest * sizeof(Number)));
        over_row_tiles(num_rows_, [&](int64_t tile, auto count) {
            const int64_t first = tile * kTileHeight;
            const Sight seen = seen_by(first, std::min(count() * kTileHeight, num_rows_ - first));
            if (seen.first >= seen.end) return;
            const int64_t begin = seen.first / kLanes, end = (seen.end + kLanes - 1) / kLanes;
            const auto score = [&](int64_t vector, auto columns) {
                score_tiles<Format, count(), columns()>(memory_, begin + vector, head_dim_,
                                                        queries_ + first * query_stride_, scores_at(first), first == 0);
            };
            if (rest) in_pieces<1>(end - begin, score);
            else in_pieces<2>(end - begin, score);
        });
    }

    void multiply_values_in_tiles(int64_t stretch, Sight whole) {
        const int64_t step = key_step();
        const CopiedValues copied = copy_values(stretch, whole);
        float* sums = kIsInteger<Format> ? whole_sums_ : sums_;
        const Tiles tiles(value_shapes(num_rows_, step * sizeof(Number)));
        over_row_tiles(num_rows_, [&](int64_t tile, auto count) {
            const int64_t first = tile * kTileHeight;
            Sight seen = seen_by(first, std::min(count() * kTileHeight, num_rows_ - first));
            if (seen.first >= seen.end) return;
            seen = {seen.first / step * step, round_up(seen.end, step)};
            for (int64_t plane = 0; plane < Format::kPlanes; ++plane) {
                const WeightRows<Format> rows{weights_at(first) + plane * kRowStride,
                                              Format::kPlanes * kRowStride,
                                              sums + (first * Format::kPlanes + plane) * head_dim_,
                                              Format::kPlanes * head_dim_, step};
                in_pieces<2>(head_dim_ / kLanes, [&](int64_t vector, auto columns) {
                    value_tiles<Format, count(), columns()>(memory_, seen.first, seen.end, vector * kLanes, rows,
                                                            copied, first + plane == 0);
                });
            }
        });
    }

    // Beyond the context a block may hold NaN, which no weight of zero takes away: the last step is copied if it reaches
    // there. So are all where a step takes more than one block.
    CopiedValues copy_values(int64_t stretch, Sight whole) {
        const int64_t context = step_.context_lengths[tile_.row] - stretch * kStretch;
        if (kIsInteger<Format>) return {};
        const bool takes_several_blocks = a_.kv.block_size < key_step();
        if (!takes_several_blocks && whole.end <= context) return {};
        const int64_t first = takes_several_blocks ? whole.first : whole.end - key_step();
        const int64_t bytes = kLanes / Format::kPerUnit * memory_.value_step;  // of a vector of keys
        uint8_t* to = copied_;
        for (int64_t key = first; key < whole.end; key += kLanes, to += bytes) {
            const int64_t vector = key / kLanes, count = std::clamp<int64_t>(context - key, 0, kLanes);
            const bool is_there = vector >= memory_.first && vector < memory_.end && count > 0;
            std::memset(to, 0, bytes);
            if (is_there) copy_first(to, memory_.values[vector], count);
        }
        return {copied_, first};
    }

    // The values of the first keys of a vector; of a unit that has one more, only the first number.
    void copy_first(uint8_t* to, const uint8_t* from, int64_t count) const {
        const int64_t whole = count / Format::kPerUnit * memory_.value_step;
        std::memcpy(to, from, whole);
        if (count % Format::kPerUnit)
            for (int64_t i = whole; i < whole + memory_.value_step; i += kLanes * 4)
                store_quads(to + i, only_first_of_pairs(load_quads(from + i)));
    }

    // A row's whole sums, as the tiles left them.
    void join_sums(int64_t i) {
        const float* sums = whole_sums_ + i * Format::kPlanes * head_dim_;
        for (int64_t d = 0; d < head_dim_; d += kLanes)
            add_whole(i, d, join_planes(load_quads(sums + d), load_quads(sums + head_dim_ + d)));
    }
#endif

    // Where the stretch's keys and values lie, and their scales.
    void find(int64_t stretch, Sight seen) {
        memory_.key_step = a_.kv.block_size * Format::kUnitBytes;
        memory_.value_step = head_dim_ * Format::kUnitBytes;
        memory_.first = seen.first / kLanes;
        memory_.end = round_up(seen.end, alignment()) / kLanes;
        for (int64_t vector = memory_.first; vector < memory_.end; ++vector) {
            const int64_t key = vector * kLanes;
            const Place place = place_of(tile_, key_head_, stretch * kStretch + key);
            memory_.keys[vector] = a_.kv.keys + place.bytes + place.offset * Format::kUnitBytes;
            memory_.values[vector] = memory_.after_keys[vector] = a_.kv.values + place.values;
            if constexpr (kIsInteger<Format>) widen_scales(place, key);
        }
        if (stretch + 1 < end_stretch()) fetch_following({tile_, key_head_}, (stretch + 1) * kStretch);
        else fetch_following(next_, split_begin(next_.tile.first_split));
    }

    // The stretch that begins there: its keys are fetched with the values before them, its scales at once.
    void fetch_following(Piece piece, int64_t first) {
        const int64_t end = std::min<int64_t>(first + kStretch, step_.context_lengths[piece.tile.row]);
        for (int64_t i = 0; i < memory_.end - memory_.first; ++i)
            memory_.after_values[memory_.first + i] =
                a_.kv.keys + place_of(piece.tile, piece.head, std::min(first + i * kLanes, end - 1)).values;
        if (is_latent(a_.kv))
            std::copy(memory_.after_values + memory_.first, memory_.after_values + memory_.end,
                      memory_.after_keys + memory_.first);
        if constexpr (kIsInteger<Format>)
            for (int64_t position = first; position < end; position += a_.kv.block_size) {
                const int64_t numbers = (kHasMinimum<Format> ? 2 : 1) * a_.kv.block_size;
                const int64_t at = place_of(piece.tile, piece.head, position).block_head * numbers;
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

    Place place_of(const Tile& tile, int64_t head, int64_t position) const {
        const int32_t* table = step_.block_tables + tile.row * static_cast<int64_t>(step_.table_width);
        const int64_t number = block_head(a_.kv, table[position >> block_shift_], is_latent(a_.kv) ? 0 : head);
        const int64_t offset = position & (a_.kv.block_size - 1), bytes = number * block_bytes_;
        return {number, offset, bytes, bytes + offset / Format::kPerUnit * memory_.value_step};
    }

    void widen_scales(Place place, int64_t key) {
        constexpr int64_t kParts = kHasMinimum<Format> ? 2 : 1;
        const int64_t at = place.block_head * kParts * a_.kv.block_size + place.offset;
        store(scales_.keys + key, load_fp16(a_.kv.key_scales + at));
        store(scales_.values + key, load_fp16(a_.kv.value_scales + at));
        if constexpr (kHasMinimum<Format>) {
            store(scales_.key_minima + key, load_fp16(a_.kv.key_scales + at + a_.kv.block_size));
            store(scales_.value_minima + key, load_fp16(a_.kv.value_scales + at + a_.kv.block_size));
        }
    }

    // The keys that any of these rows sees.
    Sight seen_by(int64_t first_row, int64_t count) const {
        Sight all{kStretch, 0};
        for (const Row* row = rows_ + first_row; row < rows_ + first_row + count; ++row)
            if (row->sees()) all = {std::min(all.first, row->first), std::max(all.end, row->end)};
        return {all.first / kLanes * kLanes, all.end};
    }

    void score() {
        if constexpr (!kIsInteger<Format>)
            if (is_latent(a_.kv)) return score_latents();
        if constexpr (kIsPacked<Format>)
            if (is_unpacked()) return score_unpacked();
        if (num_rows_ <= Sizes::kFewestRows) score<Sizes::kFewestRows, Sizes::kFewestRowColumns>();
        else if (num_rows_ <= Sizes::kFewRows) score<Sizes::kFewRows, Sizes::kFewRowColumns>();
        else score<Sizes::kRows, Sizes::kColumns>();
    }

    // Calls body(first row, count, vectors of the piece that they see) for pieces of the rows.
    template <int kRows, class Body>
    void over_seeing_rows(int64_t vector, int64_t columns, const Body& body) {
        in_pieces<kRows>(num_rows_, [&](int64_t row, auto count) {
            const Sight seen = seen_by(row, count());
            if (seen.end <= vector * kLanes || seen.first >= (vector + columns) * kLanes) return;
            body(row, count, std::min((seen.end + kLanes - 1) / kLanes - vector, columns));
        });
    }

    template <int kRows, int kColumns>
    void score() {
        in_pieces<kColumns>(memory_.end - memory_.first, [&](int64_t offset, auto columns) {
            const int64_t vector = memory_.first + offset;
            over_seeing_rows<kRows>(vector, columns(), [&](int64_t row, auto count, int64_t num_seen) {
                const auto score_columns = [&](int64_t column, auto some) {
                    score_tile<Format, count(), some()>(memory_, vector + column, head_dim_,
                                                        queries_ + row * query_stride_, scores_at(row), row == 0);
                };
                if (num_seen == columns()) score_columns(0, columns);
                else in_pieces<(columns() + 1) / 2>(num_seen, score_columns);
            });
        });
    }

    void score_unpacked() {
        in_pieces<Sizes::kPanelColumns>(memory_.end - memory_.first, [&](int64_t offset, auto columns) {
            const int64_t vector = memory_.first + offset;
            unpack_keys<Format, columns()>(memory_, vector, head_dim_, panel_);
            over_seeing_rows<TileSizes<Steps>::kRows>(vector, columns(), [&](int64_t row, auto count, int64_t) {
                panel_tile<Steps, Side::kKeys, count(), columns()>(
                    panel_, head_dim_ / Steps::kPerUnit, queries_ + row * query_stride_, kQueryStride<Number>,
                    [](int, int) { return no_sum<typename Format::Sum>(); },
                    [&](int i, int column, auto sum) {
                        store_score(scores_at(row), i, (vector + column) * kLanes, sum);
                    });
            });
        });
    }

    void score_latents() {
        for (int64_t vector = memory_.first; vector < memory_.end; ++vector)
            in_pieces<kMostLatentRows>(num_rows_, [&](int64_t row, auto count) {
                const Sight of_rows = seen_by(row, count());
                if (of_rows.end <= vector * kLanes || of_rows.first >= (vector + 1) * kLanes) return;
                latent_score_tile<Format, count()>(memory_, vector, head_dim_, queries_ + row * query_stride_,
                                                   query_stride_, scores_at(row), row == 0);
            });
    }

    void multiply_values() {
        const int64_t planes = num_rows_ * Format::kPlanes;
        if constexpr (kIsPacked<Format>)
            if (is_unpacked()) return multiply_unpacked_values();
        if (planes <= Sizes::kFewestRows) multiply_values<Sizes::kFewestRows, Sizes::kFewestRowColumns>();
        else if (planes <= Sizes::kFewRows) multiply_values<Sizes::kFewRows, Sizes::kFewRowColumns>();
        else multiply_values<Sizes::kRows, Sizes::kColumns>();
    }

    // Calls body(first row, count, keys that they see) for pieces of the rows.
    template <int kRows, class Body>
    void over_weighted_rows(const Body& body) {
        in_pieces<kRows / Format::kPlanes>(num_rows_, [&](int64_t row, auto count) {
            const Sight seen = seen_by(row, count());
            if (seen.first < seen.end) body(row, count, seen);
        });
    }

    template <int kRows, int kColumns>
    void multiply_values() {
        in_pieces<kColumns>(value_dim_ / kLanes, [&](int64_t vector, auto columns) {
            over_weighted_rows<kRows>([&](int64_t row, auto count, Sight seen) {
                value_tile<Format, count() * Format::kPlanes, columns()>(
                    memory_, seen.first, seen.end, vector * kLanes, weights_at(row), row == 0,
                    sums_before(row, vector), sums_after<columns()>(row, vector));
            });
        });
    }

    void multiply_unpacked_values() {
        const Sight all{memory_.first * kLanes, seen_by(0, num_rows_).end};
        in_pieces<Sizes::kPanelColumns>(value_dim_ / kLanes, [&](int64_t vector, auto columns) {
            unpack_values<Format, columns()>(memory_, all.first, all.end, vector * kLanes, panel_);
            over_weighted_rows<TileSizes<Steps>::kRows>([&](int64_t row, auto count, Sight seen) {
                constexpr int64_t kPer = Format::kPerUnit;
                const int64_t before = (seen.first - all.first) / kPer, units = (seen.end - seen.first + kPer - 1) / kPer;
                panel_tile<Steps, Side::kValues, count() * Format::kPlanes, columns()>(
                    panel_ + before * Format::kSteps * columns() * kLanes, units * Format::kSteps,
                    weights_at(row) + seen.first, kRowStride, sums_before(row, vector),
                    sums_after<columns()>(row, vector));
            });
        });
    }

    // What a register tile of rows from `first_row` and vectors of dimensions from `vector` begins with.
    auto sums_before(int64_t first_row, int64_t vector) const {
        const float* sums = sums_ + first_row * value_dim_ + vector * kLanes;
        return [sums, stride = value_dim_](int row, int column) {
            if constexpr (kIsInteger<Format>) return zero_quads();
            else return load(sums + row * stride + column * kLanes);
        };
    }

    // Where it goes; planes are joined when both are there.
    template <int kColumns>
    auto sums_after(int64_t first_row, int64_t vector) {
        return [this, first_row, vector](int row, int column, auto sum) {
            const int64_t dimension = (vector + column) * kLanes;
            if constexpr (kIsInteger<Format>) add_whole(first_row + row, dimension, sum);
            else if (rows_[first_row + row].sees()) store(sums_ + (first_row + row) * value_dim_ + dimension, sum);
        };
    }

    // A row's whole sums over a stretch.
    void add_whole(int64_t i, int64_t dimension, Quads whole) {
        const Row& row = rows_[i];
        if (!row.sees()) return;
        float* to = sums_ + i * value_dim_ + dimension;
        const Vec sums = fma(to_float(whole), broadcast(row.weight_scale), load(to));
        if constexpr (kHasMinimum<Format>) store(to, sums + broadcast(row.minimum_share));
        else store(to, sums);
    }

    const Attention& a_;
    const Step& step_;
    const Tile& tile_;
    const int64_t key_head_;
    const Piece next_;
    const int64_t head_dim_;
    const int64_t value_dim_;
    const int64_t query_stride_;  // from row to row of the queries
    const int64_t num_rows_;
    const int block_shift_;  // blocks have 2^block_shift_ tokens
    const int64_t block_bytes_;
    Row* rows_;
    Number* queries_;   // [rows, query_stride] as the format multiplies them
    float* scores_;     // [rows, kRowStride]
    Number* weights_;   // [rows, planes, kRowStride] as the format multiplies them; of floats in the scores' place
    float* sums_;       // [rows, value_dim]: what the split at hand gave so far
    float* totals_ = nullptr;  // [rows, value_dim]: what all splits so far gave
    const bool in_tiles_;
    float* panel_ = nullptr;   // keys or values as they are multiplied
    float* whole_sums_ = nullptr;  // [rows, planes, head_dim]: products of a stretch in tiles
    uint8_t* copied_ = nullptr;  // values in the order of steps
    StretchMemory memory_;
    StretchScales scales_;
};

}  // namespace penstock
