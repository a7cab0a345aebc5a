// A stand-in for the CUDA driver, libcuda.so.1, that runs kernels on the CPU. For tests only; it says so in
// the name of its device. Host code talks to it through PyCUDA as to the real one.
//
// It is stricter than a device wherever a device may hide a mistake: work in a stream is put off until
// somebody waits for it, asynchronous copies need pinned memory, every copy must lie in one allocation,
// allocations are poisoned and end at a page that cannot be touched, and arguments must have the right size.
// It counts what it is asked for, and fails on demand.

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "run.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum Result {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500,
    NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801,
};

using Pointer = uintptr_t;
constexpr size_t PAGE = 4096, ALIGN = 16;
constexpr unsigned char POISON = 0xCD, CANARY = 0xA5;

struct Block { size_t bytes, padded, mapped; void *base; };
struct Event { uint64_t recorded = 0, done = 0; double time = 0; };
struct Work { std::function<int()> what; Event *awaited = nullptr; uint64_t until = 0; };
struct Stream { std::deque<Work> queue; };
struct Module { void *handle; const KernelEntry *kernels; };
struct Failure { int64_t after, times; int code; };

struct State {
    std::recursive_mutex mutex;
    bool initialised = false, deferred = false;
    int order = IN_ORDER, lost = SUCCESS;
    uint64_t seed = 0, limit = uint64_t(8) << 30, used = 0;
    std::map<Pointer, Block> device, pinned;
    std::set<Stream *> streams;
    std::map<std::string, uint64_t> counters;
    std::map<std::string, Failure> failures;
    std::string message;
    int (*translate)(const char *ptx, char *path, int size) = nullptr;
} state;

thread_local std::vector<void *> contexts;
int primary;

#define GUARD                                                                                                       \
    std::lock_guard<std::recursive_mutex> guard(state.mutex);                                                       \
    if (state.lost)                                                                                                 \
        return state.lost;
#define IN_CONTEXT                                                                                                  \
    GUARD                                                                                                           \
    if (contexts.empty())                                                                                           \
        return fail(INVALID_CONTEXT, "no context is current in this thread");

int fail(int code, const std::string &message)
{
    state.message = message;
    return code;
}

// Whether a call of this kind is to fail now, as a test has asked for.
int injected(const char *kind)
{
    auto found = state.failures.find(kind);
    if (found == state.failures.end() || found->second.after-- > 0)
        return SUCCESS;
    int code = found->second.code;
    if (--found->second.times <= 0)
        state.failures.erase(found);
    return fail(code, std::string("asked to fail: ") + kind);
}

// ---- memory

void *allocate(std::map<Pointer, Block> &table, size_t bytes)
{
    size_t padded = (bytes + ALIGN - 1) / ALIGN * ALIGN, mapped = (padded + PAGE - 1) / PAGE * PAGE + PAGE;
    void *base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return nullptr;
    char *end = static_cast<char *>(base) + mapped - PAGE;
    mprotect(end, PAGE, PROT_NONE);
    char *begin = end - padded;
    memset(begin, POISON, bytes);
    memset(begin + bytes, CANARY, padded - bytes);
    table[Pointer(begin)] = Block{bytes, padded, mapped, base};
    return begin;
}

bool overrun(Pointer begin, const Block &block)
{
    const unsigned char *p = reinterpret_cast<const unsigned char *>(begin);
    for (size_t i = block.bytes; i < block.padded; i++)
        if (p[i] != CANARY)
            return true;
    return false;
}

int check_ends()
{
    for (auto &[begin, block] : state.device)
        if (overrun(begin, block))
            return state.lost = fail(ILLEGAL_ADDRESS, "a kernel wrote past the end of an allocation");
    return SUCCESS;
}

bool inside(const std::map<Pointer, Block> &table, Pointer at, size_t bytes)
{
    auto found = table.upper_bound(at);
    if (found == table.begin())
        return false;
    --found;
    return at + bytes <= found->first + found->second.bytes;
}

int release(std::map<Pointer, Block> &table, Pointer at)
{
    auto found = table.find(at);
    if (found == table.end())
        return fail(INVALID_VALUE, "freed something that was not allocated");
    munmap(found->second.base, found->second.mapped);
    table.erase(found);
    return SUCCESS;
}

// ---- streams

int perform(Stream *stream)
{
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    int code = work.what ? work.what() : SUCCESS;
    if (code)
        state.lost = code;
    return code;
}

bool ready(const Stream *stream)
{
    if (stream->queue.empty())
        return false;
    const Work &next = stream->queue.front();
    return !next.awaited || next.awaited->done >= next.until;
}

// Works on other streams too, but only as far as this one waits for them.
int finish(Stream *stream)
{
    while (!stream->queue.empty()) {
        Stream *next = ready(stream) ? stream : nullptr;
        for (Stream *other : state.streams)
            next = next ? next : ready(other) ? other : nullptr;
        if (!next)
            return state.lost = fail(LAUNCH_FAILED, "streams wait for each other");
        if (int code = perform(next))
            return code;
    }
    return SUCCESS;
}

int finish_all()
{
    for (Stream *stream : state.streams)
        if (int code = finish(stream))
            return code;
    return check_ends();
}

int submit(Stream *stream, std::function<int()> what)
{
    if (!stream) {
        if (int code = finish_all())
            return code;
        int code = what();
        if (code)
            state.lost = code;
        return code;
    }
    if (!state.streams.count(stream))
        return fail(INVALID_HANDLE, "no such stream");
    stream->queue.push_back(Work{std::move(what)});
    return state.deferred ? SUCCESS : finish(stream);
}

// ---- kernels

sigjmp_buf out_of_kernel;
void touched(int) { siglongjmp(out_of_kernel, 1); }

int run_kernel(const KernelEntry *kernel, const Launch &how)
{
    struct sigaction ours = {}, segv, bus;
    ours.sa_handler = touched;
    ours.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &ours, &segv);
    sigaction(SIGBUS, &ours, &bus);
    int code = SUCCESS;
    if (sigsetjmp(out_of_kernel, 1)) {
        code = fail(ILLEGAL_ADDRESS, std::string(kernel->name) + ": touched memory that is not allocated");
    } else if (const char *wrong = kernel->launch(how)) {
        code = fail(LAUNCH_FAILED, std::string(kernel->name) + ": " + wrong);
    }
    sigaction(SIGSEGV, &segv, nullptr);
    sigaction(SIGBUS, &bus, nullptr);
    return code ? code : check_ends();
}

int load_module(void **module, const void *image)
{
    char path[4096];
    if (!state.translate || state.translate(static_cast<const char *>(image), path, sizeof path))
        return fail(INVALID_PTX, "the PTX was not translated");
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fail(INVALID_IMAGE, dlerror());
    *module = new Module{handle, static_cast<const KernelEntry *>(dlsym(handle, "kernel_entries"))};
    return SUCCESS;
}

int copy(const char *direction, void *to, const void *from, size_t bytes, Stream *stream, bool waits)
{
    if (int code = injected("copy"))
        return code;
    state.counters[std::string(direction) + "_bytes"] += bytes;
    state.counters[direction] += 1;
    state.counters["blocking"] += waits;
    auto work = [=] { memcpy(to, from, bytes); return int(SUCCESS); };
    return submit(waits ? nullptr : stream, work);
}

int on_device(Pointer at, size_t bytes)
{
    if (inside(state.device, at, bytes))
        return SUCCESS;
    return fail(INVALID_VALUE, "a copy or fill that is not within one allocation of the device");
}

int on_host(const void *at, size_t bytes)
{
    if (inside(state.pinned, Pointer(at), bytes))
        return SUCCESS;
    return fail(INVALID_VALUE, "an asynchronous copy of host memory that is not pinned");
}

template <class T> int fill(Pointer at, T value, size_t count, Stream *stream, bool waits)
{
    if (int code = on_device(at, count * sizeof(T)))
        return code;
    auto work = [=] { std::fill_n(reinterpret_cast<T *>(at), count, value); return int(SUCCESS); };
    return submit(waits ? nullptr : stream, work);
}

#define TRY(CALL)                                                                                                   \
    if (int code = (CALL))                                                                                          \
        return code;

} // namespace

// ---- for tests

API void standin_configure(int deferred, int order, uint64_t seed, uint64_t limit)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    state.deferred = deferred;
    state.order = order;
    state.seed = seed;
    state.limit = limit;
    state.lost = SUCCESS;
    state.failures.clear();
    state.counters.clear();
    // What a failure has left behind is never done.
    for (Stream *stream : state.streams)
        stream->queue.clear();
}

API void standin_translator(int (*translate)(const char *, char *, int)) { state.translate = translate; }

API void standin_fail(const char *kind, int64_t after, int64_t times, int code)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    state.failures[kind] = Failure{after, times, code};
}

API uint64_t standin_counter(const char *name)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    if (!strcmp(name, "allocations"))
        return state.device.size() + state.pinned.size();
    return strcmp(name, "used") ? state.counters[name] : state.used;
}

API const char *standin_message() { return state.message.c_str(); }

// ---- the driver's device and contexts

API int cuInit(unsigned) { state.initialised = true; return SUCCESS; }
API int cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
API int cuDeviceGetCount(int *count) { *count = 1; return state.initialised ? SUCCESS : NOT_INITIALIZED; }
API int cuDeviceGet(int *device, int ordinal) { *device = 0; return ordinal ? INVALID_DEVICE : SUCCESS; }
API int cuDeviceComputeCapability(int *major, int *minor, int) { *major = 7; *minor = 5; return SUCCESS; }
API int cuDeviceTotalMem_v2(size_t *bytes, int) { *bytes = state.limit; return SUCCESS; }

API int cuDeviceGetName(char *name, int size, int)
{
    snprintf(name, size_t(size), "stand-in on the CPU, not a GPU");
    return SUCCESS;
}

API int cuDeviceGetPCIBusId(char *name, int size, int)
{
    snprintf(name, size_t(size), "0000:00:00.0");
    return SUCCESS;
}

API int cuDeviceGetAttribute(int *value, int attribute, int)
{
    static const std::map<int, int> known = {
        {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {10, 32},
        {16, 2}, {41, 1}, {75, 7}, {76, 5},
    };
    auto found = known.find(attribute);
    *value = found == known.end() ? 0 : found->second;
    return SUCCESS;
}

API int cuGetErrorString(int code, const char **text)
{
    static thread_local std::string held;
    static const std::map<int, const char *> names = {
        {OUT_OF_MEMORY, "out of memory"}, {ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
        {LAUNCH_FAILED, "unspecified launch failure"}, {INVALID_CONTEXT, "invalid device context"},
        {INVALID_VALUE, "invalid argument"},
    };
    auto found = names.find(code);
    held = (found == names.end() ? "error " + std::to_string(code) : found->second) + std::string(": ") + state.message;
    *text = held.c_str();
    return SUCCESS;
}

API int cuDevicePrimaryCtxRetain(void **context, int) { *context = &primary; return SUCCESS; }
API int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
API int cuCtxGetApiVersion(void *, unsigned *version) { *version = 3020; return SUCCESS; }
API int cuCtxPushCurrent_v2(void *context) { contexts.push_back(context); return SUCCESS; }

API int cuCtxCreate_v4(void **context, void *, unsigned, int)
{
    *context = new int;
    contexts.push_back(*context);
    return SUCCESS;
}

API int cuCtxPopCurrent_v2(void **context)
{
    if (contexts.empty())
        return INVALID_CONTEXT;
    if (context)
        *context = contexts.back();
    contexts.pop_back();
    return SUCCESS;
}

API int cuCtxGetDevice(int *device)
{
    *device = 0;
    return contexts.empty() ? INVALID_CONTEXT : SUCCESS;
}

API int cuCtxDetach(void *) { return SUCCESS; }
API int cuCtxSynchronize() { IN_CONTEXT state.counters["syncs"] += 1; return finish_all(); }

// ---- memory

API int cuMemAlloc_v2(Pointer *at, size_t bytes)
{
    IN_CONTEXT
    TRY(injected("alloc"))
    if (!bytes)
        return fail(INVALID_VALUE, "an allocation of no bytes");
    if (state.used + bytes > state.limit)
        return fail(OUT_OF_MEMORY, "");
    *at = Pointer(allocate(state.device, bytes));
    state.used += *at ? bytes : 0;
    return *at ? SUCCESS : fail(OUT_OF_MEMORY, "the host has no more");
}

API int cuMemFree_v2(Pointer at)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    int code = state.lost ? state.lost : finish_all();
    auto found = state.device.find(at);
    state.used -= found == state.device.end() ? 0 : found->second.bytes;
    int freed = release(state.device, at);
    return code ? code : freed;
}

API int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    IN_CONTEXT
    *total = state.limit;
    *free_bytes = state.limit - state.used;
    return SUCCESS;
}

API int cuMemHostAlloc(void **at, size_t bytes, unsigned)
{
    IN_CONTEXT
    TRY(injected("pinned"))
    *at = allocate(state.pinned, bytes);
    return *at ? SUCCESS : fail(OUT_OF_MEMORY, "the host has no more");
}

API int cuMemFreeHost(void *at)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    int code = state.lost ? state.lost : finish_all();
    int freed = release(state.pinned, Pointer(at));
    return code ? code : freed;
}

API int cuMemcpyHtoD_v2(Pointer to, const void *from, size_t bytes)
{
    IN_CONTEXT
    TRY(on_device(to, bytes))
    return copy("h2d", reinterpret_cast<void *>(to), from, bytes, nullptr, true);
}

API int cuMemcpyDtoH_v2(void *to, Pointer from, size_t bytes)
{
    IN_CONTEXT
    TRY(on_device(from, bytes))
    return copy("d2h", to, reinterpret_cast<void *>(from), bytes, nullptr, true);
}

API int cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, Stream *stream)
{
    IN_CONTEXT
    TRY(on_device(to, bytes))
    TRY(on_host(from, bytes))
    return copy("h2d", reinterpret_cast<void *>(to), from, bytes, stream, false);
}

API int cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, Stream *stream)
{
    IN_CONTEXT
    TRY(on_device(from, bytes))
    TRY(on_host(to, bytes))
    return copy("d2h", to, reinterpret_cast<void *>(from), bytes, stream, false);
}

API int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, Stream *stream)
{
    IN_CONTEXT
    TRY(on_device(to, bytes))
    TRY(on_device(from, bytes))
    return copy("d2d", reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes, stream, false);
}

API int cuMemcpyDtoD_v2(Pointer to, Pointer from, size_t bytes)
{
    IN_CONTEXT
    TRY(on_device(to, bytes))
    TRY(on_device(from, bytes))
    return copy("d2d", reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes, nullptr, true);
}

API int cuMemsetD8_v2(Pointer at, unsigned char v, size_t n) { IN_CONTEXT return fill(at, v, n, nullptr, true); }
API int cuMemsetD8Async(Pointer at, unsigned char v, size_t n, Stream *s) { IN_CONTEXT return fill(at, v, n, s, false); }
API int cuMemsetD32_v2(Pointer at, unsigned v, size_t n) { IN_CONTEXT return fill(at, v, n, nullptr, true); }
API int cuMemsetD32Async(Pointer at, unsigned v, size_t n, Stream *s) { IN_CONTEXT return fill(at, v, n, s, false); }

// ---- streams and events

API int cuStreamCreate(Stream **stream, unsigned)
{
    IN_CONTEXT
    *stream = new Stream;
    state.streams.insert(*stream);
    return SUCCESS;
}

API int cuStreamDestroy_v2(Stream *stream)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    int code = state.lost ? state.lost : finish(stream);
    state.streams.erase(stream);
    delete stream;
    return code;
}

API int cuStreamSynchronize(Stream *stream)
{
    IN_CONTEXT
    TRY(injected("sync"))
    state.counters["syncs"] += 1;
    return stream ? finish(stream) : finish_all();
}

API int cuStreamQuery(Stream *stream)
{
    IN_CONTEXT
    return !stream || stream->queue.empty() ? SUCCESS : NOT_READY;
}

API int cuStreamWaitEvent(Stream *stream, Event *event, unsigned)
{
    IN_CONTEXT
    stream->queue.push_back(Work{nullptr, event, event->recorded});
    return state.deferred ? SUCCESS : finish(stream);
}

API int cuEventCreate(Event **event, unsigned) { IN_CONTEXT *event = new Event; return SUCCESS; }
// Work that is put off may still refer to it.
API int cuEventDestroy_v2(Event *) { return SUCCESS; }

API int cuEventRecord(Event *event, Stream *stream)
{
    IN_CONTEXT
    uint64_t number = ++event->recorded;
    return submit(stream, [=] {
        event->done = number;
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        event->time = double(now.tv_sec) * 1e3 + double(now.tv_nsec) / 1e6;
        return int(SUCCESS);
    });
}

API int cuEventQuery(Event *event) { IN_CONTEXT return event->done == event->recorded ? SUCCESS : NOT_READY; }

API int cuEventSynchronize(Event *event)
{
    IN_CONTEXT
    TRY(injected("sync"))
    state.counters["syncs"] += 1;
    while (event->done < event->recorded) {
        Stream *next = nullptr;
        for (Stream *stream : state.streams)
            next = next ? next : ready(stream) ? stream : nullptr;
        if (!next)
            return state.lost = fail(LAUNCH_FAILED, "an event that nothing records");
        TRY(perform(next))
    }
    return SUCCESS;
}

API int cuEventElapsedTime_v2(float *milliseconds, Event *first, Event *last)
{
    *milliseconds = float(last->time - first->time);
    return first->done && last->done ? SUCCESS : NOT_READY;
}

// ---- modules and kernels

API int cuModuleLoadData(void **module, const void *image) { return load_module(module, image); }
API int cuModuleLoadDataEx(void **module, const void *image, unsigned, int *, void **) { return load_module(module, image); }

API int cuModuleUnload(Module *module)
{
    dlclose(module->handle);
    delete module;
    return SUCCESS;
}

API int cuModuleGetFunction(const void **function, Module *module, const char *name)
{
    IN_CONTEXT
    for (const KernelEntry *kernel = module->kernels; kernel->name; kernel++)
        if (!strcmp(kernel->name, name)) {
            *function = kernel;
            return SUCCESS;
        }
    return fail(NOT_FOUND, std::string("no kernel ") + name);
}

API int cuFuncGetAttribute(int *value, int attribute, void *)
{
    *value = attribute ? 0 : 1024;
    return SUCCESS;
}

API int cuFuncSetBlockShape(void *, int, int, int) { return SUCCESS; }
API int cuFuncSetCacheConfig(void *, int) { return SUCCESS; }
API int cuFuncSetAttribute(void *, int, int) { return SUCCESS; }

API int cuLaunchKernel(const KernelEntry *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned, Stream *stream, void **, void **extra)
{
    IN_CONTEXT
    TRY(injected("launch"))
    std::string name = kernel->name;
    if (!gx || !gy || !gz || !bx || !by || !bz || gx > 0x7fffffff || gy > 65535 || gz > 65535 || bx * by * bz > 1024)
        return fail(INVALID_VALUE, name + ": a grid or block that no device takes");
    const void *arguments = nullptr;
    size_t bytes = 0;
    for (void **entry = extra; entry && *entry; entry += 2) {
        if (Pointer(*entry) == 1)
            arguments = entry[1];
        else if (Pointer(*entry) == 2)
            bytes = *static_cast<size_t *>(entry[1]);
    }
    if (bytes != kernel->parameter_bytes)
        return fail(INVALID_VALUE, name + ": was given " + std::to_string(bytes) + " bytes of arguments and takes " +
                                       std::to_string(kernel->parameter_bytes));
    std::string held(static_cast<const char *>(arguments), bytes);
    state.counters["launches"] += 1;
    state.counters["threads"] += uint64_t(gx) * gy * gz * bx * by * bz;
    uint64_t seed = state.seed + state.counters["launches"];
    int broken = injected("kernel");
    return submit(stream, [=] {
        unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
        return broken ? broken : run_kernel(kernel, Launch{grid, block, held.data(), state.order, seed});
    });
}

API int cuProfilerStart() { return SUCCESS; }
API int cuProfilerStop() { return SUCCESS; }

// ---- what PyCUDA links with and our host code never calls

#define UNSUPPORTED(NAME)                                                                                           \
    API int NAME() { return fail(NOT_SUPPORTED, #NAME); }
#include "unsupported.h"
