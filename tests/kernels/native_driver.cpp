// A program of its own around the pool, so that sanitizers see all of it: random regions on changing numbers of
// threads, a second caller, regions within regions, a fork. Prints "ok" or what went wrong.
//
// Each chunk writes plain memory that the caller reads afterwards: ThreadSanitizer sees a hand-over that is missing.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "pool.hpp"

namespace {

using penstock::parallel;

[[noreturn]] void fail(const char* what, int64_t region) {
    std::printf("%s in region %lld\n", what, static_cast<long long>(region));
    std::exit(1);
}

// Every chunk exactly once, seen by the caller as soon as the region is over.
void run_region(int64_t region, int64_t count, bool is_nested) {
    constexpr int64_t kInner = 3;
    std::vector<int64_t> times(count, 0), inner_times(count * kInner, 0);
    parallel(count, [&](int64_t chunk) {
        auto* scratch = static_cast<unsigned char*>(penstock::thread_scratch(64 + chunk % 5000));
        std::memset(scratch, static_cast<int>(chunk), 64 + chunk % 5000);
        times[chunk] += region + 1;
        if (is_nested) parallel(kInner, [&](int64_t inner) { ++inner_times[chunk * kInner + inner]; });
        if (scratch[63 + chunk % 5000] != static_cast<unsigned char>(chunk)) fail("shared scratch space", region);
    });
    for (const int64_t value : times)
        if (value != region + 1) fail("a chunk not run exactly once", region);
    for (const int64_t value : inner_times)
        if (value != is_nested) fail("a chunk within a chunk not run exactly once", region);
}

void run_regions(int64_t regions, unsigned seed, bool sets_threads) {
    std::mt19937 random(seed);
    for (int64_t region = 0; region < regions; ++region) {
        if (sets_threads && random() % 256 == 0) penstock_set_threads(1 + random() % 4);
        run_region(region, 1 + random() % (random() % 8 == 0 ? 300 : 12), random() % 16 == 0);
        // Long enough for helpers to fall asleep, now and then.
        if (random() % 512 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    }
}

void run_beside_another_caller(int64_t regions) {
    std::thread other([&] { run_regions(regions, 2, false); });
    run_regions(regions, 3, true);
    other.join();
}

void run_in_a_child() {
    penstock_set_threads(3);
    run_regions(10, 4, false);
    const pid_t child = fork();
    if (child == 0) {
        if (penstock::num_threads() != 1) _exit(2);
        run_regions(10, 5, false);
        penstock_set_threads(2);
        run_regions(100, 6, false);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) fail("a forked child that cannot work", status);
}

}  // namespace

int main(int count, char** arguments) {
    const int64_t regions = count > 1 ? std::atoll(arguments[1]) : 10000;
    penstock_set_threads(4);
    run_regions(regions, 1, true);
    run_beside_another_caller(regions / 2);
    // ThreadSanitizer does not allow threads in the child of a process that has several.
    if (count <= 2) run_in_a_child();
    penstock_set_threads(1);
    std::puts("ok");
    return 0;
}
