// Products with weights stored as fp32, fp16 or bf16 (formats: float_formats.hpp).
//
//   output[m, n] = Σ_k input[m, k] × weight[n, k] + bias[n]
//
// A tile is some rows × a panel of 32 output features (or half of one, where registers are few); its sums stay in
// registers while k runs from the first to the last input feature. One sum an output, k ascending: so the bits are the
// same for every number of rows, threads and chunks. A chunk is a group of panels × a block of rows, and the block's
// input stays in the second cache along with one panel.
#include <type_traits>

#include "experts.hpp"
#include "linear_amx.hpp"
#include "linear_pairs_amx.hpp"
#include "linear_output.hpp"
#include "float_formats.hpp"
#include "rows.hpp"
#include "tiles.hpp"

namespace penstock {
namespace {

constexpr int64_t kFloatChunkBytes = 256 << 10;  // of weights
constexpr int64_t kFloatBlockBytes = 384 << 10;  // of input rows
constexpr int64_t kPageBytes = 4096, kLineBytes = 64;

// Sums, weights and inputs of one step have to fit into 32 registers, or 16 without AVX-512.
template <class Format>
constexpr int kFloatTileRows = kLanes == 16 ? 12 : Format::kDepth == 1 ? 6 : 5;
template <int Rows>
constexpr int kFloatTileVectors = kLanes == 16 || Rows > 2 ? 2 : 4;

// Rows as a format multiplies them.
template <class Format>
struct FloatRows {
    const typename Format::Input* values;
    int64_t stride;
    int64_t in_features;  // a multiple of Format::kDepth
};

// Adds Format::kDepth input features to all sums of a tile.
template <class Format, int Rows, int Vectors>
inline void add_step(Vec (&sums)[Rows][Vectors], const typename Format::Stored* panel,
                     const typename Format::Input* input, int64_t input_stride) {
    typename Format::Step steps[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) steps[v] = Format::load_step(panel + v * kLanes * Format::kDepth);
#pragma GCC unroll 2
    for (int part = 0; part < Format::kParts; ++part) {
        typename Format::Operand weights[Vectors];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) weights[v] = Format::weights(steps[v], part);
#pragma GCC unroll 12
        for (int r = 0; r < Rows; ++r) {
            const typename Format::Operand x = Format::input(input + r * input_stride, part);
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) sums[r][v] = Format::add_product(sums[r][v], weights[v], x);
        }
    }
}

template <int Rows, int Vectors>
inline void write_sums(const float* bias, const Vec (&sums)[Rows][Vectors], int64_t num_outputs, Target target) {
    over_lanes(std::min(num_outputs, Vectors * kLanes), [&](int64_t i, auto lanes) {
        const Vec added = bias ? load(bias + i, lanes) : zero();
        for (int r = 0; r < Rows; ++r) store(target.row(r) + i, sums[r][i / kLanes] + added, lanes);
    });
}

template <class Format, int Rows>
void multiply_tile(const Product<FloatRows<Format>>& product, int64_t panel_index, int64_t first_row, Target target,
                   Fetch ahead) {
    constexpr int kTileVectors = kFloatTileVectors<Rows>;
    constexpr int64_t kStep = kPanel * Format::kDepth;
    const FloatRows<Format>& rows = product.rows;
    for (int first = 0; first < kVectors; first += kTileVectors) {
        const auto* panel = float_panel<Format>(product.weight, panel_index) + first * kLanes * Format::kDepth;
        const auto* input = rows.values + first_row * rows.stride;
        Vec sums[Rows][kTileVectors];
        for (auto& row : sums)
            for (Vec& part : row) part = zero();
        for (int64_t k = 0; k < rows.in_features; k += Format::kDepth, panel += kStep) {
            fetch<kStep * sizeof(*panel) / 64>(ahead);
            add_step<Format>(sums, panel, input + k, rows.stride);
        }
        const int64_t output = panel_index * kPanel + first * kLanes;
        write_sums(product.bias ? product.bias + output : nullptr, sums, product.weight.out_features - output,
                   target.from(0, first * kLanes));
    }
}

inline void fill_row(float* to, const float* from, int64_t count) { std::memcpy(to, from, count * sizeof(float)); }
inline void fill_row(uint16_t* to, const float* from, int64_t count) {
    over_lanes(count, [&](int64_t i, auto lanes) { store_bf16(to + i, load(from + i, lanes), lanes); });
}

template <class Format>
struct Float {
    using Rows = FloatRows<Format>;
    using Input = typename Format::Input;
    static constexpr int64_t kMostTileRows = kFloatTileRows<Format>;

    static int64_t panel_bytes(const Weight& weight) {
        return padded_in(weight) * kPanel * sizeof(typename Format::Stored);
    }
    static int64_t panels_per_chunk(const Weight& weight, int64_t) {
        return std::max<int64_t>(1, kFloatChunkBytes / panel_bytes(weight));
    }
    static int64_t rows_per_block(const Product<Rows>& product) {
        const int64_t row_bytes = product.rows.stride * sizeof(Input);
        return std::max<int64_t>(2, kFloatBlockBytes / row_bytes / kMostTileRows) * kMostTileRows;
    }

    // Rows a page apart would push one another out of the first cache: so many lie in a tile.
    static int64_t row_bytes(int64_t features, const Weight&) {
        const int64_t bytes = round_up(features, kRowAlign) * sizeof(Input);
        return bytes + (bytes % kPageBytes == 0 ? kLineBytes : 0);
    }
    static Rows rows_in(uint8_t* memory, int64_t, int64_t features, const Weight& weight) {
        return {reinterpret_cast<const Input*>(memory), static_cast<int64_t>(row_bytes(features, weight) / sizeof(Input)),
                round_up(features, Format::kDepth)};
    }
    // Rounded, or filled up with a zero, if the format wants that.
    static void put_row(const Rows& to, int64_t row, const float* from, int64_t features) {
        auto* values = const_cast<Input*>(to.values) + row * to.stride;
        fill_row(values, from, features);
        for (int64_t i = features; i < to.in_features; ++i) values[i] = 0;
    }
    static void take_row(const Rows& to, int64_t row, const Experts& experts, int64_t token) {
        put_row(to, row, experts.input + token * experts.hidden, experts.hidden);
    }

    struct Block {
        const Product<Rows>& product;
        const RowRange rows;
        static int64_t ready_bytes(const Product<Rows>&, int64_t) { return 0; }
        static int64_t working_bytes(const Product<Rows>&, int64_t) { return 0; }
        Block(const Product<Rows>& product, RowRange rows, void*) : product(product), rows(rows) {}

        // The rows meet a panel in tiles as even as they go.
        void multiply(int64_t panel, Target target, void*) const {
            constexpr int64_t kStepBytes = kPanel * Format::kDepth * sizeof(typename Format::Stored);
            const auto* weights = reinterpret_cast<const uint8_t*>(float_panel<Format>(product.weight, panel));
            const int64_t bytes = panel_bytes(product.weight);
            const bool to_first_cache = fetches_to_first_cache(rows);
            over_tiles<kMostTileRows>(rows, [&](RowRange own, int64_t tile, int64_t num_tiles) {
                const Fetch ahead = fetch_for(weights, bytes, kStepBytes, tile, num_tiles, to_first_cache);
                with_rows<kMostTileRows>(own.count, [&](auto count) {
                    multiply_tile<Format, count>(product, panel, own.first, target.from(own.first - rows.first, 0), ahead);
                });
            });
        }
    };
};

// The caller's rows where the format takes them as they are; else a copy in scratch memory.
template <class Format>
FloatRows<Format> prepare(const Linear& linear, int64_t num_rows) {
    const int64_t count = linear.weight.in_features;
    if constexpr (std::is_same_v<typename Format::Input, float>) {
        if (count % Format::kDepth == 0) return {linear.input, count, count};
    }
    void* memory = region_scratch(num_rows * Float<Format>::row_bytes(count, linear.weight));
    const auto rows = Float<Format>::rows_in(static_cast<uint8_t*>(memory), num_rows, count, linear.weight);
    over_rows(num_rows, count, [&](int64_t row) {
        Float<Format>::put_row(rows, row, linear.input + row * count, count);
    });
    return rows;
}

#if defined(__AMX_BF16__)
// The rows rounded, and filled up with zeros, as tiles read them.
TiledRows tile_floats(const Linear& linear, int64_t num_rows) {
    constexpr int64_t kStep = kStepBytes / sizeof(uint16_t);
    const int64_t width = linear.weight.in_features;
    const TiledRows tiled = TiledRows::in_scratch(num_rows, round_up(width, kStep) * sizeof(uint16_t));
    over_rows(num_rows, width, [&](int64_t row) {
        const float* from = linear.input + row * width;
        for (int64_t step = 0; step < tiled.num_steps; ++step) {
            auto* to = reinterpret_cast<uint16_t*>(tiled.at(row, step));
            const int64_t count = std::min(kStep, width - step * kStep);
            if (count < kStep) std::fill(to, to + kStep, uint16_t{0});
            over_lanes(count, [&](int64_t i, auto lanes) {
                store_bf16(to + i, load(from + step * kStep + i, lanes), lanes);
            });
        }
    });
    return tiled;
}

void finish_square(const Linear& linear, const float (*sums)[kPanel], int64_t panel, RowRange rows, Target target) {
    over_outputs(panel * kPanel, linear.weight.out_features, [&](auto v, auto lanes) PENSTOCK_INLINE {
        const Vec bias = linear.bias ? load(linear.bias + panel * kPanel + v * kLanes, lanes) : zero();
        for (int64_t i = 0; i < rows.count; ++i)
            store(target.row(i) + v * kLanes, load(sums[i] + v * kLanes) + bias, lanes);
    });
}

// Any number of rows goes through tiles: they add in an order of their own, pairs of a step before the sum so far.
template <class Format>
constexpr bool kIsTiled = std::is_same_v<Format, Bf16> || std::is_same_v<Format, Fp16>;

template <class Format, class Output>
void multiply_in_squares(const Linear& linear, const Output& output) {
    if constexpr (std::is_same_v<Format, Fp16>) return multiply_pairs_in_squares(linear, output);
    const TiledRows input = tile_floats(linear, *linear.num_rows);
    const int64_t panel_bytes = padded_in(linear.weight) * kPanel * sizeof(uint16_t);
    over_square_chunks<Output>(linear.weight, panel_bytes, *linear.num_rows, [&](const Panels& panels, RowRange block) {
        over_squares(block, kStepBytes, [&](RowRange rows, auto is_tall) {
            multiply_squares<Bf16ByBf16, is_tall>(input, panels, rows, output);
        });
    });
}

auto finish_of(const Linear& linear) {
    return [&linear](const float(*sums)[kPanel], int64_t panel, RowRange rows, Target target) {
        finish_square(linear, sums, panel, rows, target);
    };
}
#endif

template <class Format>
void linear_float(const Linear& linear) {
    if (*linear.num_rows == 0) return;
#if defined(__AMX_BF16__)
    if constexpr (kIsTiled<Format>)
        return multiply_in_squares<Format>(linear, PlainOutput{linear, finish_of(linear)});
#endif
    const Product<FloatRows<Format>> product{prepare<Format>(linear, *linear.num_rows), linear.weight, linear.bias};
    multiply_in_tiles<Float<Format>>(product, *linear.num_rows, Target{linear.output, linear.output_stride});
}

template <class Format>
void gated_linear_float(const GatedLinear& gated) {
    const Linear& linear = *gated.product;
#if defined(__AMX_BF16__)
    if constexpr (kIsTiled<Format>)
        if (*linear.num_rows > 0 && gated.gate->width % kPanel == 0)
            return multiply_gated(gated, finish_of(linear),
                                  [&](const auto& output) { multiply_in_squares<Format>(linear, output); });
#endif
    if (*linear.num_rows == 0) return;
    multiply_gated_in_tiles<Float<Format>>(gated, {prepare<Format>(linear, *linear.num_rows), linear.weight, linear.bias});
}

const Linear& linear_at(const void* arguments) { return *static_cast<const Linear*>(arguments); }
const Experts& experts_at(const void* arguments) { return *static_cast<const Experts*>(arguments); }
const GatedLinear& gated_at(const void* arguments) { return *static_cast<const GatedLinear*>(arguments); }

}  // namespace
}  // namespace penstock

using namespace penstock;
extern "C" void penstock_linear_fp32(const void* arguments) { linear_float<Fp32>(linear_at(arguments)); }
extern "C" void penstock_linear_fp16(const void* arguments) { linear_float<Fp16>(linear_at(arguments)); }
extern "C" void penstock_linear_bf16(const void* arguments) { linear_float<Bf16>(linear_at(arguments)); }
extern "C" void penstock_gated_linear_fp32(const void* arguments) { gated_linear_float<Fp32>(gated_at(arguments)); }
extern "C" void penstock_gated_linear_fp16(const void* arguments) { gated_linear_float<Fp16>(gated_at(arguments)); }
extern "C" void penstock_gated_linear_bf16(const void* arguments) { gated_linear_float<Bf16>(gated_at(arguments)); }
extern "C" void penstock_experts_fp32(const void* arguments) { compute_experts<Float<Fp32>>(experts_at(arguments)); }
extern "C" void penstock_experts_fp16(const void* arguments) { compute_experts<Float<Fp16>>(experts_at(arguments)); }
extern "C" void penstock_experts_bf16(const void* arguments) { compute_experts<Float<Bf16>>(experts_at(arguments)); }

#if defined(__AVX512BF16__)
// With the bits of processors that have no such instructions.
extern "C" void penstock_linear_bf16_portable(const void* arguments) { linear_float<Bf16Widened>(linear_at(arguments)); }
extern "C" void penstock_gated_linear_bf16_portable(const void* arguments) {
    gated_linear_float<Bf16Widened>(gated_at(arguments));
}
extern "C" void penstock_experts_bf16_portable(const void* arguments) {
    compute_experts<Float<Bf16Widened>>(experts_at(arguments));
}
#endif
#if defined(__AMX_BF16__)
namespace {
struct Fp16Widened : Fp16 {};
}  // namespace
extern "C" void penstock_linear_fp16_portable(const void* arguments) { linear_float<Fp16Widened>(linear_at(arguments)); }
extern "C" void penstock_gated_linear_fp16_portable(const void* arguments) {
    gated_linear_float<Fp16Widened>(gated_at(arguments));
}
#endif
