// output[i] = scale × table[token_ids[i] - first] as float32; zeros where this table doesn't hold the id.
//
// A table is plain rows, or a weight packed for products, so that a head that shares it needs no second copy: its rows
// are then gathered from a panel, a run of input features at a time.
#include "block_types.hpp"
#include "float_formats.hpp"
#include "rows.hpp"
#include "step.hpp"
#include "unpack.hpp"

namespace penstock {

struct Embedding {
    const int32_t* num_rows;
    const int64_t* const* token_ids;  // where the step says which tokens
    int64_t first;                    // the id of the table's first row
    int64_t kind;                     // an index of kReaders
    float scale;
    Weight table;                     // plain rows: `panels` are [out_features, in_features]
    float* output;                    // [rows, in_features]
};

namespace {

inline void widen(float* to, const float* from, int64_t count, Fp32) { std::memcpy(to, from, count * sizeof *to); }
inline void widen(float* to, const uint16_t* from, int64_t count, Fp16) {
    over_lanes(count, [&](int64_t i, auto lanes) { store(to + i, load_fp16(from + i, lanes), lanes); });
}
inline void widen(float* to, const uint16_t* from, int64_t count, Bf16) {
    over_lanes(count, [&](int64_t i, auto lanes) { store(to + i, load_bf16(from + i, lanes), lanes); });
}

template <class Format>
void read_plain(const Weight& table, int64_t row, float* to) {
    const auto* rows = reinterpret_cast<const typename Format::Stored*>(table.panels);
    widen(to, rows + row * table.in_features, table.in_features, Format{});
}

template <class Format>
void read_packed(const Weight& table, int64_t row, float* to) {
    constexpr int64_t kRun = 64, kDepth = Format::kDepth;
    const auto* column = float_panel<Format>(table, row / kPanel) + row % kPanel * kDepth;
    typename Format::Stored run[kRun];
    for (int64_t start = 0; start < table.in_features; start += kRun) {
        const int64_t count = std::min(kRun, table.in_features - start);
        const auto* from = column + start * kPanel;
        for (int64_t i = 0; i < count; ++i) run[i] = from[i / kDepth * kPanel * kDepth + i % kDepth];
        widen(to + start, run, count, Format{});
    }
}

void read_block_row(const Weight& table, int64_t row, float* to) {
    block_kernels(table.block_type).read_row(table, row, to);
}

using ReadRow = void (*)(const Weight&, int64_t row, float* to);
constexpr ReadRow kReaders[] = {read_plain<Fp32>,  read_plain<Fp16>,  read_plain<Bf16>, read_packed<Fp32>,
                                read_packed<Fp16>, read_packed<Bf16>, unpack_int8_row,  unpack_int4_row,
                                read_block_row};

void multiply(float* row, float factor, int64_t width) {
    const Vec scale = broadcast(factor);
    over_lanes(width, [&](int64_t i, auto lanes) { store(row + i, load(row + i, lanes) * scale, lanes); });
}

void embed(const Embedding& embedding) {
    const Weight& table = embedding.table;
    const int64_t* token_ids = *embedding.token_ids;
    const ReadRow read = kReaders[embedding.kind];
    over_rows(*embedding.num_rows, table.in_features, [&](int64_t row) {
        const int64_t local = token_ids[row] - embedding.first;
        float* output = embedding.output + row * table.in_features;
        if (local >= 0 && local < table.out_features) {
            read(table, local, output);
            if (embedding.scale != 1.0f) multiply(output, embedding.scale, table.in_features);
        } else {
            std::memset(output, 0, table.in_features * sizeof(float));
        }
    });
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_embedding(const void* arguments) {
    penstock::embed(*static_cast<const penstock::Embedding*>(arguments));
}
