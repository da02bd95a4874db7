// How integer products are cut into chunks for threads and into tiles for registers.
//
// A chunk is some whole panels times a block of rows, chosen by shapes alone. Within it a panel meets the rows tile by
// tile, so many at a time as registers hold, and as even as they go; the larger ones come first, for each change of size
// costs time. Each of the T tiles that meet a panel fetches the T-th part of what comes next, so that memory never rests:
// tile t at step k fetches what lies (t + T - 1) / T panels + k / T steps + kFetchAhead bytes further on.
#pragma once
#include <algorithm>
#include <new>
#include <utility>

#include "linear.hpp"
#include "pool.hpp"
#include "unrolled.hpp"

namespace penstock {

constexpr int64_t kVectors = kPanel / kLanes;  // vectors of a panel's lanes
constexpr int64_t kMinChunkBytes = 64 << 10;
constexpr int64_t kMaxChunkBytes = 256 << 10;
constexpr int64_t kFewestMadeReady = 3;  // rows
constexpr int64_t kFewestChunks = 16;
// So many rows keep the units busy, not memory: their chunks are small, so that no thread waits long for the last one, and
// what is made ready of them is made once for all chunks.
constexpr int64_t kFewestForUnits = 48;
constexpr int64_t kBlockBytes = 256 << 10;  // quantized rows that stay in the second cache beside a panel
constexpr int64_t kMaxBlockRows = 144;
constexpr int64_t kFetchAhead = 8192;
// So many rows keep memory and units busy at once: what is fetched into the first cache would there take the places in
// which it waits for the second one.
constexpr int64_t kFewestForSecondCache = 9, kMostForSecondCache = 16;

struct RowRange {
    int64_t first, count;
};

// Rows that meet a weight. Integer weights meet `Quantized`, float weights rows of their own (linear_float.cpp).
template <class Rows>
struct Product {
    Rows rows;
    Weight weight;
    const float* bias;  // [out_features], or null
};

// Rows of a panel's outputs, `stride` floats apart; null where there are none.
struct Target {
    float* first = nullptr;
    int64_t stride = 0;
    float* row(int64_t index) const { return first + index * stride; }
    Target from(int64_t row, int64_t output) const { return {first + row * stride + output, stride}; }
};

// Where the weights' bytes of the near future lie, and how many of them a step of this tile fetches.
struct Fetch {
    const char* next;
    int64_t bytes_per_step;
    bool to_first_cache;
};

template <int Lines>
inline void fetch(Fetch& ahead) {
    for (int line = 0; line < Lines; ++line) {
        if (ahead.to_first_cache) __builtin_prefetch(ahead.next + 64 * line);
        else __builtin_prefetch(ahead.next + 64 * line, 0, 2);
    }
    ahead.next += ahead.bytes_per_step;
}

// Calls body(std::integral_constant<int, rows>) for 1 ≤ rows ≤ MostRows.
template <class Body, int... Rows>
inline void with_rows_among(int rows, const Body& body, std::integer_sequence<int, Rows...>) {
    (void)((rows == Rows + 1 && (body(std::integral_constant<int, Rows + 1>{}), true)) || ...);
}
template <int MostRows, class Body>
inline void with_rows(int64_t rows, const Body& body) {
    with_rows_among(static_cast<int>(rows), body, std::make_integer_sequence<int, MostRows>{});
}

// The fewest rows of a tile where a block has several: for smaller tiles nobody has to compile that case.
template <int MostRows>
constexpr int kFewestOfSeveral = (MostRows + 1) / 2;

// Calls body(rows, tile, num_tiles) for each tile of the block.
template <int MostRows, class Body>
inline void over_tiles(RowRange block, const Body& body) {
    const int64_t num_tiles = (block.count + MostRows - 1) / MostRows;
    const int64_t rows = block.count / std::max<int64_t>(1, num_tiles), num_larger = block.count - rows * num_tiles;
    for (int64_t tile = 0, first = block.first; tile < num_tiles; ++tile) {
        const int64_t count = rows + (tile < num_larger ? 1 : 0);
        body(RowRange{first, count}, tile, num_tiles);
        first += count;
    }
}

inline Fetch fetch_for(const uint8_t* panel, int64_t panel_bytes, int64_t step_bytes, int64_t tile, int64_t num_tiles,
                       bool to_first_cache) {
    const int64_t lead = panel_bytes + (tile - 1) * (panel_bytes / num_tiles);
    return {reinterpret_cast<const char*>(panel) + lead + kFetchAhead, step_bytes / num_tiles, to_first_cache};
}

inline bool fetches_to_first_cache(RowRange block) {
    return block.count < kFewestForSecondCache || block.count > kMostForSecondCache;
}

// So many rows meet a chunk's panels that they stay in the second cache beside one.
inline int64_t rows_per_block(const Weight& weight) {
    const int64_t fitting = kBlockBytes / padded_in(weight) / kTileRows * kTileRows;
    return std::clamp<int64_t>(fitting, kTileRows, kMaxBlockRows);
}

// What a chunk makes ready of several rows serves a few panels, as long as there are chunks enough.
inline int64_t panels_per_chunk(int64_t panels, int64_t panel_bytes, int64_t num_rows) {
    const int64_t bytes = std::clamp(panels * panel_bytes / 8, kMinChunkBytes, kMaxChunkBytes);
    const int64_t fewest = num_rows < kFewestMadeReady ? 1 : std::clamp<int64_t>(panels / kFewestChunks, 1, 4);
    return num_rows < kFewestForUnits ? std::max(fewest, bytes / panel_bytes) : fewest;
}

// Blocks of a product's rows, each of whole tiles but the last. A kind's `Block` is some rows, made ready in memory for any
// panel of the weight: once for all chunks where the rows are many, else by each chunk for itself.
template <class Kind>
class RowBlocks {
    using Block = typename Kind::Block;
    using Product = penstock::Product<typename Kind::Rows>;

public:
    RowBlocks(const Product& product, int64_t num_rows) : product_(product), num_rows_(num_rows) {
        const int64_t most = Kind::rows_per_block(product);
        count_ = (num_rows + most - 1) / most;
        ready_bytes_ = round_up(Block::ready_bytes(product, std::min(most, num_rows)), kRowAlign);
        if (ready_bytes_ == 0 || num_rows < kFewestForUnits) return;
        auto* memory = static_cast<uint8_t*>(region_scratch(count_ * stride()));
        parallel(count_, [&](int64_t index) {
            uint8_t* own = memory + index * stride();
            new (own) Block(product_, rows(index), own + kOwnBytes);
        });
        ready_ = memory;
    }

    int64_t count() const { return count_; }

    // Calls body(block, memory of the thread's own to work in, so many bytes of it for the caller).
    template <class Body>
    void with(int64_t index, int64_t row_bytes, const Body& body) const {
        const int64_t own_bytes = rows(index).count * row_bytes;
        const int64_t working_bytes = round_up(Block::working_bytes(product_, rows(index).count), kRowAlign);
        auto* own = static_cast<uint8_t*>(thread_scratch(own_bytes + working_bytes + (ready_ ? 0 : ready_bytes_)));
        uint8_t* scratch = own + own_bytes;
        if (!ready_) return body(Block(product_, rows(index), scratch + working_bytes), scratch, own);
        body(*reinterpret_cast<const Block*>(ready_ + index * stride()), scratch, own);
    }

private:
    static constexpr int64_t kOwnBytes = (sizeof(Block) + kRowAlign - 1) / kRowAlign * kRowAlign;

    int64_t stride() const { return kOwnBytes + ready_bytes_; }
    RowRange rows(int64_t index) const {
        constexpr int64_t kRows = Kind::kMostTileRows;
        const int64_t num_tiles = (num_rows_ + kRows - 1) / kRows;
        const int64_t first = index * num_tiles / count_ * kRows, end = (index + 1) * num_tiles / count_ * kRows;
        return {first, std::min(end, num_rows_) - first};
    }

    const Product& product_;
    const int64_t num_rows_;
    int64_t count_, ready_bytes_;
    const uint8_t* ready_ = nullptr;  // of each block itself and what it has made ready; null: each chunk makes its own
};

// All rows of a product, in chunks that the threads share: calls body(block, panel, memory to work in, row_bytes of it for
// each of the block's rows) for the first so many panels of the weight, and leaves their products to it.
template <class Kind, class Body>
inline void over_panels_in_tiles(const Product<typename Kind::Rows>& product, int64_t num_rows, int64_t panels,
                                 int64_t group, int64_t row_bytes, const Body& body) {
    if (num_rows == 0) return;
    const int64_t num_groups = (panels + group - 1) / group;
    const RowBlocks<Kind> blocks(product, num_rows);
    // Neighbouring chunks share their weights.
    parallel(num_groups * blocks.count(), [&](int64_t chunk) {
        const int64_t first = chunk / blocks.count() * group;
        blocks.with(chunk % blocks.count(), row_bytes, [&](const auto& block, void* working, void* own) {
            for (int64_t panel = first; panel < std::min(panels, first + group); ++panel) body(block, panel, working, own);
        });
    });
}

template <class Kind>
inline void multiply_in_tiles(const Product<typename Kind::Rows>& product, int64_t num_rows, Target output) {
    const int64_t group = Kind::panels_per_chunk(product.weight, num_rows);
    over_panels_in_tiles<Kind>(product, num_rows, num_panels(product.weight), group, 0,
                               [&](const auto& block, int64_t panel, void* working, void*) {
        block.multiply(panel, output.from(block.rows.first, panel * kPanel), working);
    });
}

// A tile's sums: one vector for each row and each vector of the panel.
template <class Lanes, int Rows>
struct TileOf {
    Lanes of[Rows][kVectors];
};

// Calls body(row, vector) for each vector of a tile, both constants.
template <int Rows, class Body>
PENSTOCK_INLINE inline void over_tile(const Body& body) {
    unrolled<Rows>([&](auto r) PENSTOCK_INLINE { unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { body(r, v); }); });
}

// One step: sums += weights × four inputs of each row.
template <int Rows>
PENSTOCK_INLINE inline void dot_step(TileOf<Ints, Rows>& sums, const Bytes (&weights)[kVectors], const int8_t* inputs,
                                     int64_t stride) {
    unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
        const Inputs four = broadcast_inputs(inputs + r * stride);
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { sums.of[r][v] = dot(sums.of[r][v], weights[v], four); });
    });
}

// sums += panel × rows over `num_steps` steps of four inputs; `panel` is [step][32][4].
template <int Rows, int Lines>
PENSTOCK_INLINE inline void dot_tile(TileOf<Ints, Rows>& sums, const uint8_t* panel, const int8_t* inputs,
                                     int64_t stride, int64_t num_steps, Fetch& ahead) {
    const int8_t* end = inputs + num_steps * 4;
    for (; inputs < end; inputs += 4, panel += kPanel * 4) {
        fetch<Lines>(ahead);
        Bytes weights[kVectors];
        unrolled<kVectors>([&](auto v) PENSTOCK_INLINE { weights[v] = load_bytes(panel + v * kLanes * 4); });
        dot_step(sums, weights, inputs, stride);
    }
}

// Fetches the lines of the output that a tile will write, while it multiplies.
template <int Rows>
PENSTOCK_INLINE inline void fetch_output(Target target) {
    unrolled<Rows>([&](auto r) PENSTOCK_INLINE {
        __builtin_prefetch(target.row(r), 1);
        __builtin_prefetch(target.row(r) + kPanel / 2, 1);
    });
}

// Calls body(index of the vector, lanes) for the vectors of a panel that have output features.
template <class Body>
PENSTOCK_INLINE inline void over_outputs(int64_t first_output, int64_t out_features, const Body& body) {
    unrolled<kVectors>([&](auto v) PENSTOCK_INLINE {
        const int64_t left = out_features - first_output - v * kLanes;
        if (left >= kLanes) {
            body(v, AllLanes{});
        } else if (left > 0) {
            body(v, FirstLanes{left});
        }
    });
}

}  // namespace penstock
