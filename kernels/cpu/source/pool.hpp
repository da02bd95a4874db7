// The threads that kernels share, and how a kernel hands them its chunks.
//
// Chunks are claimed, not dealt out: whoever is there takes the next one, and nobody waits for an absent thread.
// How work is cut into chunks depends on shapes alone, never on the number of threads, so that bits don't either.
#pragma once
#include <cstddef>
#include <cstdint>

namespace penstock {

// Calls task(context, chunk) once for each chunk in [0, count), on any threads; returns when all are done.
// A task must not throw. A call from inside a task, or beside another thread's, does its chunks itself.
void run_chunks(int64_t count, void (*task)(void* context, int64_t chunk), void* context);

// 64-byte-aligned memory of the calling thread's own, at least this large; its content does not outlive the chunk.
void* thread_scratch(size_t bytes);
// The same for what a caller prepares for all chunks of a region: chunks leave it alone.
void* region_scratch(size_t bytes);

int num_threads();

template <class Task>
void parallel(int64_t count, const Task& task) {
    run_chunks(
        count, [](void* context, int64_t chunk) { (*static_cast<const Task*>(context))(chunk); },
        const_cast<void*>(static_cast<const void*>(&task)));
}

}  // namespace penstock

// How many threads work on a region, the caller among them; waits for a region that is under way.
extern "C" void penstock_set_threads(int64_t count);
