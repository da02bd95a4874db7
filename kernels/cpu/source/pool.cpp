// A region of work is one 64-bit word: its number, and how many of its chunks nobody has claimed yet.
//
// Whoever lowers the word by compare-and-swap owns the chunk that it stood for; a thread that read the task of an old
// region cannot, since the region's number has changed. The caller claims like everyone else, then waits for the
// chunks that others hold, never for a thread that has not come. Helpers look out for the next region for a short
// while, then sleep; so does the caller, because one that spins on may keep the thread it waits for off its core.
#include "pool.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "clock.hpp"
#include "old_glibc.hpp"

namespace penstock {
namespace {

using Task = void (*)(void*, int64_t);
constexpr int64_t kSpin = 50'000;  // nanoseconds
// Longer than a step's share of Python: a helper that sleeps between two steps comes late to the next one.
constexpr int64_t kYield = 2'000'000;
constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxChunks = UINT32_MAX;

constexpr uint64_t region_word(uint32_t region, uint32_t unclaimed) { return uint64_t{region} << 32 | unclaimed; }
constexpr uint32_t region_of(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
constexpr uint32_t unclaimed_of(uint64_t word) { return static_cast<uint32_t>(word); }

// Nothing here is ever destroyed: helpers may sleep in it while the process ends.
struct Pool {
    alignas(64) std::atomic<uint64_t> word{0};
    // Written while no chunk can be claimed; what is read before a claim that succeeds is the claimed chunk's.
    std::atomic<Task> task{nullptr};
    std::atomic<void*> context{nullptr};
    std::atomic<uint32_t> count{0};

    alignas(64) std::atomic<uint32_t> finished{0};  // chunks of this region
    std::atomic<bool> is_caller_asleep{false};
    alignas(64) std::atomic<bool> is_taken{false};  // by a caller
    std::atomic<int32_t> sleepers{0};
    std::atomic<int32_t> threads{1};   // wanted, the caller among them
    std::atomic<uint32_t> helpers{0};  // alive
};
Pool pool;

void futex_wait(const void* address, uint32_t value) {
    syscall(SYS_futex, address, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void futex_wake(const void* address, int count) {
    syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// The word's upper half, which sleeping helpers watch.
const void* region_address() { return reinterpret_cast<const char*>(&pool.word) + 4; }  // of a little-endian machine

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Whether it came true in that time; `looks` times between two looks at the clock, with a rest after each.
template <int looks, class Condition, class Rest>
bool watch(int64_t nanoseconds, const Condition& condition, const Rest& rest) {
    const int64_t until = steady_nanoseconds() + nanoseconds;
    do {
        for (int i = 0; i < looks; ++i) {
            if (condition()) return true;
            rest();
        }
    } while (steady_nanoseconds() < until);
    return condition();
}

// While spinning.
template <class Condition>
bool spin_until(const Condition& condition) {
    return watch<32>(kSpin, condition, [] { pause(); });
}

// While others that want the core have it first.
template <class Condition>
bool yield_until(const Condition& condition) {
    return watch<8>(kYield, condition, [] { sched_yield(); });
}

// Does chunks of the region that is open now until none is left to claim.
void work() {
    uint32_t done = 0;
    uint64_t word = pool.word.load(std::memory_order_acquire);
    while (unclaimed_of(word) > 0) {
        const Task task = pool.task.load(std::memory_order_relaxed);
        void* const context = pool.context.load(std::memory_order_relaxed);
        const uint32_t count = pool.count.load(std::memory_order_relaxed);
        if (!pool.word.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel, std::memory_order_acquire))
            continue;
        task(context, count - unclaimed_of(word));
        ++done;  // not yet reported, so the next region cannot open and its chunks are not counted with these
        word = pool.word.load(std::memory_order_acquire);
    }
    if (done == 0) return;
    const uint32_t count = pool.count.load(std::memory_order_relaxed);
    if (pool.finished.fetch_add(done) + done == count && pool.is_caller_asleep.load()) futex_wake(&pool.finished, 1);
}

void await_region(uint32_t count) {
    const auto is_finished = [&] { return pool.finished.load(std::memory_order_acquire) == count; };
    if (is_finished() || spin_until(is_finished)) return;
    pool.is_caller_asleep.store(true);
    for (uint32_t seen; (seen = pool.finished.load()) != count;) futex_wait(&pool.finished, seen);
    pool.is_caller_asleep.store(false);
}

void open_region(uint32_t count, Task task, void* context) {
    pool.task.store(task, std::memory_order_relaxed);
    pool.context.store(context, std::memory_order_relaxed);
    pool.count.store(count, std::memory_order_relaxed);
    pool.finished.store(0, std::memory_order_relaxed);
    pool.word.store(region_word(region_of(pool.word.load(std::memory_order_relaxed)) + 1, count));
    // A helper counts itself before it looks at the word a last time: either it sees the region, or it is seen here.
    const int32_t asleep = pool.sleepers.load();
    const int64_t useful = static_cast<int64_t>(count) - 1;
    if (asleep > 0) futex_wake(region_address(), static_cast<int>(asleep < useful ? asleep : useful));
}

void sleep_until_region_changes(uint32_t seen) {
    pool.sleepers.fetch_add(1);
    if (region_of(pool.word.load()) == seen) futex_wait(region_address(), seen);
    pool.sleepers.fetch_sub(1);
}

void* help(void* index) {
    const auto own = static_cast<int32_t>(reinterpret_cast<intptr_t>(index));
    while (own < pool.threads.load()) {
        work();
        const uint32_t seen = region_of(pool.word.load());
        const auto has_work = [&] { return unclaimed_of(pool.word.load(std::memory_order_acquire)) > 0; };
        if (!spin_until(has_work) && !yield_until(has_work) && own < pool.threads.load())
            sleep_until_region_changes(seen);
    }
    pool.helpers.fetch_sub(1);
    futex_wake(&pool.helpers, INT_MAX);
    return nullptr;
}

void start_helper(int32_t index) {
    // Signals are for the threads of the program around us.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    pool.helpers.fetch_add(1);
    if (pthread_create(&thread, nullptr, help, reinterpret_cast<void*>(static_cast<intptr_t>(index))) == 0) {
        pthread_setname_np(thread, "penstock-help");
        pthread_detach(thread);
    } else {
        pool.helpers.fetch_sub(1);  // fewer threads do the same work
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// A child has only the thread that forked: no helpers, and no caller that another thread was.
void forget_threads() {
    pool.word.store(region_word(region_of(pool.word.load()) + 1, 0));
    pool.threads.store(1);
    pool.helpers.store(0);
    pool.sleepers.store(0);
    pool.is_caller_asleep.store(false);
    pool.is_taken.store(false);
}

struct Scratch {
    void* memory;
    size_t size;
};
thread_local Scratch of_chunk, of_region;

void free_scratch(void*) {
    std::free(of_chunk.memory);
    std::free(of_region.memory);
}

// Registered while the library is loaded; frees the scratch memory of each thread that has set the key and ends.
const pthread_key_t at_thread_end = [] {
    pthread_key_t key;
    if (pthread_key_create(&key, free_scratch) != 0) {
        std::fprintf(stderr, "penstock: this process has no key for memory of threads left\n");
        std::abort();
    }
    pthread_atfork(nullptr, nullptr, forget_threads);
    return key;
}();

}  // namespace

void run_chunks(int64_t count, void (*task)(void*, int64_t), void* context) {
    const bool is_shared = count > 1 && count <= kMaxChunks && pool.threads.load(std::memory_order_relaxed) > 1 &&
                           !pool.is_taken.exchange(true, std::memory_order_acquire);
    if (!is_shared) {
        for (int64_t chunk = 0; chunk < count; ++chunk) task(context, chunk);
        return;
    }
    open_region(static_cast<uint32_t>(count), task, context);
    work();
    await_region(static_cast<uint32_t>(count));
    pool.is_taken.store(false, std::memory_order_release);
}

static void* grown(Scratch& scratch, size_t bytes) {
    if (scratch.size < bytes) {
        pthread_setspecific(at_thread_end, &pool);  // anything but null
        std::free(scratch.memory);
        scratch.size = (bytes + 4095) / 4096 * 4096;
        scratch.memory = std::aligned_alloc(64, scratch.size);
        if (scratch.memory == nullptr) {
            std::fprintf(stderr, "penstock: no memory for %zu bytes of a thread's scratch space\n", scratch.size);
            std::abort();
        }
    }
    return scratch.memory;
}

void* thread_scratch(size_t bytes) { return grown(of_chunk, bytes); }

void* region_scratch(size_t bytes) { return grown(of_region, bytes); }

int num_threads() { return pool.threads.load(std::memory_order_relaxed); }

}  // namespace penstock

extern "C" void penstock_set_threads(int64_t count) {
    using namespace penstock;
    while (pool.is_taken.exchange(true, std::memory_order_acquire)) sched_yield();
    const auto wanted = static_cast<int32_t>(count < 1 ? 1 : count < kMaxThreads ? count : kMaxThreads);
    const int32_t before = pool.threads.exchange(wanted);
    // An empty region wakes those who have to leave.
    pool.word.store(region_word(region_of(pool.word.load()) + 1, 0));
    futex_wake(region_address(), INT_MAX);
    for (uint32_t alive; (alive = pool.helpers.load()) > static_cast<uint32_t>(wanted - 1);)
        futex_wait(&pool.helpers, alive);
    for (int32_t index = before; index < wanted; ++index) start_helper(index);
    pool.is_taken.store(false, std::memory_order_release);
}
