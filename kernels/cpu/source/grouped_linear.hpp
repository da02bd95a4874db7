// Products and experts whose weights have groups (linear_groups.hpp): rows in tiles of registers, and from
// kFewestGroupedForTiles on in squares of AMX tiles, to the same bits. For squares a panel's nibbles become bytes once.
#pragma once
#include "experts_amx.hpp"
#include "linear_amx.hpp"
#include "linear_groups.hpp"
#include "linear_output.hpp"
#include "step.hpp"

namespace penstock {

#if defined(__AMX_INT8__)
constexpr int64_t kFewestGroupedForTiles = 24;  // rows

// A panel's numbers as signed bytes, [width / 4][32][4], as tiles multiply them.
template <class Format>
void unpack_panel(int8_t* to, const uint8_t* panel, const typename Format::Shape& shape) {
    for (int64_t group = 0; group < shape.num_groups; ++group) {
        const uint8_t *scales = panel + shape.scales_at(group), *nibbles = panel + shape.nibbles_at(group);
        const int64_t count = std::min(shape.group_size, shape.width - group * shape.group_size);
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
            const typename Format::Signs signs(scales, v * kLanes);
            int8_t* own = to + v * kLanes * 4;
            for (int64_t k = 0; k < count; k += 8, own += kPanel * 8) {
                const Bytes pairs = load_bytes(nibbles + k / 8 * kPanel * 4 + v * kLanes * 4);
                store_bytes(own, signs.bytes(low_nibbles(pairs)));
                store_bytes(own + kPanel * 4, signs.bytes(high_nibbles(pairs)));
            }
        });
        to += count * kPanel;
    }
}

// The square's part of one group is exact; groups are added in ascending order, as everywhere.
template <class Format, bool kIsTall, class Fetched>
void multiply_square_of_groups(float (*totals)[kPanel], const typename Format::Shape& shape, const uint8_t* panel,
                               Square square, int64_t num_rows, Fetched& fetch_next) {
    alignas(64) int32_t sums[kSquareRows][kPanel];
    const uint8_t *rows = square.rows, *weights = square.panel;
    std::fill(&totals[0][0], &totals[0][0] + num_rows * kPanel, 0.0f);
    for (int64_t group = 0; group < shape.num_groups; ++group) {
        const int64_t first = group * shape.group_size, count = std::min(shape.group_size, shape.width - first);
        square.rows = rows + first / kStepBytes * kTileHeight * kStepBytes + first % kStepBytes;
        square.panel = weights + first * kPanel;
        square.num_steps = (count + kStepBytes - 1) / kStepBytes;
        multiply_square<SignedBySigned, kIsTall>(sums, square, true, fetch_next);
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
            const Vec scale = Format::scale(panel + shape.scales_at(group), v * kLanes);
            for (int64_t i = 0; i < num_rows; ++i) {
                float* total = totals[i] + v * kLanes;
                store(total, fma(to_float(load_ints(sums[i] + v * kLanes)), scale, load(total)));
            }
        });
    }
}

template <class Format>
void finish_square(const Product<Quantized>& product, const float (*totals)[kPanel], int64_t panel, RowRange rows,
                   Target target) {
    over_outputs(panel * kPanel, product.weight.out_features, [&](auto v, auto lanes) PENSTOCK_INLINE {
        const int64_t output = panel * kPanel + v * kLanes;
        const Vec bias = product.bias ? load(product.bias + output, lanes) : zero();
        for (int64_t i = 0; i < rows.count; ++i) {
            const Vec scale = broadcast(product.rows.scales[rows.first + i] * Format::kUnit);
            store(target.row(i) + v * kLanes, fma(load(totals[i] + v * kLanes), scale, bias), lanes);
        }
    });
}

// Each panel of the chunk is unpacked once, and meets the rows square by square.
template <class Format, bool kIsTall, class Output>
void multiply_unpacked(const typename Format::Shape& shape, const TiledRows& input, const Panels& panels, RowRange rows,
                       Output output) {
    const int64_t weight_bytes = shape.width * kPanel, height = round_up(rows.count, kSquareRows);
    auto* scratch = static_cast<uint8_t*>(thread_scratch(weight_bytes + output.scratch_bytes(height)));
    output.take(rows, scratch + weight_bytes);
    const int64_t num_squares = height / kSquareRows, depth = std::min(shape.group_size, kStepBytes);
    const int64_t num_steps = shape.width / depth;
    for (int64_t turn = panels.first; turn < panels.end; ++turn) {
        const uint8_t* packed = panels.at(turn, 0);
        unpack_panel<Format>(reinterpret_cast<int8_t*>(scratch), packed, shape);
        Ahead ahead(panels.at(turn + 1, 0), shape.panel_bytes, num_steps * num_squares);
        for (int64_t row = 0; row < rows.count; row += kSquareRows) {
            const RowRange own{row, std::min(kSquareRows, rows.count - row)};
            alignas(64) float totals[kSquareRows][kPanel];
            AheadOfSquare fetch(ahead, output.lines(turn, own), own.count, num_steps);
            const Square square{input.at(rows.first + row, 0), input.tile_bytes(), scratch, 0};
            multiply_square_of_groups<Format, kIsTall>(totals, shape, packed, square, own.count, fetch);
            output.write(totals, turn, own);
        }
    }
}

template <class Format, class Output>
void multiply_groups_in_squares(const Linear& linear, const Output& output) {
    const typename Format::Shape shape(linear.weight);
    const TiledRows input = tile_rows(linear.quantized_input, *linear.num_rows);
    const int64_t num_rows = *linear.num_rows, panel_bytes = shape.panel_bytes;
    over_square_chunks<Output>(linear.weight, panel_bytes, num_rows, [&](const Panels& panels, RowRange block) {
        over_squares(block, std::min(shape.group_size, kStepBytes), [&](RowRange rows, auto is_tall) {
            multiply_unpacked<Format, is_tall>(shape, input, panels, rows, output);
        });
    });
}

template <class Format>
auto finish_of(const Linear& linear) {
    const Product<Quantized> product{linear.quantized_input, linear.weight, linear.bias};
    return [product](const float(*totals)[kPanel], int64_t panel, RowRange rows, Target target) {
        finish_square<Format>(product, totals, panel, rows, target);
    };
}

// Some rows of an expert, and a panel at a time.
template <class Formats>
struct GroupedSquares {
    using Shape = typename Formats::Shape;
    const Product<Quantized>& product;
    const RowRange rows;
    const Shape shape;
    const TiledRows tiled;
    uint8_t* const unpacked;  // a panel's numbers

    static int64_t scratch_bytes(const Product<Quantized>& product, int64_t count) {
        return (round_up(count, kTileHeight) + kPanel) * product.rows.width;
    }
    GroupedSquares(const Product<Quantized>& product, RowRange rows, void* scratch)
        : product(product),
          rows(rows),
          shape(product.weight),
          tiled(tile_block(product.rows, rows, scratch)),
          unpacked(tiled.bytes + TiledRows::bytes_of(rows.count, product.rows.width)) {}

    void multiply(int64_t panel, Target target) const {
        Formats::choose(product.weight, [&](auto format) { multiply_as<decltype(format)>(panel, target); });
    }

    template <class Format>
    void multiply_as(int64_t panel, Target target) const {
        const uint8_t* packed = product.weight.panels + panel * shape.panel_bytes;
        const int64_t depth = std::min(shape.group_size, kStepBytes);
        unpack_panel<Format>(reinterpret_cast<int8_t*>(unpacked), packed, shape);
        Ahead ahead(packed + shape.panel_bytes, shape.panel_bytes, shape.width / depth * divide_up(rows.count, kSquareRows));
        over_each_square(rows.count, depth, [&](RowRange own, auto is_tall) {
            alignas(64) float totals[kSquareRows][kPanel];
            const Square square{tiled.at(own.first, 0), tiled.tile_bytes(), unpacked, 0};
            multiply_square_of_groups<Format, is_tall>(totals, shape, packed, square, own.count, ahead);
            finish_square<Format>(product, totals, panel, RowRange{rows.first + own.first, own.count},
                                  target.from(own.first, 0));
        });
    }
};
template <class Formats>
using GroupedExperts = InSquares<GroupedKind<Formats>, GroupedSquares<Formats>, kFewestGroupedForTiles>;
#else
template <class Formats>
using GroupedExperts = GroupedKind<Formats>;
#endif

template <class Formats>
void linear_in_groups(const Linear& linear) {
#if defined(__AMX_INT8__)
    if (*linear.num_rows >= kFewestGroupedForTiles)
        return Formats::choose(linear.weight, [&](auto format) {
            using Format = decltype(format);
            multiply_groups_in_squares<Format>(linear, PlainOutput{linear, finish_of<Format>(linear)});
        });
#endif
    const Product<Quantized> product{linear.quantized_input, linear.weight, linear.bias};
    multiply_in_tiles<GroupedKind<Formats>>(product, *linear.num_rows, Target{linear.output, linear.output_stride});
}

template <class Formats>
void gated_linear_in_groups(const GatedLinear& gated) {
    const Linear& linear = *gated.product;
#if defined(__AMX_INT8__)
    if (*linear.num_rows >= kFewestGroupedForTiles && gated.gate->width % kPanel == 0)
        return Formats::choose(linear.weight, [&](auto format) {
            using Format = decltype(format);
            multiply_gated(gated, finish_of<Format>(linear), [&](const auto& output) {
                multiply_groups_in_squares<Format>(linear, output);
            });
        });
#endif
    multiply_gated_in_tiles<GroupedKind<Formats>>(gated, {linear.quantized_input, linear.weight, linear.bias});
}

}  // namespace penstock
