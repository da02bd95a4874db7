// Weights as 8-bit integers, one scale per output feature: w ≈ scale × q, stored as q + 128.
//
//   scale = max|w| / 127        q = round(w × (127 / max|w|)), to even
//
// A chunk is one panel: its rows are read once for their largest magnitude, and then, some inputs of all rows at a
// time, from the cache.
#include "pack.hpp"

#include "pool.hpp"
#include "quantize.hpp"

namespace penstock {
namespace {

constexpr int64_t kBlockInputs = 512;  // of 32 rows: a share of a panel that stays in the first cache

// Where weight [row, input] lies; four inputs are neighbours.
uint8_t* place_int8(const Weight& weight, int64_t row, int64_t input) {
    const int64_t panel_bytes = padded_in(weight) * kPanel;
    return const_cast<uint8_t*>(weight.panels) + row / kPanel * panel_bytes + input / 4 * (kPanel * 4) +
           row % kPanel * 4;
}

void scatter(uint8_t* to, const uint8_t* values, int64_t count) {
    for (int64_t i = 0; i < count; i += 4) std::memcpy(to + i * kPanel, values + i, 4);
}

// values[i] = round(x[i] × inverse) + 128, and 128 beyond the count.
void round_all(uint8_t* values, const float* x, int64_t count, float inverse) {
    std::memset(values, kInt8Zero, round_up(count, kRowAlign));
    over_lanes(count, [&](int64_t i, auto lanes) {
        const Ints rounded = round_to_int(load(x + i, lanes) * broadcast(inverse));
        // Stored signed, since some processors can only saturate to that: the offset of 128 turns the highest bit.
        store_int8(reinterpret_cast<int8_t*>(values) + i, rounded);
        for (int64_t lane = 0; lane < kLanes; ++lane) values[i + lane] ^= 0x80;
    });
}

void pack_panel(const Pack& pack, PanelRows rows) {
    const int64_t width = pack.weight.in_features;
    float block[kBlockInputs + kRowAlign];
    uint8_t values[kBlockInputs + kRowAlign];
    float inverses[kPanel];
    for (int64_t i = 0; i < rows.count; ++i) {
        float magnitude = 0;
        for (int64_t k = 0; k < width; k += kBlockInputs) {
            const int64_t count = std::min(kBlockInputs, width - k);
            read_source(block, pack, rows.first + i, k, count);
            magnitude = larger(magnitude, largest_magnitude(block, count));
        }
        inverses[i] = magnitude < kSmallest ? 0.0f : 127.0f / magnitude;
        const_cast<float*>(pack.weight.scales)[pack.first_row + rows.first + i] =
            magnitude < kSmallest ? 0.0f : magnitude / 127.0f;
    }
    for (int64_t k = 0; k < width; k += kBlockInputs) {
        const int64_t count = std::min(kBlockInputs, width - k);
        for (int64_t i = 0; i < rows.count; ++i) {
            read_source(block, pack, rows.first + i, k, count);
            round_all(values, block, count, inverses[i]);
            scatter(place_int8(pack.weight, pack.first_row + rows.first + i, k), values, round_up(count, 4));
        }
    }
}

void pack_values(const PackValues& pack, PanelRows rows) {
    const int64_t width = pack.weight.in_features;
    uint8_t values[kBlockInputs] = {};
    for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
        const_cast<float*>(pack.weight.scales)[pack.first_row + row] = pack.scales[row];
        for (int64_t k = 0; k < width; k += kBlockInputs) {
            const int64_t count = std::min(kBlockInputs, width - k);
            for (int64_t i = 0; i < count; ++i) values[i] = pack.values[row * width + k + i] ^ 0x80;  // + 128
            scatter(place_int8(pack.weight, pack.first_row + row, k), values, round_up(count, 4));
        }
    }
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_pack_int8(const void* arguments) {
    const auto& pack = *static_cast<const penstock::Pack*>(arguments);
    penstock::over_panels(pack.num_rows, pack.first_row,
                          [&](penstock::PanelRows rows) { penstock::pack_panel(pack, rows); });
}
extern "C" void penstock_pack_int8_from(const void* arguments) {
    const auto& pack = *static_cast<const penstock::PackValues*>(arguments);
    penstock::over_panels(pack.num_rows, pack.first_row,
                          [&](penstock::PanelRows rows) { penstock::pack_values(pack, rows); });
}
