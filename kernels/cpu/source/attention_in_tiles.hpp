// The two products of a tile's rows in AMX tiles: with keys and with values, in pieces of tiles.
#pragma once
#include "attention_amx.hpp"
#include "attention_pairs.hpp"
#include "attention_rows.hpp"

#if defined(__AMX_TILE__)
namespace penstock {

template <class Format>
class TiledProducts {
public:
    // `context` is how many keys the rows' request has.
    TiledProducts(TileRows<Format>& rows, const StretchMemory& memory, int64_t block_size, int64_t context)
        : tile_(rows), memory_(memory), block_size_(block_size), context_(context) {}

    void carve(Carver& carver) {
        if (kIsInteger<Format>)
            whole_sums_ = carver.template take<float>(tiled_rows(tile_.num_rows) * Format::kPlanes * tile_.value_dim);
        else if constexpr (kIsPaired<Format>)
            pairs_.carve(carver.template take<uint8_t>(PairedStretch::bytes(tile_.head_dim)), tile_.head_dim);
        else copied_ = carver.template take<uint8_t>(kStretch * tile_.head_dim * sizeof(Number));
        if constexpr (kIsNibbles) {
            keys_ = carver.template take<uint8_t>(kStretch * tile_.head_dim);
            values_ = carver.template take<uint8_t>(kStretch * tile_.head_dim);
        }
    }

    // Keys that a step of weights × values takes: as many as fit a tile's row. Steps of bytes, exact whatever their
    // length, stay within a block.
    int64_t key_step() const {
        constexpr int64_t kStep = kTileBytes / sizeof(Number);
        return kIsInteger<Format> ? std::min(kStep, block_size_) : kStep;
    }

    // What is computed begins at a multiple of so many keys.
    int64_t alignment() const { return std::min(key_step(), block_size_); }

    Sight in_whole_steps(Sight seen) const {
        return {seen.first / key_step() * key_step(), round_up(seen.end, key_step())};
    }

    void score() {
        if constexpr (kIsNibbles) unpack_keys();
        if constexpr (kIsPaired<Format>) pairs_.take_keys(memory_);
        constexpr int64_t kStep = kTileBytes / sizeof(Number);
        const int64_t rest = tile_.scored_dim % kStep;
        const Tiles tiles(score_shapes(tile_.num_rows, rest * sizeof(Number)));
        over_row_tiles(tile_.num_rows, [&](int64_t tile, auto count) {
            const int64_t first = tile * kTileHeight;
            const Sight seen = tile_.seen_by(first, std::min(count() * kTileHeight, tile_.num_rows - first));
            if (seen.first >= seen.end) return;
            const int64_t begin = seen.first / kLanes, end = (seen.end + kLanes - 1) / kLanes;
            const auto score_with = [&](int64_t vector, auto columns, const StretchMemory& memory, const Number* queries,
                                        bool adds) {
                score_tiles<Tiled, count(), columns()>(memory, begin + vector, tile_.scored_dim,
                                                       queries + first * tile_.query_stride, tile_.scores_at(first),
                                                       first == 0 && !kIsPacked<Format>, adds);
            };
            const auto score = [&](int64_t vector, auto columns) {
                if constexpr (kIsPaired<Format>) {
                    score_with(vector, columns, pairs_.low, tile_.queries, false);
                    score_with(vector, columns, pairs_.high, tile_.queries, true);
                    score_with(vector, columns, pairs_.high, tile_.second.queries, true);
                } else score_with(vector, columns, multiplied(), tile_.queries, false);
            };
            if (rest) in_pieces<1>(end - begin, score);
            else in_pieces<2>(end - begin, score);
        });
    }

    void multiply_values(int64_t stretch, Sight whole) {
        if constexpr (kIsNibbles) unpack_values();
        if constexpr (kIsPaired<Format>) pairs_.take_values(memory_, whole, context_ - stretch * kStretch);
        const int64_t step = key_step();
        const CopiedValues copied = copy_values(stretch, whole);
        float* sums = kIsInteger<Format> ? whole_sums_ : tile_.sums;
        const Tiles tiles(value_shapes(tile_.num_rows, step * sizeof(Number)));
        over_row_tiles(tile_.num_rows, [&](int64_t tile, auto count) {
            const int64_t first = tile * kTileHeight;
            Sight seen = tile_.seen_by(first, std::min(count() * kTileHeight, tile_.num_rows - first));
            if (seen.first >= seen.end) return;
            seen = {seen.first / step * step, round_up(seen.end, step)};
            // `of_sums`: the plane of sums that a plane of weights is added to.
            const auto multiply = [&](const StretchMemory& memory, int64_t plane, int64_t of_sums) {
                constexpr int64_t kSumPlanes = kIsInteger<Format> ? Format::kPlanes : 1;
                const WeightRows<Tiled> rows{tile_.weights_at(first) + plane * kRowStride,
                                             Format::kPlanes * kRowStride,
                                             sums + (first * kSumPlanes + of_sums) * tile_.value_dim,
                                             kSumPlanes * tile_.value_dim, step};
                in_pieces<2>(tile_.value_dim / kLanes, [&](int64_t vector, auto columns) {
                    value_tiles<Tiled, count(), columns()>(memory, seen.first, seen.end, vector * kLanes, rows, copied,
                                                           first + plane == 0 && !kIsPacked<Format>);
                });
            };
            if constexpr (kIsPaired<Format>) {
                multiply(pairs_.low, 0, 0);
                multiply(pairs_.high, 0, 0);
                multiply(pairs_.high, 1, 0);
            } else {
                for (int64_t plane = 0; plane < Format::kPlanes; ++plane) multiply(multiplied(), plane, plane);
            }
        });
        if constexpr (kIsInteger<Format>)
            for (int64_t i = 0; i < tile_.num_rows; ++i) join_sums(i);
    }

private:
    using Number = typename Format::Number;
    using Tiled = std::conditional_t<kIsPacked<Format>, typename Format::Steps, Format>;  // what tiles multiply

    static constexpr bool kIsNibbles = kIsPacked<Format> && kIsInteger<Format>;

    const StretchMemory& multiplied() const { return kIsPacked<Format> ? unpacked_ : memory_; }

    // Nibbles become bytes once for all rows: those of a unit are two units of the format that is multiplied.
    void unpack_keys() {
        unpacked_.key_step = kVectorBytes;
        const int64_t num_units = tile_.scored_dim / Format::kPerUnit;
        for (int64_t vector = memory_.first; vector < memory_.end; ++vector) {
            uint8_t* to = keys_ + vector * kLanes * tile_.head_dim;
            const uint8_t *from = memory_.keys[vector], *ahead = memory_.after_keys[vector];
            unpacked_.keys[vector] = to;
            for (int64_t unit = 0; unit < num_units; ++unit, to += 2 * kVectorBytes) {
                const auto lanes = Format::load(from + unit * memory_.key_step);
                store_quads(to, lanes.low);
                store_quads(to + kVectorBytes, lanes.high);
                fetch_to_second(ahead + unit * kVectorBytes, kVectorBytes);
            }
        }
    }

    void unpack_values() {
        const int64_t row_bytes = unpacked_.value_step = memory_.value_step;
        for (int64_t vector = memory_.first; vector < memory_.end; ++vector) {
            uint8_t* to = values_ + vector * kLanes * tile_.head_dim;
            unpacked_.values[vector] = to;
            for (int64_t unit = 0; unit < kLanes / Format::kPerUnit; ++unit, to += 2 * row_bytes)
                for (int64_t at = 0; at < row_bytes; at += kVectorBytes) {
                    const int64_t offset = unit * row_bytes + at;
                    const auto lanes = Format::load(memory_.values[vector] + offset);
                    store_quads(to + at, lanes.low);
                    store_quads(to + row_bytes + at, lanes.high);
                    fetch_to_second(memory_.after_values[vector] + offset, kVectorBytes);
                }
        }
    }

    // Beyond the context a block may hold NaN, which no weight of zero takes away: the last step is copied if it reaches
    // there. So are all where a step takes more than one block.
    CopiedValues copy_values(int64_t stretch, Sight whole) {
        const int64_t context = context_ - stretch * kStretch;
        if (kIsInteger<Format> || kIsPaired<Format>) return {};
        const bool takes_several_blocks = block_size_ < key_step();
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
        const float* sums = whole_sums_ + i * Format::kPlanes * tile_.value_dim;
        for (int64_t d = 0; d < tile_.value_dim; d += kLanes)
            tile_.add_whole(i, d, join_planes(load_quads(sums + d), load_quads(sums + tile_.value_dim + d)));
    }

    TileRows<Format>& tile_;
    const StretchMemory& memory_;
    const int64_t block_size_;
    const int64_t context_;
    float* whole_sums_ = nullptr;  // [rows, planes, value_dim]: products of a stretch
    uint8_t* copied_ = nullptr;    // values in the order of steps
    // Of nibbles: a stretch's bytes, and where they lie.
    uint8_t *keys_ = nullptr, *values_ = nullptr;
    StretchMemory unpacked_;
#if defined(__AMX_BF16__)
    PairedStretch pairs_;
#endif
};

}  // namespace penstock
#endif
