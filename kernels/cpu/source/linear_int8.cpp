// Products of 8-bit rows with 8-bit weights, one scale per row and one per output feature.
//
//   output[m, n] = (Σ_k u[n, k] × x[m, k] - 128 × total[m]) × (weight_scale[n] × scale[m]) + bias[n]
//
// The sum is exact, so no order matters; what follows is one fixed expression. A tile is up to kTileRows rows times one
// panel, its sums in registers over the whole of K.
#include "crossed.hpp"
#include "experts.hpp"
#include "experts_amx.hpp"
#include "integer_rows.hpp"
#include "linear_amx.hpp"
#include "linear_output.hpp"
#include "step.hpp"
#include "tiles.hpp"

namespace penstock {
namespace {

// `sum(row, vector)` is a whole number.
template <int Rows, class Sum>
PENSTOCK_INLINE inline void write_tile(const Product<Quantized>& product, const Sum& sum, int64_t panel, int64_t first_row,
                                       Target target) {
    const Weight& weight = product.weight;
    over_outputs(panel * kPanel, weight.out_features, [&](auto v, auto lanes) PENSTOCK_INLINE {
        const int64_t output = panel * kPanel + v * kLanes;
        const Vec weight_scale = load(weight.scales + output);
        const Vec bias = product.bias ? load(product.bias + output, lanes) : zero();
        unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
            const int64_t row = first_row + r;
            const Vec scale = weight_scale * broadcast(product.rows.scales[row]);
            store(target.row(r) + v * kLanes, fma(to_float(sum(r, v)), scale, bias), lanes);
        });
    });
}

inline int32_t zero_times_total(const Product<Quantized>& product, int64_t row) {
    return static_cast<int32_t>(kInt8Zero) * product.rows.totals[row];
}

template <int Rows, int Lines>
void multiply_tile(const Product<Quantized>& product, const uint8_t* weights, int64_t panel, int64_t first_row,
                   Target target, Fetch ahead) {
    const int64_t width = product.rows.width;
    TileOf<Ints, Rows> sums;
    over_tile<Rows>([&](auto r, auto v) PENSTOCK_INLINE { sums.of[r][v] = zero_ints(); });
    fetch_output<Rows>(target);
    dot_tile<Rows, Lines>(sums, weights, product.rows.values + first_row * width, width, width / 4, ahead);
    const auto sum = [&](auto r, auto v) PENSTOCK_INLINE {
        return sums.of[r][v] - broadcast_int(zero_times_total(product, first_row + r));
    };
    write_tile<Rows>(product, sum, panel, first_row, target);
}

struct Int8 : IntegerKind {
    static int64_t panel_bytes(const Weight& weight) { return padded_in(weight) * kPanel; }
    static int64_t panels_per_chunk(const Weight& weight, int64_t num_rows) {
        return penstock::panels_per_chunk(num_panels(weight), panel_bytes(weight), num_rows);
    }

    struct Block {
        const Product<Quantized>& product;
        const RowRange rows;
        static int64_t ready_bytes(const Product<Quantized>&, int64_t) { return 0; }
        static int64_t working_bytes(const Product<Quantized>&, int64_t) { return 0; }
        Block(const Product<Quantized>& product, RowRange rows, void*) : product(product), rows(rows) {}

        void multiply(int64_t panel, Target target, void*) const {
            const int64_t bytes = panel_bytes(product.weight);
            const uint8_t* weights = product.weight.panels + panel * bytes;
            const bool to_first_cache = fetches_to_first_cache(rows);
            over_tiles<kTileRows>(rows, [&](RowRange own, int64_t tile, int64_t num_tiles) {
                const Fetch ahead = fetch_for(weights, bytes, kPanel * 4, tile, num_tiles, to_first_cache);
                const Target to = target.from(own.first - rows.first, 0);
                with_rows<kTileRows>(own.count, [&](auto count) {
                    if (num_tiles == 1) {
                        multiply_tile<count, 2>(product, weights, panel, own.first, to, ahead);
                    } else {
                        multiply_tile<count, 1>(product, weights, panel, own.first, to, ahead);
                    }
                });
            });
        }
    };
};

#if defined(PENSTOCK_CROSSES)
constexpr int64_t kFewestForCrossed = 3;  // rows

inline auto codes_of_run(const uint8_t* run) {
    return [run](int64_t four, int64_t v) PENSTOCK_INLINE { return load_bytes(run + four * kPanel * 4 + v * kLanes * 4); };
}

// The same with rows crossed (crossed.hpp), if they are not too few.
struct CrossedInt8 : Int8 {
    struct Block {
        const Product<Quantized>& product;
        const RowRange rows;
        int16_t* const inputs;   // widened
        int32_t* const offsets;  // [rows]: what is taken off for a row's sake

        static int64_t ready_bytes(const Product<Quantized>& product, int64_t count) {
            if (count < kFewestForCrossed) return 0;
            return count * static_cast<int64_t>(product.rows.width * sizeof(int16_t) + sizeof(int32_t));
        }
        static int64_t working_bytes(const Product<Quantized>&, int64_t) { return kPanel * sizeof(int32_t); }
        Block(const Product<Quantized>& product, RowRange rows, void* ready)
            : product(product),
              rows(rows),
              inputs(static_cast<int16_t*>(ready)),
              offsets(reinterpret_cast<int32_t*>(inputs + rows.count * product.rows.width)) {
            if (rows.count < kFewestForCrossed) return;
            const int64_t width = product.rows.width, num_runs = width / kCrossedRun;
            Ints products = zero_ints();
            cross_rows(inputs, product.rows.values, width, num_runs, rows, [&](int64_t row, int64_t run, Halves of_run) {
                products = add_own_products(run == 0 ? zero_ints() : products, of_run);
                if (run == num_runs - 1) offsets[row] = zero_times_total(product, rows.first + row) + sum(products);
            });
        }

        // Works on the panel's own products, [32].
        void multiply(int64_t panel, Target target, void* working) const {
            if (rows.count < kFewestForCrossed) return Int8::Block(product, rows, nullptr).multiply(panel, target, working);
            auto* own = static_cast<int32_t*>(working);
            const int64_t bytes = panel_bytes(product.weight);
            const uint8_t* weights = product.weight.panels + panel * bytes;
            over_crossed_tiles(
                rows, weights, bytes, kCrossedRun * kPanel,
                [&](Fetch ahead) { find_own_products(own, weights, ahead); },
                [&](RowRange tile, Fetch ahead, auto count) { multiply_tile<count>(panel, weights, own, tile, target, ahead); });
        }

        void find_own_products(int32_t* own, const uint8_t* weights, Fetch ahead) const {
            Ints sums[kVectors];
            for (Ints& sum : sums) sum = zero_ints();
            for (int64_t k = 0; k < product.rows.width; k += kCrossedRun)
                add_own_run(sums, codes_of_run(weights + k * kPanel), ahead);
            for (int64_t v = 0; v < kVectors; ++v) store(own + v * kLanes, sums[v]);
        }

        template <int Rows>
        void multiply_tile(int64_t panel, const uint8_t* weights, const int32_t* own, RowRange tile, Target target,
                           Fetch ahead) const {
            const int64_t width = product.rows.width, before = tile.first - rows.first;
            const Target to = target.from(before, 0);
            fetch_output<Rows>(to);
            TileOf<Ints, Rows> all;
            for (int64_t first = 0; first < kVectors; first += kCrossedVectors) {
                Ints sums[Rows][kCrossedVectors];
                for (auto& row : sums)
                    for (Ints& sum : row) sum = zero_ints();
                for (int64_t k = 0; k < width; k += kCrossedRun)
                    add_crossed_run(sums, codes_of_run(weights + k * kPanel + first * kLanes * 4),
                                    inputs + before * width + k * Rows, ahead);
                for (int r = 0; r < Rows; ++r) std::copy(sums[r], sums[r] + kCrossedVectors, all.of[r] + first);
            }
            const auto sum = [&](auto r, auto v) PENSTOCK_INLINE {
                return all.of[r][v] - (broadcast_int(offsets[before + r]) + load_ints(own + v * kLanes));
            };
            write_tile<Rows>(product, sum, panel, tile.first, to);
        }
    };
};
using OwnInt8 = CrossedInt8;
#else
using OwnInt8 = Int8;
#endif

#if defined(__AMX_INT8__)
constexpr int64_t kFewestForTiles = 12;  // rows

void finish_square(const Product<Quantized>& product, const int32_t (*sums)[kPanel], int64_t panel, RowRange rows,
                   Target target) {
    const int64_t first_output = panel * kPanel;
    over_outputs(first_output, product.weight.out_features, [&](auto v, auto lanes) PENSTOCK_INLINE {
        const int64_t output = first_output + v * kLanes;
        const Vec weight_scale = load(product.weight.scales + output);
        const Vec bias = product.bias ? load(product.bias + output, lanes) : zero();
        for (int64_t i = 0; i < rows.count; ++i) {
            const int64_t row = rows.first + i;
            const Ints offset = broadcast_int(zero_times_total(product, row));
            const Vec scale = weight_scale * broadcast(product.rows.scales[row]);
            const Ints sum = load_ints(sums[i] + v * kLanes);
            store(target.row(i) + v * kLanes, fma(to_float(sum - offset), scale, bias), lanes);
        }
    });
}

template <class Output>
void multiply_in_squares(const Linear& linear, const Output& output) {
    const TiledRows input = tile_rows(linear.quantized_input, *linear.num_rows);
    const int64_t panel_bytes = linear.quantized_input.width * kPanel;
    over_square_chunks<Output>(linear.weight, panel_bytes, *linear.num_rows, [&](const Panels& panels, RowRange block) {
        over_squares(block, kStepBytes, [&](RowRange rows, auto is_tall) {
            multiply_squares<SignedByUnsigned, is_tall>(input, panels, rows, output);
        });
    });
}

auto finish_of(const Linear& linear) {
    const Product<Quantized> product{linear.quantized_input, linear.weight, linear.bias};
    return [product](const int32_t(*sums)[kPanel], int64_t panel, RowRange rows, Target target) {
        finish_square(product, sums, panel, rows, target);
    };
}

// Some rows of an expert, and a panel at a time.
struct Int8Squares {
    const Product<Quantized>& product;
    const RowRange rows;
    const TiledRows tiled;

    static int64_t scratch_bytes(const Product<Quantized>& product, int64_t count) {
        return TiledRows::bytes_of(count, product.rows.width);
    }
    Int8Squares(const Product<Quantized>& product, RowRange rows, void* scratch)
        : product(product), rows(rows), tiled(tile_block(product.rows, rows, scratch)) {}

    void multiply(int64_t panel, Target target) const {
        const int64_t bytes = Int8::panel_bytes(product.weight);
        const uint8_t* weights = product.weight.panels + panel * bytes;
        Ahead ahead(weights + bytes, bytes, tiled.num_steps * divide_up(rows.count, kSquareRows));
        over_each_square(rows.count, kStepBytes, [&](RowRange own, auto is_tall) {
            alignas(64) int32_t sums[kSquareRows][kPanel];
            const Square square{tiled.at(own.first, 0), tiled.tile_bytes(), weights, tiled.num_steps};
            multiply_square<SignedByUnsigned, is_tall>(sums, square, true, ahead);
            finish_square(product, sums, panel, RowRange{rows.first + own.first, own.count}, target.from(own.first, 0));
        });
    }
};
using ExpertsInt8 = InSquares<Int8, Int8Squares, kFewestForTiles>;
#else
using ExpertsInt8 = OwnInt8;
#endif

void linear_int8(const Linear& linear) {
#if defined(__AMX_INT8__)
    if (*linear.num_rows >= kFewestForTiles) return multiply_in_squares(linear, PlainOutput{linear, finish_of(linear)});
#endif
    const Product<Quantized> product{linear.quantized_input, linear.weight, linear.bias};
    multiply_in_tiles<OwnInt8>(product, *linear.num_rows, Target{linear.output, linear.output_stride});
}

void gated_linear_int8(const GatedLinear& gated) {
    const Linear& linear = *gated.product;
#if defined(__AMX_INT8__)
    if (*linear.num_rows >= kFewestForTiles && gated.gate->width % kPanel == 0)
        return multiply_gated(gated, finish_of(linear), [&](const auto& output) { multiply_in_squares(linear, output); });
#endif
    multiply_gated_in_tiles<OwnInt8>(gated, {linear.quantized_input, linear.weight, linear.bias});
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_linear_int8(const void* arguments) {
    penstock::linear_int8(*static_cast<const penstock::Linear*>(arguments));
}
extern "C" void penstock_gated_linear_int8(const void* arguments) {
    penstock::gated_linear_int8(*static_cast<const penstock::GatedLinear*>(arguments));
}
extern "C" void penstock_experts_int8(const void* arguments) {
    penstock::compute_experts<penstock::ExpertsInt8>(*static_cast<const penstock::Experts*>(arguments));
}
