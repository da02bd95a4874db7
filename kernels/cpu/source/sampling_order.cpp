// The `count` largest logits of each row, largest first, among equals the lowest id first.
//
// The count-th largest of the blocks' maxima is a bound: at least `count` tokens reach it, and all that come first do.
// So only blocks with such a token are looked at, and only what reaches the bound is put in order.
#include <algorithm>
#include <functional>

#include "sampling.hpp"

namespace penstock {

struct MostLikely {
    Logits logits;
    int64_t count;
    float* values;  // [rows, count]
    int64_t* ids;   // [rows, count]
};

static float bound_of(const Logits& logits, int64_t row, int64_t count, float* maxima) {
    const int64_t blocks = logits.num_blocks();
    if (count > blocks) return -INFINITY;
    std::memcpy(maxima, logits.maxima_of(row), blocks * sizeof(float));
    std::nth_element(maxima, maxima + count - 1, maxima + blocks, std::greater<float>());
    return maxima[count - 1];
}

int64_t most_likely(const Logits& logits, int64_t row, int64_t count, Key* keys, float* maxima) {
    const float bound = bound_of(logits, row, count, maxima);
    int64_t found = 0;
    for (int64_t block = 0; block < logits.num_blocks(); ++block) {
        if (logits.maxima_of(row)[block] < bound) continue;
        const int64_t first = block * kBlock;
        const float* values = logits.row(row) + first;
        for (int64_t i = 0; i < logits.block_size(block); ++i) {
            keys[found] = key_of(values[i], first + i);
            found += values[i] >= bound;
        }
    }
    if (found > count) {
        std::nth_element(keys, keys + count, keys + found, std::greater<Key>());
        found = count;
    }
    std::sort(keys, keys + found, std::greater<Key>());
    return found;
}

static void most_likely(const MostLikely& wanted) {
    const Logits& logits = wanted.logits;
    find_maxima(logits);
    parallel(logits.num_rows, [&](int64_t row) {
        Key* keys = static_cast<Key*>(thread_scratch(most_likely_bytes(logits)));
        float* maxima = reinterpret_cast<float*>(keys + logits.width + 1);
        const int64_t found = most_likely(logits, row, wanted.count, keys, maxima);
        for (int64_t i = 0; i < wanted.count; ++i) {
            wanted.values[row * wanted.count + i] = i < found ? logit_of(keys[i]) : NAN;
            wanted.ids[row * wanted.count + i] = i < found ? id_of(keys[i]) : 0;
        }
    });
}

}  // namespace penstock

extern "C" void penstock_most_likely(const void* arguments) {
    penstock::most_likely(*static_cast<const penstock::MostLikely*>(arguments));
}
