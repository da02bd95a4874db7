// output = Σ over the ranks of their rows, added in the order of the ranks, so that all get the same bits.
//
// Ranks are processes of one machine that map each other's memory: a counter, and rows. A rank's products were written
// straight into its own rows. It counts up, waits until every other rank has counted as far, and adds all rows up into
// memory that no other rank sees. Nobody waits a second time: the next sum uses other rows, and who has arrived there
// has finished reading these.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>

#include "clock.hpp"
#include "pool.hpp"
#include "vector.hpp"

namespace penstock {
namespace {

struct Meeting {
    int64_t rank;
    int64_t size;
    std::atomic<uint32_t>* const* arrivals;  // [size]: each rank's counter, in its own memory
};

struct AllReduce {
    Meeting meeting;
    const int32_t* num_rows;
    int64_t width;
    const float* const* parts;  // [size] of [rows, width], each in its rank's memory
    float* output;              // [rows, width]
};

constexpr int64_t kChunk = 16 << 10;    // elements that one chunk adds up
constexpr int64_t kSpin = 50'000;       // nanoseconds

void wait_for(std::atomic<uint32_t>& counter, uint32_t wanted) {
    const auto has_arrived = [&](uint32_t seen) { return static_cast<int32_t>(seen - wanted) >= 0; };
    const int64_t until = steady_nanoseconds() + kSpin;
    do {
        for (int i = 0; i < 64; ++i)
            if (has_arrived(counter.load(std::memory_order_acquire))) return;
    } while (steady_nanoseconds() < until);
    for (uint32_t seen; !has_arrived(seen = counter.load(std::memory_order_acquire));)
        syscall(SYS_futex, &counter, FUTEX_WAIT, seen, nullptr, nullptr, 0);
}

void meet(const Meeting& meeting) {
    std::atomic<uint32_t>& own = *meeting.arrivals[meeting.rank];
    const uint32_t wanted = own.load(std::memory_order_relaxed) + 1;
    own.store(wanted, std::memory_order_release);
    syscall(SYS_futex, &own, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    for (int64_t rank = 0; rank < meeting.size; ++rank)
        if (rank != meeting.rank) wait_for(*meeting.arrivals[rank], wanted);
}

void all_reduce(const AllReduce& call) {
    meet(call.meeting);
    const int64_t total = *call.num_rows * call.width;
    parallel((total + kChunk - 1) / kChunk, [&](int64_t chunk) {
        const int64_t start = chunk * kChunk;
        const int64_t count = total - start < kChunk ? total - start : kChunk;
        over_lanes(count, [&](int64_t i, auto lanes) {
            Vec sum = load(call.parts[0] + start + i, lanes);
            for (int64_t rank = 1; rank < call.meeting.size; ++rank)
                sum = sum + load(call.parts[rank] + start + i, lanes);
            store(call.output + start + i, sum, lanes);
        });
    });
}

}  // namespace
}  // namespace penstock

// Waits until all ranks have come: what they wrote before is there to be read afterwards.
extern "C" void penstock_meet(const void* arguments) {
    penstock::meet(*static_cast<const penstock::Meeting*>(arguments));
}

extern "C" void penstock_all_reduce(const void* arguments) {
    penstock::all_reduce(*static_cast<const penstock::AllReduce*>(arguments));
}
