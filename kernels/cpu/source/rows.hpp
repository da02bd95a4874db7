// Operations on rows that don't meet: how they are shared among the threads.
#pragma once
#include <algorithm>
#include <cstdint>

#include "pool.hpp"

namespace penstock {

constexpr int64_t kRowChunkElements = 8192;  // less is not worth waking a thread for

// Calls body(row) once for every row, neighbours on one thread.
template <class Body>
inline void over_rows(int64_t num_rows, int64_t width, const Body& body) {
    const int64_t rows_per_chunk = std::max<int64_t>(1, kRowChunkElements / std::max<int64_t>(1, width));
    const int64_t num_chunks = (num_rows + rows_per_chunk - 1) / rows_per_chunk;
    parallel(num_chunks, [&](int64_t chunk) {
        const int64_t end = std::min(num_rows, (chunk + 1) * rows_per_chunk);
        for (int64_t row = chunk * rows_per_chunk; row < end; ++row) body(row);
    });
}

}  // namespace penstock
