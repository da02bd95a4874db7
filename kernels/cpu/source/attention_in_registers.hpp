// The two products of a tile's rows in registers: with keys and with values, in pieces of rows and vectors.
#pragma once
#include "attention_rows.hpp"

namespace penstock {

template <class Format>
class RegisterProducts {
public:
    RegisterProducts(TileRows<Format>& rows, const StretchMemory& memory, bool is_latent)
        : tile_(rows), memory_(memory), is_latent_(is_latent) {}

    void carve(Carver& carver) {
        pieces_ = carver.template take<Sight>(tile_.num_rows);
        if (is_unpacked())
            panel_ = carver.template take<float>(std::max(tile_.head_dim, kStretch) / Format::kPerUnit *
                                                 Format::kSteps * Sizes::kPanelColumns * kLanes);
    }

    void score() {
        if constexpr (!kIsInteger<Format>)
            if (is_latent_) return score_latents();
        if constexpr (kHasPanel<Format>)
            if (is_unpacked()) return score_unpacked();
        if (tile_.num_rows <= Sizes::kFewestRows) score<Sizes::kFewestRows, Sizes::kFewestRowColumns>();
        else if (tile_.num_rows <= Sizes::kFewRows) score<Sizes::kFewRows, Sizes::kFewRowColumns>();
        else score<Sizes::kRows, Sizes::kColumns>();
    }

    void multiply_values() {
        const int64_t planes = tile_.num_rows * Format::kPlanes;
        if constexpr (kHasPanel<Format>)
            if (is_unpacked()) return multiply_unpacked_values();
        if (planes <= Sizes::kFewestRows) multiply_values<Sizes::kFewestRows, Sizes::kFewestRowColumns>();
        else if (planes <= std::max(Sizes::kFewRows, Sizes::kSomePlanes))
            multiply_values<Sizes::kFewRows, Sizes::kFewRowColumns>();
        else multiply_values<Sizes::kRows, Sizes::kColumns>();
    }

private:
    using Number = typename Format::Number;
    using Steps = typename Format::Steps;
    using Sizes = TileSizes<Format>;

    const Number* queries_at(int64_t row) const { return tile_.queries + row * tile_.query_stride; }

    // Rows enough for a panel.
    bool is_unpacked() const { return kHasPanel<Format> && tile_.num_rows > Sizes::kRows; }

    // Notes what pieces of the rows see of the stretch.
    template <int kRows>
    void look_at_pieces() {
        Sight* piece = pieces_;
        in_pieces<kRows>(tile_.num_rows, [&](int64_t row, auto count) { *piece++ = tile_.seen_by(row, count()); });
    }

    // Calls body(first row, count, vectors of the piece that they see) for pieces of the rows.
    template <int kRows, class Body>
    void over_seeing_rows(int64_t vector, int64_t columns, const Body& body) {
        const Sight* piece = pieces_;
        in_pieces<kRows>(tile_.num_rows, [&](int64_t row, auto count) {
            const Sight seen = *piece++;
            if (seen.end <= vector * kLanes || seen.first >= (vector + columns) * kLanes) return;
            body(row, count, std::min((seen.end + kLanes - 1) / kLanes - vector, columns));
        });
    }

    template <int kRows, int kColumns>
    void score() {
        look_at_pieces<kRows>();
        in_pieces<kColumns>(memory_.end - memory_.first, [&](int64_t offset, auto columns) {
            const int64_t vector = memory_.first + offset;
            over_seeing_rows<kRows>(vector, columns(), [&](int64_t row, auto count, int64_t num_seen) {
                const auto score_columns = [&](int64_t column, auto some) {
                    score_tile<Format, count(), some()>(memory_, vector + column, tile_.scored_dim,
                                                        queries_at(row), tile_.scores_at(row), row == 0);
                };
                if (num_seen == columns()) score_columns(0, columns);
                else in_pieces<(columns() + 1) / 2>(num_seen, score_columns);
            });
        });
    }

    void score_unpacked() {
        look_at_pieces<TileSizes<Steps>::kRows>();
        in_pieces<Sizes::kPanelColumns>(memory_.end - memory_.first, [&](int64_t offset, auto columns) {
            const int64_t vector = memory_.first + offset;
            unpack_keys<Format, columns()>(memory_, vector, tile_.scored_dim, panel_);
            over_seeing_rows<TileSizes<Steps>::kRows>(vector, columns(), [&](int64_t row, auto count, int64_t) {
                panel_tile<Steps, Side::kKeys, count(), columns()>(
                    panel_, tile_.scored_dim / Steps::kPerUnit, queries_at(row), kQueryStride<Number>,
                    [](int, int) { return no_sum<typename Format::Sum>(); },
                    [&](int i, int column, auto sum) {
                        store_score(tile_.scores_at(row), i, (vector + column) * kLanes, sum);
                    });
            });
        });
    }

    void score_latents() {
        for (int64_t vector = memory_.first; vector < memory_.end; ++vector)
            in_pieces<kMostLatentRows>(tile_.num_rows, [&](int64_t row, auto count) {
                const Sight of_rows = tile_.seen_by(row, count());
                if (of_rows.end <= vector * kLanes || of_rows.first >= (vector + 1) * kLanes) return;
                latent_score_tile<Format, count()>(memory_, vector, tile_.head_dim, queries_at(row),
                                                   tile_.query_stride, tile_.scores_at(row), row == 0);
            });
    }

    // Calls body(first row, count, keys that they see) for pieces of the rows.
    template <int kRows, class Body>
    void over_weighted_rows(const Body& body) {
        const Sight* piece = pieces_;
        in_pieces<kRows / Format::kPlanes>(tile_.num_rows, [&](int64_t row, auto count) {
            const Sight seen = *piece++;
            if (seen.first < seen.end) body(row, count, seen);
        });
    }

    template <int kRows, int kColumns>
    void multiply_values() {
        look_at_pieces<kRows / Format::kPlanes>();
        in_pieces<kColumns>(tile_.value_dim / kLanes, [&](int64_t vector, auto columns) {
            over_weighted_rows<kRows>([&](int64_t row, auto count, Sight seen) {
                value_tile<Format, count() * Format::kPlanes, columns()>(
                    memory_, seen.first, seen.end, vector * kLanes, tile_.weights_at(row), row == 0,
                    sums_before(row, vector), sums_after<columns()>(row, vector));
            });
        });
    }

    void multiply_unpacked_values() {
        const Sight all{memory_.first * kLanes, tile_.seen_by(0, tile_.num_rows).end};
        look_at_pieces<TileSizes<Steps>::kRows / Format::kPlanes>();
        in_pieces<Sizes::kPanelColumns>(tile_.value_dim / kLanes, [&](int64_t vector, auto columns) {
            unpack_values<Format, columns()>(memory_, all.first, all.end, vector * kLanes, panel_);
            over_weighted_rows<TileSizes<Steps>::kRows>([&](int64_t row, auto count, Sight seen) {
                constexpr int64_t kPer = Format::kPerUnit;
                const int64_t before = (seen.first - all.first) / kPer, units = (seen.end - seen.first + kPer - 1) / kPer;
                panel_tile<Steps, Side::kValues, count() * Format::kPlanes, columns()>(
                    panel_ + before * Format::kSteps * columns() * kLanes, units * Format::kSteps,
                    tile_.weights_at(row) + seen.first, kRowStride, sums_before(row, vector),
                    sums_after<columns()>(row, vector));
            });
        });
    }

    // What a register tile of rows from `first_row` and vectors of dimensions from `vector` begins with.
    auto sums_before(int64_t first_row, int64_t vector) const {
        const float* sums = tile_.sums + first_row * tile_.value_dim + vector * kLanes;
        return [sums, stride = tile_.value_dim](int row, int column) {
            if constexpr (kIsInteger<Format>) return zero_quads();
            else return load(sums + row * stride + column * kLanes);
        };
    }

    // Where it goes; planes are joined when both are there.
    template <int kColumns>
    auto sums_after(int64_t first_row, int64_t vector) {
        return [this, first_row, vector](int row, int column, auto sum) {
            const int64_t dimension = (vector + column) * kLanes;
            if constexpr (kIsInteger<Format>) tile_.add_whole(first_row + row, dimension, sum);
            else if (tile_.rows[first_row + row].sees())
                store(tile_.sums + (first_row + row) * tile_.value_dim + dimension, sum);
        };
    }

    TileRows<Format>& tile_;
    const StretchMemory& memory_;
    const bool is_latent_;
    Sight* pieces_ = nullptr;  // what pieces of the rows see of the stretch
    float* panel_ = nullptr;  // keys or values as they are multiplied
};

}  // namespace penstock
