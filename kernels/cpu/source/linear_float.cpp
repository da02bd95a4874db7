// Products with weights stored as fp32, fp16 or bf16 (formats: float_formats.hpp).
//
//   output[m, n] = Σ_k input[m, k] × weight[n, k] + bias[n]
//
// A tile is some rows × a panel of 32 output features (or half of one, where registers are few); its sums stay in
// registers while k runs from the first to the last input feature. One sum an output, k ascending: so the bits are the
// same for every number of rows, threads and chunks. A chunk is a group of panels × a block of rows, and the block's
// input stays in the second cache beside one panel.
#include <type_traits>

#include "linear_amx.hpp"
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

template <class Format>
struct Product {
    const Linear& linear;
    const typename Format::Input* input;
    int64_t input_stride;
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
inline void write_sums(const Linear& linear, const Vec (&sums)[Rows][Vectors], int64_t first_row, int64_t output) {
    const int64_t left = linear.weight.out_features - output;
    over_lanes(std::min(left, Vectors * kLanes), [&](int64_t i, auto lanes) {
        const Vec bias = linear.bias ? load(linear.bias + output + i, lanes) : zero();
        for (int r = 0; r < Rows; ++r) {
            float* row = linear.output + (first_row + r) * linear.output_stride;
            store(row + output + i, sums[r][i / kLanes] + bias, lanes);
        }
    });
}

template <class Format, int Rows>
void multiply_tile(const Product<Format>& product, int64_t panel_index, int64_t first_row, Fetch ahead) {
    constexpr int kTileVectors = kFloatTileVectors<Rows>;
    constexpr int64_t kStep = kPanel * Format::kDepth;
    for (int first = 0; first < kVectors; first += kTileVectors) {
        const auto* panel = float_panel<Format>(product.linear.weight, panel_index) + first * kLanes * Format::kDepth;
        const auto* input = product.input + first_row * product.input_stride;
        Vec sums[Rows][kTileVectors];
        for (auto& row : sums)
            for (Vec& part : row) part = zero();
        for (int64_t k = 0; k < product.in_features; k += Format::kDepth, panel += kStep) {
            fetch<kStep * sizeof(*panel) / 64>(ahead);
            add_step<Format>(sums, panel, input + k, product.input_stride);
        }
        write_sums(product.linear, sums, first_row, panel_index * kPanel + first * kLanes);
    }
}

// The rows of a block meet a panel, in tiles as even as they go.
template <class Format>
void multiply_panel(const Product<Format>& product, int64_t panel, RowRange block) {
    constexpr int kMaxRows = kFloatTileRows<Format>;
    constexpr int64_t kStepBytes = kPanel * Format::kDepth * sizeof(typename Format::Stored);
    const int64_t panel_bytes = padded_in(product.linear.weight) * kPanel * sizeof(typename Format::Stored);
    const auto* weights = reinterpret_cast<const uint8_t*>(float_panel<Format>(product.linear.weight, panel));
    const int64_t num_tiles = (block.count + kMaxRows - 1) / kMaxRows;
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
        const int64_t first = tile * block.count / num_tiles, end = (tile + 1) * block.count / num_tiles;
        const Fetch ahead = fetch_for(weights, panel_bytes, kStepBytes, tile, num_tiles, fetches_to_first_cache(block));
        const auto multiply = [&](auto rows) {
            multiply_tile<Format, rows>(product, panel, block.first + first, ahead);
        };
        with_rows_among(static_cast<int>(end - first), multiply, std::make_integer_sequence<int, kMaxRows>{});
    }
}

template <class Format>
void multiply(const Product<Format>& product, int64_t num_rows) {
    constexpr int64_t kMaxRows = kFloatTileRows<Format>;
    const Weight& weight = product.linear.weight;
    const int64_t panel_bytes = padded_in(weight) * kPanel * sizeof(typename Format::Stored);
    const int64_t row_bytes = product.input_stride * sizeof(typename Format::Input);
    const int64_t group = std::max<int64_t>(1, kFloatChunkBytes / panel_bytes);
    const int64_t block = std::max<int64_t>(2, kFloatBlockBytes / row_bytes / kMaxRows) * kMaxRows;
    const int64_t num_groups = (num_panels(weight) + group - 1) / group;
    const int64_t num_blocks = (num_rows + block - 1) / block;
    // Neighbouring chunks share their weights.
    parallel(num_groups * num_blocks, [&](int64_t chunk) {
        const int64_t first_panel = chunk / num_blocks * group, first_row = chunk % num_blocks * block;
        const RowRange rows{first_row, std::min(block, num_rows - first_row)};
        for (int64_t panel = first_panel; panel < std::min(first_panel + group, num_panels(weight)); ++panel) {
            multiply_panel(product, panel, rows);
        }
    });
}

inline void fill_row(float* to, const float* from, int64_t count) { std::memcpy(to, from, count * sizeof(float)); }
inline void fill_row(uint16_t* to, const float* from, int64_t count) {
    over_lanes(count, [&](int64_t i, auto lanes) { store_bf16(to + i, load(from + i, lanes), lanes); });
}

// The caller's rows where the format takes them as they are; else rounded, or filled up with a zero, in scratch memory.
template <class Format>
Product<Format> prepare(const Linear& linear, int64_t num_rows) {
    using Input = typename Format::Input;
    const int64_t count = linear.weight.in_features, in_features = round_up(count, Format::kDepth);
    if constexpr (std::is_same_v<Input, float>) {
        if (in_features == count) return {linear, linear.input, count, count};
    }
    // Rows a page apart would push one another out of the first cache: so many lie in a tile.
    const int64_t row_bytes = round_up(in_features, kRowAlign) * sizeof(Input);
    const int64_t stride = (row_bytes + (row_bytes % kPageBytes == 0 ? kLineBytes : 0)) / sizeof(Input);
    Input* input = static_cast<Input*>(region_scratch(num_rows * stride * sizeof(Input)));
    over_rows(num_rows, count, [&](int64_t row) {
        fill_row(input + row * stride, linear.input + row * count, count);
        for (int64_t i = count; i < in_features; ++i) input[row * stride + i] = 0;
    });
    return {linear, input, stride, in_features};
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
template <class Output>
void multiply_in_squares(const Linear& linear, const Output& output) {
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
    if constexpr (std::is_same_v<Format, Bf16>)
        return multiply_in_squares(linear, PlainOutput{linear, finish_of(linear)});
#endif
    multiply(prepare<Format>(linear, *linear.num_rows), *linear.num_rows);
}

template <class Format>
void gated_linear_float(const GatedLinear& gated) {
    const Linear& linear = *gated.product;
#if defined(__AMX_BF16__)
    if (std::is_same_v<Format, Bf16> && *linear.num_rows > 0 && gated.activation->width % kPanel == 0)
        return multiply_gated(gated, finish_of(linear), [&](const auto& output) { multiply_in_squares(linear, output); });
#endif
    linear_float<Format>(linear);
    silu_multiply(*gated.activation);
}

const Linear& linear_at(const void* arguments) { return *static_cast<const Linear*>(arguments); }
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
