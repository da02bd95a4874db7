// Products of 8-bit rows with weights of 4 bits in groups of inputs that share a scale; what the formats have in common.
//
//   output[m, n] = (Σ_g weight_scale[g, n] × Σ_k in g (u[n, k] - zero[g, n]) × x[m, k]) × scale[m] + bias[n]
//
// Groups are added in ascending order, one fused product each; what is inside a group is exact. A tile is up to
// kGroupTileRows rows times one panel: half of what int8 has, for the integer sums of a group and the float32 sums of
// all groups before it both stay in registers. Nibbles become bytes in registers, anew for every tile: unpacking a
// panel once for many rows was no faster (Zen 5), the units that multiply are not those that shift.
//
// A format says where a group's nibbles lie, which unsigned bytes they stand for, and what a group's sum is multiplied
// by (linear_int4.cpp, linear_mxfp4.cpp).
#pragma once
#include "experts.hpp"
#include "integer_rows.hpp"
#include "partials.hpp"
#include "tiles.hpp"

namespace penstock {

// A tile's rows.
struct GroupedRows {
    const int8_t* inputs;
    int64_t width;
    const int32_t* offsets;  // [rows, groups]
    int64_t num_groups;
};

// What a group's integer sums start from, or are corrected by, in each row of the block.
template <class Format>
void find_offsets(int32_t* offsets, const Quantized& inputs, const typename Format::Shape& shape, RowRange block) {
    const int64_t sums_per_row = inputs.width / kSumWidth;
    const int64_t sums_per_group = shape.group_size / kSumWidth;
    for (int64_t r = 0; r < block.count; ++r) {
        const int32_t* sums = inputs.sums + (block.first + r) * sums_per_row;
        for (int64_t group = 0; group < shape.num_groups; ++group) {
            const int64_t end = std::min(sums_per_row, (group + 1) * sums_per_group);
            int32_t total = 0;
            for (int64_t i = group * sums_per_group; i < end; ++i) total += sums[i];
            offsets[r * shape.num_groups + group] = Format::offset(total);
        }
    }
}

// sums += panel × rows over `count` inputs; `nibbles` is [count / 8][32][4].
template <class Format, int Rows, int Lines>
PENSTOCK_INLINE inline void dot_nibbles(TileOf<Ints, Rows>& sums, const uint8_t* nibbles, const int8_t* inputs,
                                        int64_t stride, int64_t count, Fetch& ahead) {
    const Format format;
    const int8_t* end = inputs + count;
    for (; inputs < end; inputs += 8, nibbles += kPanel * 4) {
        fetch<Lines>(ahead);
        Bytes pairs[kVectors], weights[kVectors];
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { pairs[v] = load_bytes(nibbles + v * kLanes * 4); });
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { weights[v] = format.bytes(low_nibbles(pairs[v])); });
        dot_step(sums, weights, inputs, stride);
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { weights[v] = format.bytes(high_nibbles(pairs[v])); });
        dot_step(sums, weights, inputs + 4, stride);
    }
}

// The same where products are added up in 16 bits for as long as they are sure to fit.
template <class Sums, class Format, int Rows, int Lines>
PENSTOCK_INLINE inline void dot_nibbles_in_halves(TileOf<Ints, Rows>& sums, const uint8_t* nibbles, const int8_t* inputs,
                                                  int64_t stride, int64_t count, Fetch& ahead) {
    constexpr int kEights = Format::kMost * 254 * 8 <= 32767 ? 4 : 2;
    static_assert(Format::kMost * 254 * 2 * kEights <= 32767);
    const Format format;
    const int8_t* end = inputs + count;
    while (inputs < end) {
        TileOf<Ints, Rows> partial;
        over_tile<Rows>([&](auto r, auto v) PENSTOCK_INLINE { partial.of[r][v] = zero_ints(); });
        for (int eight = 0; eight < kEights; ++eight, inputs += 8, nibbles += kPanel * 4) {
            fetch<Lines>(ahead);
            unrolled<2>([&](auto half) PENSTOCK_INLINE {
                Bytes weights[kVectors];
                unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
                    const Bytes pairs = load_bytes(nibbles + v * kLanes * 4);
                    weights[v] = format.bytes(half ? high_nibbles(pairs) : low_nibbles(pairs));
                });
                unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
                    const auto four = Sums::broadcast(inputs + r * stride + half * 4);
                    unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
                        partial.of[r][v] = Sums::add_products(partial.of[r][v], weights[v], four);
                    });
                });
            });
        }
        over_tile<Rows>([&](auto r, auto v) PENSTOCK_INLINE {
            sums.of[r][v] = Sums::merged(sums.of[r][v], partial.of[r][v], Sums::no_scale());
        });
    }
}

template <class Format, int Rows>
PENSTOCK_INLINE inline void end_group(TileOf<Vec, Rows>& totals, const TileOf<Ints, Rows>& sums,
                                      const GroupedRows& tile, const int32_t* offsets, const uint8_t* group) {
    unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
        const Vec scale = Format::scale(group, v * kLanes);
        unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
            Ints sum = sums.of[r][v];
            if constexpr (Format::kCorrects) sum = Format::corrected(sum, group, v * kLanes, offsets[r * tile.num_groups]);
            totals.of[r][v] = fma(to_float(sum), scale, totals.of[r][v]);
        });
    });
}

template <class Format, int Rows>
PENSTOCK_INLINE inline void write_tile(const Product<Quantized>& product, const TileOf<Vec, Rows>& totals, int64_t panel,
                                       int64_t first_row, Target target) {
    const Weight& weight = product.weight;
    over_outputs(panel * kPanel, weight.out_features, [&](auto v, auto lanes) PENSTOCK_INLINE {
        const int64_t output = panel * kPanel + v * kLanes;
        const Vec bias = product.bias ? load(product.bias + output, lanes) : zero();
        unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
            const Vec scale = broadcast(product.rows.scales[first_row + r] * Format::kUnit);
            store(target.row(r) + v * kLanes, fma(totals.of[r][v], scale, bias), lanes);
        });
    });
}

template <class Format, int Rows, int Lines>
void multiply_tile(const Product<Quantized>& product, const typename Format::Shape& shape, const GroupedRows tile,
                   int64_t panel, int64_t first_row, Target target, Fetch ahead) {
    fetch_output<Rows>(target);
    TileOf<Vec, Rows> totals;
    over_tile<Rows>([&](auto r, auto v) PENSTOCK_INLINE { totals.of[r][v] = zero(); });
    const uint8_t* weights = product.weight.panels + panel * shape.panel_bytes;
    for (int64_t index = 0; index < tile.num_groups; ++index) {
        const int64_t first = index * shape.group_size;
        const int64_t count = std::min(shape.group_size, shape.width - first);
        const int32_t* offsets = tile.offsets + index;
        TileOf<Ints, Rows> sums;
        unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
            const Ints start = Format::kCorrects ? zero_ints() : broadcast_int(offsets[r * tile.num_groups]);
            unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { sums.of[r][v] = start; });
        });
        fetch<Lines>(ahead);
        const uint8_t* nibbles = weights + shape.nibbles_at(index);
        if constexpr (Partials::kIsNarrow)
            dot_nibbles_in_halves<Partials, Format, Rows, Lines>(sums, nibbles, tile.inputs + first, tile.width, count, ahead);
        else
            dot_nibbles<Format, Rows, Lines>(sums, nibbles, tile.inputs + first, tile.width, count, ahead);
        end_group<Format, Rows>(totals, sums, tile, offsets, weights + shape.scales_at(index));
    }
    write_tile<Format, Rows>(product, totals, panel, first_row, target);
}

// A kind of weights as products and experts take it. `Formats::choose(weight, body)` calls body(format).
template <class Formats>
struct GroupedKind : IntegerKind {
    using Shape = typename Formats::Shape;

    static int64_t panel_bytes(const Weight& weight) { return Shape(weight).panel_bytes; }
    static int64_t panels_per_chunk(const Weight& weight, int64_t num_rows) {
        return penstock::panels_per_chunk(num_panels(weight), panel_bytes(weight), num_rows);
    }

    struct Block {
        const Product<Quantized>& product;
        const RowRange rows;
        const Shape shape;
        int32_t* const offsets;

        static int64_t ready_bytes(const Product<Quantized>& product, int64_t count) {
            return count * Shape(product.weight).num_groups * static_cast<int64_t>(sizeof(int32_t));
        }
        static int64_t working_bytes(const Product<Quantized>&, int64_t) { return 0; }
        Block(const Product<Quantized>& product, RowRange rows, void* ready)
            : product(product), rows(rows), shape(product.weight), offsets(static_cast<int32_t*>(ready)) {
            Formats::choose(product.weight, [&](auto format) {
                find_offsets<decltype(format)>(offsets, product.rows, shape, rows);
            });
        }

        void multiply(int64_t panel, Target target, void*) const {
            Formats::choose(product.weight, [&](auto format) { multiply_as<decltype(format)>(panel, target); });
        }

        template <class Format>
        void multiply_as(int64_t panel, Target target) const {
            const Quantized& inputs = product.rows;
            const uint8_t* weights = product.weight.panels + panel * shape.panel_bytes;
            over_tiles<kGroupTileRows>(rows, [&](RowRange own, int64_t index, int64_t num_tiles) {
                const int64_t before = own.first - rows.first;
                const GroupedRows tile{inputs.values + own.first * inputs.width, inputs.width,
                                       offsets + before * shape.num_groups, shape.num_groups};
                // Always into the first cache: here the units are what takes long, from a few rows on.
                const Fetch ahead = fetch_for(weights, shape.panel_bytes, kPanel * 4, index, num_tiles, true);
                const Target to = target.from(before, 0);
                with_rows<kGroupTileRows>(own.count, [&](auto count) {
                    if (num_tiles == 1) multiply_tile<Format, count, 2>(product, shape, tile, panel, own.first, to, ahead);
                    else multiply_tile<Format, count, 1>(product, shape, tile, panel, own.first, to, ahead);
                });
            });
        }
    };
};

}  // namespace penstock
