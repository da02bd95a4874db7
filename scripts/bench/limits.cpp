// What this machine gives at most: bytes read from memory a second, and multiply-adds a second from registers.
//
//   machine_limits THREADS [read]        one JSON object; with `read` only the bandwidth, in about 0.3 s
//
// Arithmetic: 12 independent accumulators a thread (enough to hide the latency of two units), every operand in a
// register, so that what is measured is the units and not the caches. Where there are tiles, 8-bit and bfloat16
// figures are theirs. An operation counts as two (multiply, add).
// Reading: each thread sums its own part of a buffer far larger than any cache, on huge pages where the kernel grants
// them. Compiled on the spot with -march=native; a figure that the processor has no unit for is null.

#include <immintrin.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace {

constexpr int num_accumulators = 12;
constexpr int num_repeats = 4;
constexpr int64_t read_bytes = int64_t{768} << 20;
std::atomic<int64_t> sink{0};  // results go somewhere, so that nothing is optimized away

#if defined(__AVX512F__)
using Integers = __m512i;
using Floats = __m512;
Integers integers(int value) { return _mm512_set1_epi32(value); }
Floats floats(float value) { return _mm512_set1_ps(value); }
Integers load(const void* from) { return _mm512_loadu_si512(from); }
Integers either(Integers a, Integers b) { return _mm512_or_si512(a, b); }
#else
using Integers = __m256i;
using Floats = __m256;
Integers integers(int value) { return _mm256_set1_epi32(value); }
Floats floats(float value) { return _mm256_set1_ps(value); }
Integers load(const void* from) { return _mm256_loadu_si256(static_cast<const Integers*>(from)); }
Integers either(Integers a, Integers b) { return _mm256_or_si256(a, b); }
#endif

// Each step is one instruction written out: left to the compiler, accumulators get copied or spilled, and the figure
// comes out at half or less.
struct Fma {
    using Register = Floats;
    static constexpr int64_t operations = 2 * sizeof(Floats) / 4;
    static Register start(int number) { return floats(1.0f + static_cast<float>(number)); }
    static Register factor(int number) { return floats(number == 0 ? 0.999f : 1e-3f); }
    static void step(Register& accumulator, Register a, Register b) {
        asm volatile("vfmadd231ps %2, %1, %0" : "+v"(accumulator) : "v"(a), "v"(b));
    }
};

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define PROBE_HAS_INT8 1
struct Int8 {
    using Register = Integers;
    static constexpr int64_t operations = 2 * sizeof(Integers);
    static Register start(int number) { return integers(number); }
    static Register factor(int number) { return integers(number == 0 ? 0x01020304 : 0x04030201); }
    static void step(Register& accumulator, Register a, Register b) {
#if defined(__AVX512VNNI__)
        asm volatile("vpdpbusd %2, %1, %0" : "+v"(accumulator) : "v"(a), "v"(b));
#else
        asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(accumulator) : "x"(a), "x"(b));
#endif
    }
};
#endif

#if defined(__AVX512BF16__)
#define PROBE_HAS_BF16 1
struct Bf16 {
    using Register = Floats;
    static constexpr int64_t operations = 2 * sizeof(Floats) / 2;
    static Register start(int number) { return floats(static_cast<float>(number)); }
    static Register factor(int number) { return floats(number == 0 ? 1.0f : 0.5f); }
    static void step(Register& accumulator, Register a, Register b) {
        asm volatile("vdpbf16ps %2, %1, %0" : "+v"(accumulator) : "v"(a), "v"(b));
    }
};
#endif

#if defined(__AMX_TILE__)
// Products of tiles of 16 rows of 64 bytes: 16 × 16 sums of as many products as 64 bytes hold.
struct alignas(64) TileShapes {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t num_rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
struct Int8Tiles {
    static constexpr int64_t operations = 2 * 16 * 16 * 64;
    static void step() {
        asm volatile("tdpbusd %tmm7, %tmm6, %tmm0\n tdpbusd %tmm7, %tmm6, %tmm1\n"
                     "tdpbusd %tmm7, %tmm6, %tmm2\n tdpbusd %tmm7, %tmm6, %tmm3");
    }
};
struct Bf16Tiles {
    static constexpr int64_t operations = 2 * 16 * 16 * 32;
    static void step() {
        asm volatile("tdpbf16ps %tmm7, %tmm6, %tmm0\n tdpbf16ps %tmm7, %tmm6, %tmm1\n"
                     "tdpbf16ps %tmm7, %tmm6, %tmm2\n tdpbf16ps %tmm7, %tmm6, %tmm3");
    }
};
#endif

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double seconds_of(int num_threads, const std::function<void(int)>& task) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int number = 1; number < num_threads; ++number) threads.emplace_back(task, number);
    task(0);
    for (auto& thread : threads) thread.join();
    return seconds_since(start);
}

template <class Kind>
void compute(int64_t iterations) {
    typename Kind::Register accumulators[num_accumulators];
#pragma GCC unroll 12
    for (int number = 0; number < num_accumulators; ++number) accumulators[number] = Kind::start(number);
    const auto a = Kind::factor(0);
    const auto b = Kind::factor(1);
    for (int64_t iteration = 0; iteration < iterations; iteration += num_repeats) {
#pragma GCC unroll 4
        for (int repeat = 0; repeat < num_repeats; ++repeat) {
#pragma GCC unroll 12
            for (int number = 0; number < num_accumulators; ++number) Kind::step(accumulators[number], a, b);
        }
    }
    int64_t total = 0;
#pragma GCC unroll 12
    for (int number = 0; number < num_accumulators; ++number) {
        const auto accumulator = accumulators[number];
        int32_t first;
        std::memcpy(&first, &accumulator, sizeof(first));
        total += first;
    }
    sink += total;
}

// Operations a second of all threads together, in 1e9: the best of seven short runs.
template <class Kind>
double compute_rate(int num_threads) {
    constexpr int64_t iterations = 8'000'000;
    double best = 0;
    for (int run = 0; run < 7; ++run) {
        const double seconds = seconds_of(num_threads, [](int) { compute<Kind>(iterations); });
        best = std::max(best, double(num_threads) * iterations * num_accumulators * Kind::operations / seconds / 1e9);
    }
    return best;
}

#if defined(__AMX_TILE__)
template <class Kind>
double tile_rate(int num_threads) {
    constexpr int64_t iterations = 1'000'000;
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    if (syscall(SYS_arch_prctl, request_permission, tile_data) != 0) return 0;
    double best = 0;
    for (int run = 0; run < 7; ++run) {
        const double seconds = seconds_of(num_threads, [](int) {
            const TileShapes shapes;
            asm volatile("ldtilecfg %0" ::"m"(shapes));
            asm volatile("tilezero %tmm6\n tilezero %tmm7");
            for (int64_t iteration = 0; iteration < iterations; ++iteration) Kind::step();
            asm volatile("tilerelease");
        });
        best = std::max(best, double(num_threads) * iterations * 4 * Kind::operations / seconds / 1e9);
    }
    return best;
}
#endif

void read_part(const char* from, int64_t bytes) {
    constexpr int64_t line = 64, stride = 8 * line;
    Integers seen = integers(0);
    for (int64_t offset = 0; offset + stride <= bytes; offset += stride) {
#pragma GCC unroll 16
        for (int64_t within = 0; within < stride; within += sizeof(Integers))
            seen = either(seen, load(from + offset + within));
        for (int64_t within = 0; within < stride; within += line) _mm_prefetch(from + offset + within + 4096, _MM_HINT_T0);
    }
    int32_t first;
    std::memcpy(&first, &seen, sizeof(first));
    sink += first;
}

void print_read_bandwidth(int num_threads, int runs) {
    auto* buffer = static_cast<char*>(
        mmap(nullptr, read_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (buffer == MAP_FAILED) {
        std::fprintf(stderr, "machine_limits: %lld MiB of memory are needed and not available\n", (long long)(read_bytes >> 20));
        std::exit(1);
    }
    madvise(buffer, read_bytes, MADV_HUGEPAGE);
    const int64_t part = read_bytes / num_threads / 4096 * 4096;
    seconds_of(num_threads, [&](int number) { std::memset(buffer + number * part, 1, part); });
    std::vector<double> rates;
    for (int run = 0; run < runs; ++run) {
        const double seconds = seconds_of(num_threads, [&](int number) { read_part(buffer + number * part, part); });
        rates.push_back(double(part) * num_threads / seconds / 1e9);
    }
    std::sort(rates.begin(), rates.end());
    std::printf("\"read_gb_s\": {\"median\": %.2f, \"best\": %.2f}", rates[rates.size() / 2], rates.back());
    munmap(buffer, read_bytes);
}

}  // namespace

int main(int count, char** words) {
    const int num_threads = count > 1 ? std::max(1, std::atoi(words[1])) : 1;
    const bool only_read = count > 2 && std::strcmp(words[2], "read") == 0;
    std::printf("{\"threads\": %d, ", num_threads);
    print_read_bandwidth(num_threads, only_read ? 7 : 15);
    if (!only_read) {
        std::printf(", \"float32_gflop_s\": %.1f", compute_rate<Fma>(num_threads));
#if defined(__AMX_INT8__)
        std::printf(", \"int8_gop_s\": %.1f", tile_rate<Int8Tiles>(num_threads));
#elif defined(PROBE_HAS_INT8)
        std::printf(", \"int8_gop_s\": %.1f", compute_rate<Int8>(num_threads));
#else
        std::printf(", \"int8_gop_s\": null");
#endif
#if defined(__AMX_BF16__)
        std::printf(", \"bfloat16_gflop_s\": %.1f", tile_rate<Bf16Tiles>(num_threads));
#elif defined(PROBE_HAS_BF16)
        std::printf(", \"bfloat16_gflop_s\": %.1f", compute_rate<Bf16>(num_threads));
#else
        std::printf(", \"bfloat16_gflop_s\": null");
#endif
    }
    std::printf("}\n");
    return 0;
}
