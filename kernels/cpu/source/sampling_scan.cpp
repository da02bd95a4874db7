// largest = max(logits), best = its lowest id, is_finite = every logit is a finite number; row by row, read once.
//
// One pass leaves each block's maximum; the best token is then looked up in the first block that has the largest.
#include "sampling_calls.hpp"

namespace penstock {

// Any number times zero is zero, infinity and NaN are not.
static bool is_finite(const float* values, int64_t count) {
    Vec zeros = zero();
    over_lanes(count, [&](int64_t i, auto lanes) { zeros = fma(load(values + i, lanes), zero(), zeros); });
    return sum(zeros) == 0;
}

static int64_t place_of(float value, const float* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
        if (values[i] == value) return i;
    return 0;  // all are NaN
}

void scan(const Scan& scan) {
    const Logits& logits = scan.logits;
    const int64_t blocks = logits.num_blocks();
    std::memset(scan.is_finite, 1, logits.num_rows);
    over_blocks(logits, every_row, [&](int64_t row, int64_t block) {
        const float* values = logits.row(row) + block * kBlock;
        const int64_t count = logits.block_size(block);
        logits.maxima[row * blocks + block] = largest_of(values, count);
        // Threads may write one byte at once, and then write the same.
        if (!is_finite(values, count)) __atomic_store_n(scan.is_finite + row, 0, __ATOMIC_RELAXED);
    });
    for (int64_t row = 0; row < logits.num_rows; ++row) {
        const float* maxima = logits.maxima_of(row);
        scan.largest[row] = largest_of(maxima, blocks);
        const int64_t block = place_of(scan.largest[row], maxima, blocks);
        const float* values = logits.row(row) + block * kBlock;
        scan.best[row] = block * kBlock + place_of(scan.largest[row], values, logits.block_size(block));
    }
}

}  // namespace penstock

extern "C" void penstock_scan(const void* arguments) { penstock::scan(*static_cast<const penstock::Scan*>(arguments)); }
