// A stand-in for the CUDA driver, libcuda.so.1, that runs kernels on the CPU. For tests only; it says so in
// the name of its device. Host code talks to it through PyCUDA as to the real one.
//
// It is stricter than a device wherever a device may hide a mistake: work in a stream is put off until
// somebody waits for it, asynchronous copies need pinned memory, every copy must lie in one allocation,
// allocations are poisoned and end at a page that cannot be touched, and arguments must have the right size.
// Memory may be freed only when no work is outstanding, and no context may be left on a thread's stack.
// It counts what it is asked for, and fails on demand.

#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace standin {

enum Result {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500,
    NOT_READY = 600, ILLEGAL_ADDRESS = 700, MISALIGNED = 716, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801,
};

using Pointer = uintptr_t;

struct Block { size_t bytes, padded, mapped; void *base; };
struct Event { uint64_t recorded = 0, done = 0; double time = 0; };
struct Work { std::function<int()> what; Event *awaited = nullptr; uint64_t until = 0; };
struct Stream { std::deque<Work> queue; };
struct Failure { int64_t after, times; int code; };

struct State {
    std::recursive_mutex mutex;
    bool initialised = false, deferred = false;
    int order = 0, lost = SUCCESS;
    uint64_t seed = 0, limit = uint64_t(8) << 30, used = 0;
    std::map<Pointer, Block> device, pinned;
    std::set<Stream *> streams;
    std::map<std::string, uint64_t> counters;
    std::map<std::string, Failure> failures;
    std::string message, misuse;
    int capability = 75, contexts = 0, process = 0;
    int (*translate)(const char *ptx, char *path, int size) = nullptr;
};

extern State state;
extern thread_local std::vector<void *> contexts;

// Remembers what a failure is about, and gives its code.
int fail(int code, const std::string &message);

// Notes a mistake that a device may let pass; a test in which there was one fails.
void misused(const std::string &what);

// Whether this process is a fork of the one that has started the driver.
bool forked();

// Whether a call of this kind is to fail now, as a test has asked for.
int injected(const char *kind);

// Whether a kernel has written past the end of an allocation.
int check_ends();

// Does what was put off in a stream, or in all of them.
int finish(Stream *stream);
int finish_all();

// Puts work into a stream; without one it is done now, after all that was put off.
int submit(Stream *stream, std::function<int()> what);

} // namespace standin

#define GUARD                                                                                                       \
    std::lock_guard<std::recursive_mutex> guard(state.mutex);                                                       \
    if (forked())                                                                                                   \
        return NOT_INITIALIZED;                                                                                     \
    if (state.lost)                                                                                                 \
        return state.lost;
#define IN_CONTEXT                                                                                                  \
    GUARD                                                                                                           \
    if (contexts.empty())                                                                                           \
        return fail(INVALID_CONTEXT, "no context is current in this thread");

#define TRY(CALL)                                                                                                   \
    if (int code = (CALL))                                                                                          \
        return code;
