// Checksums of memory at the speed at which it is read: for each piece of a fixed length
//   sums[lane]     = Σ_i w[i, lane]      products[lane] = Σ_i low32(w[i, lane] ^ key_i) × high32(w[i, lane] ^ key_i)
// of its 64-bit words, eight lanes side by side, filled up with zeros, modulo 2^64.
//
// A change of one word always changes a sum. Several changes that cancel in the sums, as of words that have changed
// places, change the products: each row of words has a key of its own.
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "pool.hpp"

namespace penstock {
namespace {

constexpr int64_t kRow = 64;  // bytes: a word for each lane
constexpr int kSums = 16;     // of a piece: eight sums, eight products

struct Checksum {
    const unsigned char* content;
    int64_t nbytes;
    int64_t piece_bytes;
    uint64_t* checksums;  // [pieces, kSums]
};

// Four words of 64 bits, which the compiler keeps in registers of any width.
using Words = uint64_t __attribute__((vector_size(32)));

// Of each word, its low half times its high half.
inline Words half_products(Words words) {
#if defined(__AVX2__)
    const auto lanes = reinterpret_cast<__m256i>(words);
    return reinterpret_cast<Words>(_mm256_mul_epu32(lanes, _mm256_srli_epi64(lanes, 32)));
#else
    return (words & 0xffffffff) * (words >> 32);
#endif
}

struct Sums {
    Words sums[2] = {}, products[2] = {};
    Words key = Words{} + 0x9e3779b97f4a7c15;

    void add(const unsigned char* row) {
        for (int half = 0; half < 2; ++half) {
            Words words;
            std::memcpy(&words, row + half * sizeof words, sizeof words);
            sums[half] += words;
            products[half] += half_products(words ^ key);
        }
        key += 0x2545f4914f6cdd1d;
    }
};

void checksum_piece(const unsigned char* content, int64_t nbytes, uint64_t* checksums) {
    Sums found;
    const int64_t whole = nbytes / kRow * kRow;
    for (int64_t at = 0; at < whole; at += kRow) found.add(content + at);
    if (whole < nbytes) {
        unsigned char row[kRow] = {};
        std::memcpy(row, content + whole, nbytes - whole);
        found.add(row);
    }
    std::memcpy(checksums, found.sums, sizeof found.sums);
    std::memcpy(checksums + kSums / 2, found.products, sizeof found.products);
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_checksum(const void* arguments) {
    const auto& given = *static_cast<const penstock::Checksum*>(arguments);
    penstock::parallel((given.nbytes + given.piece_bytes - 1) / given.piece_bytes, [&](int64_t piece) {
        const int64_t start = piece * given.piece_bytes;
        const int64_t nbytes = std::min(given.piece_bytes, given.nbytes - start);
        penstock::checksum_piece(given.content + start, nbytes, given.checksums + piece * penstock::kSums);
    });
}
