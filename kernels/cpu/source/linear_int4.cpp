// Products of 8-bit rows with 4-bit weights in groups, one scale per group and output feature.
//
//   output[m, n] = (Σ_g weight_scale[g, n] × Σ_k in g (u[n, k] - zero[g, n]) × x[m, k]) × scale[m] + bias[n]
//
// Groups are added in ascending order, one fused product each; what is inside a group is exact. A tile is up to
// kGroupTileRows rows times one panel: half of what int8 has, for the integer sums of a group and the float32 sums of
// all groups before it both stay in registers. Nibbles become bytes in registers, anew for every tile: unpacking a
// panel once for many rows was no faster (Zen 5), the units that multiply are not those that shift.
#include "experts.hpp"
#include "int4.hpp"
#include "integer_rows.hpp"
#include "linear_amx.hpp"
#include "linear_output.hpp"
#include "step.hpp"
#include "tiles.hpp"

namespace penstock {
namespace {

// A tile's rows.
struct Int4Tile {
    const int8_t* inputs;
    int64_t width;
    const int32_t* offsets;  // [rows, groups]
    int64_t num_groups;
};

// What a group's integer sums start from, in each row of the block: -zero × Σ inputs where one zero serves all output
// features, else the Σ that their zeros are multiplied with later.
void find_offsets(int32_t* offsets, const Quantized& inputs, const Int4Shape& shape, bool has_zeros, RowRange block) {
    const int64_t sums_per_row = inputs.width / kSumWidth;
    const int64_t sums_per_group = shape.group_size / kSumWidth;
    for (int64_t r = 0; r < block.count; ++r) {
        const int32_t* sums = inputs.sums + (block.first + r) * sums_per_row;
        for (int64_t group = 0; group < shape.num_groups; ++group) {
            const int64_t end = std::min(sums_per_row, (group + 1) * sums_per_group);
            int32_t total = 0;
            for (int64_t i = group * sums_per_group; i < end; ++i) total += sums[i];
            offsets[r * shape.num_groups + group] = has_zeros ? total : -static_cast<int32_t>(kInt4Zero) * total;
        }
    }
}

// sums += panel × rows over `count` inputs; `nibbles` is [count / 8][32][4].
template <int Rows, int Lines>
PENSTOCK_INLINE inline void dot_nibbles(TileOf<Ints, Rows>& sums, const uint8_t* nibbles, const int8_t* inputs,
                                        int64_t stride, int64_t count, Fetch& ahead) {
    const int8_t* end = inputs + count;
    for (; inputs < end; inputs += 8, nibbles += kPanel * 4) {
        fetch<Lines>(ahead);
        Bytes pairs[kVectors], weights[kVectors];
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { pairs[v] = load_bytes(nibbles + v * kLanes * 4); });
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { weights[v] = low_nibbles(pairs[v]); });
        dot_step(sums, weights, inputs, stride);
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { weights[v] = high_nibbles(pairs[v]); });
        dot_step(sums, weights, inputs + 4, stride);
    }
}

template <int Rows, bool HasZeros>
PENSTOCK_INLINE inline void end_group(TileOf<Vec, Rows>& totals, const TileOf<Ints, Rows>& sums, const Int4Tile& tile,
                                      const int32_t* offsets, const uint8_t* header) {
    unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
        const Vec scale = load_fp16(reinterpret_cast<const uint16_t*>(header) + v * kLanes);
        const auto* zeros = reinterpret_cast<const int16_t*>(header + kHeaderBytes) + v * kLanes;
        unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
            Ints sum = sums.of[r][v];
            if constexpr (HasZeros) sum = sum - load_int16(zeros) * broadcast_int(offsets[r * tile.num_groups]);
            totals.of[r][v] = fma(to_float(sum), scale, totals.of[r][v]);
        });
    });
}

template <int Rows>
PENSTOCK_INLINE inline void write_tile(const Product<Quantized>& product, const TileOf<Vec, Rows>& totals, int64_t panel,
                                       int64_t first_row, Target target) {
    const Weight& weight = product.weight;
    over_outputs(panel * kPanel, weight.out_features, [&](auto v, auto lanes) PENSTOCK_INLINE {
        const int64_t output = panel * kPanel + v * kLanes;
        const Vec bias = product.bias ? load(product.bias + output, lanes) : zero();
        unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
            const Vec scale = broadcast(product.rows.scales[first_row + r]);
            store(target.row(r) + v * kLanes, fma(totals.of[r][v], scale, bias), lanes);
        });
    });
}

template <int Rows, bool HasZeros, int Lines>
void multiply_tile(const Product<Quantized>& product, const Int4Shape& shape, const Int4Tile tile, int64_t panel,
                   int64_t first_row, Target target, Fetch ahead) {
    fetch_output<Rows>(target);
    TileOf<Vec, Rows> totals;
    over_tile<Rows>([&](auto r, auto v) PENSTOCK_INLINE { totals.of[r][v] = zero(); });
    const uint8_t* group = product.weight.panels + panel * shape.panel_bytes;
    for (int64_t index = 0; index < tile.num_groups; ++index, group += shape.group_bytes) {
        const int64_t first = index * shape.group_size;
        const int64_t count = std::min(shape.group_size, shape.width - first);
        const int32_t* offsets = tile.offsets + index;
        TileOf<Ints, Rows> sums;
        unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
            const Ints start = HasZeros ? zero_ints() : broadcast_int(offsets[r * tile.num_groups]);
            unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { sums.of[r][v] = start; });
        });
        fetch<Lines>(ahead);
        dot_nibbles<Rows, Lines>(sums, group + shape.header_bytes, tile.inputs + first, tile.width, count, ahead);
        end_group<Rows, HasZeros>(totals, sums, tile, offsets, group);
    }
    write_tile<Rows>(product, totals, panel, first_row, target);
}

struct Int4 : IntegerKind {
    static int64_t panel_bytes(const Weight& weight) { return Int4Shape(weight).panel_bytes; }
    static int64_t panels_per_chunk(const Weight& weight) {
        return penstock::panels_per_chunk(num_panels(weight), panel_bytes(weight));
    }

    struct Block {
        const Product<Quantized>& product;
        const RowRange rows;
        const Int4Shape shape;
        int32_t* const offsets;

        static int64_t scratch_bytes(const Product<Quantized>& product, int64_t count) {
            return round_up(count * Int4Shape(product.weight).num_groups * sizeof(int32_t), kRowAlign);
        }
        Block(const Product<Quantized>& product, RowRange rows, void* scratch)
            : product(product), rows(rows), shape(product.weight), offsets(static_cast<int32_t*>(scratch)) {
            find_offsets(offsets, product.rows, shape, product.weight.has_zeros, rows);
        }

        void multiply(int64_t panel, Target target) const {
            const Quantized& inputs = product.rows;
            const uint8_t* weights = product.weight.panels + panel * shape.panel_bytes;
            over_tiles<kGroupTileRows>(rows, [&](RowRange own, int64_t index, int64_t num_tiles) {
                const int64_t before = own.first - rows.first;
                const Int4Tile tile{inputs.values + own.first * inputs.width, inputs.width,
                                    offsets + before * shape.num_groups, shape.num_groups};
                // Always into the first cache: here the units are what takes long, from a few rows on.
                const Fetch ahead = fetch_for(weights, shape.panel_bytes, kPanel * 4, index, num_tiles, true);
                with_rows<kGroupTileRows>(own.count, [&](auto count) {
                    const auto multiply_rows = [&](auto has_zeros, auto lines) {
                        multiply_tile<count, has_zeros, lines>(product, shape, tile, panel, own.first,
                                                               target.from(before, 0), ahead);
                    };
                    using One = std::integral_constant<int, 1>;
                    using Two = std::integral_constant<int, 2>;
                    if (product.weight.has_zeros) {
                        num_tiles == 1 ? multiply_rows(std::true_type{}, Two{}) : multiply_rows(std::true_type{}, One{});
                    } else {
                        num_tiles == 1 ? multiply_rows(std::false_type{}, Two{}) : multiply_rows(std::false_type{}, One{});
                    }
                });
            });
        }
    };
};

#if defined(__AMX_INT8__)
constexpr int64_t kFewestForTiles = 24;  // rows

// A panel's numbers less their zeros as signed bytes, [width / 4][32][4], as tiles multiply them.
void unpack_panel(int8_t* to, const uint8_t* panel, const Int4Shape& shape, bool has_zeros) {
    for (int64_t first = 0; first < shape.width; first += shape.group_size, panel += shape.group_bytes) {
        Bytes zeros[kVectors];
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
            const auto* own = reinterpret_cast<const int16_t*>(panel + kHeaderBytes) + v * kLanes;
            const Ints zero = has_zeros ? load_int16(own) : broadcast_int(kInt4Zero);
            zeros[v] = repeat_bytes(zero);
        });
        const uint8_t* nibbles = panel + shape.header_bytes;
        const int64_t count = std::min(shape.group_size, shape.width - first);
        for (int64_t k = 0; k < count; k += 8, nibbles += kPanel * 4, to += kPanel * 8) {
            unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
                const Bytes pairs = load_bytes(nibbles + v * kLanes * 4);
                store_bytes(to + v * kLanes * 4, subtract_bytes(low_nibbles(pairs), zeros[v]));
                store_bytes(to + kPanel * 4 + v * kLanes * 4, subtract_bytes(high_nibbles(pairs), zeros[v]));
            });
        }
    }
}

// The square's part of one group is exact; groups are added in ascending order, as everywhere.
template <bool kIsTall, class Fetched>
void multiply_square_of_groups(float (*totals)[kPanel], const Int4Shape& shape, const uint8_t* group,
                               Square square, int64_t num_rows, Fetched& fetch_next) {
    alignas(64) int32_t sums[kSquareRows][kPanel];
    const uint8_t *rows = square.rows, *weights = square.panel;
    std::fill(&totals[0][0], &totals[0][0] + num_rows * kPanel, 0.0f);
    for (int64_t first = 0; first < shape.width; first += shape.group_size, group += shape.group_bytes) {
        const int64_t count = std::min(shape.group_size, shape.width - first);
        square.rows = rows + first / kStepBytes * kTileHeight * kStepBytes + first % kStepBytes;
        square.panel = weights + first * kPanel;
        square.num_steps = (count + kStepBytes - 1) / kStepBytes;
        multiply_square<SignedBySigned, kIsTall>(sums, square, true, fetch_next);
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
            const Vec scale = load_fp16(reinterpret_cast<const uint16_t*>(group) + v * kLanes);
            for (int64_t i = 0; i < num_rows; ++i) {
                float* total = totals[i] + v * kLanes;
                store(total, fma(to_float(load_ints(sums[i] + v * kLanes)), scale, load(total)));
            }
        });
    }
}

void finish_square(const Linear& linear, const float (*totals)[kPanel], int64_t panel, RowRange rows, Target target) {
    over_outputs(panel * kPanel, linear.weight.out_features, [&](auto v, auto lanes) PENSTOCK_INLINE {
        const int64_t output = panel * kPanel + v * kLanes;
        const Vec bias = linear.bias ? load(linear.bias + output, lanes) : zero();
        for (int64_t i = 0; i < rows.count; ++i) {
            const Vec scale = broadcast(linear.quantized_input.scales[rows.first + i]);
            store(target.row(i) + v * kLanes, fma(load(totals[i] + v * kLanes), scale, bias), lanes);
        }
    });
}

// Each panel of the chunk is unpacked once, and meets the rows square by square.
template <bool kIsTall, class Output>
void multiply_unpacked(const Linear& linear, const Int4Shape& shape, const TiledRows& input, const Panels& panels,
                       RowRange rows, Output output) {
    const int64_t weight_bytes = shape.width * kPanel, height = round_up(rows.count, kSquareRows);
    auto* scratch = static_cast<uint8_t*>(thread_scratch(weight_bytes + output.scratch_bytes(height)));
    output.take(rows, scratch + weight_bytes);
    const int64_t num_squares = height / kSquareRows, depth = std::min(shape.group_size, kStepBytes);
    const int64_t num_steps = shape.width / depth;
    for (int64_t turn = panels.first; turn < panels.end; ++turn) {
        const uint8_t* packed = panels.at(turn, 0);
        unpack_panel(reinterpret_cast<int8_t*>(scratch), packed, shape, linear.weight.has_zeros);
        Ahead ahead(panels.at(turn + 1, 0), shape.panel_bytes, num_steps * num_squares);
        for (int64_t row = 0; row < rows.count; row += kSquareRows) {
            const RowRange own{row, std::min(kSquareRows, rows.count - row)};
            alignas(64) float totals[kSquareRows][kPanel];
            AheadOfSquare fetch(ahead, output.lines(turn, own), own.count, num_steps);
            const Square square{input.at(rows.first + row, 0), input.tile_bytes(), scratch, 0};
            multiply_square_of_groups<kIsTall>(totals, shape, packed, square, own.count, fetch);
            output.write(totals, turn, own);
        }
    }
}

template <class Output>
void multiply_in_squares(const Linear& linear, const Output& output) {
    const Int4Shape shape(linear.weight);
    const TiledRows input = tile_rows(linear.quantized_input, *linear.num_rows);
    const int64_t num_rows = *linear.num_rows, panel_bytes = shape.panel_bytes;
    over_square_chunks<Output>(linear.weight, panel_bytes, num_rows, [&](const Panels& panels, RowRange block) {
        over_squares(block, std::min(shape.group_size, kStepBytes), [&](RowRange rows, auto is_tall) {
            multiply_unpacked<is_tall>(linear, shape, input, panels, rows, output);
        });
    });
}

auto finish_of(const Linear& linear) {
    return [&linear](const float(*totals)[kPanel], int64_t panel, RowRange rows, Target target) {
        finish_square(linear, totals, panel, rows, target);
    };
}
#endif

void linear_int4(const Linear& linear) {
#if defined(__AMX_INT8__)
    if (*linear.num_rows >= kFewestForTiles) return multiply_in_squares(linear, PlainOutput{linear, finish_of(linear)});
#endif
    const Product<Quantized> product{linear.quantized_input, linear.weight, linear.bias};
    multiply_in_tiles<Int4>(product, *linear.num_rows, Target{linear.output, linear.output_stride});
}

void gated_linear_int4(const GatedLinear& gated) {
    const Linear& linear = *gated.product;
#if defined(__AMX_INT8__)
    if (*linear.num_rows >= kFewestForTiles && gated.activation->width % kPanel == 0)
        return multiply_gated(gated, finish_of(linear), [&](const auto& output) { multiply_in_squares(linear, output); });
#endif
    linear_int4(linear);
    silu_multiply(*gated.activation);
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_linear_int4(const void* arguments) {
    penstock::linear_int4(*static_cast<const penstock::Linear*>(arguments));
}
extern "C" void penstock_gated_linear_int4(const void* arguments) {
    penstock::gated_linear_int4(*static_cast<const penstock::GatedLinear*>(arguments));
}
extern "C" void penstock_experts_int4(const void* arguments) {
    penstock::compute_experts<penstock::Int4>(*static_cast<const penstock::Experts*>(arguments));
}
