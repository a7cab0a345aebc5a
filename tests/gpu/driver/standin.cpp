// What the stand-in holds, what tests ask of it, and the driver's device and contexts.

#include <cstdio>
#include <cstring>
#include <unistd.h>

#include "standin.h"

namespace standin {

State state;
thread_local std::vector<void *> contexts;

int fail(int code, const std::string &message)
{
    state.message = message;
    return code;
}

void misused(const std::string &what)
{
    if (state.misuse.empty())
        state.misuse = what;
}

bool forked()
{
    if (!state.process || state.process == getpid())
        return false;
    misused("the driver was called in a fork");
    return true;
}

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

} // namespace standin

using namespace standin;

namespace {

int primary;

} // namespace

API void standin_configure(int deferred, int order, uint64_t seed, uint64_t limit)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    state.deferred = deferred;
    state.order = order;
    state.seed = seed;
    state.limit = limit;
    state.lost = SUCCESS;
    state.capability = 75;
    state.misuse.clear();
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
    if (!strcmp(name, "contexts"))
        return uint64_t(state.contexts);
    return strcmp(name, "used") ? state.counters[name] : state.used;
}

API void standin_capability(int capability) { state.capability = capability; }
API const char *standin_misuse() { return state.misuse.c_str(); }
API const char *standin_message() { return state.message.c_str(); }

API int cuInit(unsigned)
{
    if (forked())
        return NOT_INITIALIZED;
    state.initialised = true;
    state.process = getpid();
    return SUCCESS;
}

API int cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
API int cuDeviceGetCount(int *count) { *count = 1; return state.initialised ? SUCCESS : NOT_INITIALIZED; }
API int cuDeviceGet(int *device, int ordinal) { *device = 0; return ordinal ? INVALID_DEVICE : SUCCESS; }

API int cuDeviceComputeCapability(int *major, int *minor, int)
{
    *major = state.capability / 10;
    *minor = state.capability % 10;
    return SUCCESS;
}

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
        {16, 2}, {41, 1},
    };
    auto found = known.find(attribute);
    *value = found == known.end() ? 0 : found->second;
    if (attribute == 75 || attribute == 76)
        *value = attribute == 75 ? state.capability / 10 : state.capability % 10;
    return SUCCESS;
}

API int cuGetErrorString(int code, const char **text)
{
    static thread_local std::string held;
    static const std::map<int, const char *> names = {
        {OUT_OF_MEMORY, "out of memory"}, {ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
        {MISALIGNED, "misaligned address"}, {LAUNCH_FAILED, "unspecified launch failure"}, {INVALID_CONTEXT, "invalid device context"},
        {INVALID_VALUE, "invalid argument"},
    };
    auto found = names.find(code);
    held = (found == names.end() ? "error " + std::to_string(code) : found->second) + std::string(": ") + state.message;
    *text = held.c_str();
    return SUCCESS;
}

API int cuDevicePrimaryCtxRetain(void **context, int)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    *context = &primary;
    return injected("retain");
}

API int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
API int cuCtxGetApiVersion(void *, unsigned *version) { *version = 3020; return SUCCESS; }
API int cuCtxPushCurrent_v2(void *context)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    TRY(injected("push"))
    contexts.push_back(context);
    state.contexts += 1;
    return forked() ? NOT_INITIALIZED : SUCCESS;
}

API int cuCtxCreate_v4(void **context, void *, unsigned, int)
{
    *context = new int;
    contexts.push_back(*context);
    state.contexts += 1;
    return SUCCESS;
}

API int cuCtxPopCurrent_v2(void **context)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    if (contexts.empty())
        return INVALID_CONTEXT;
    state.contexts -= 1;
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

API int cuProfilerStart() { return SUCCESS; }
API int cuProfilerStop() { return SUCCESS; }

// What PyCUDA links with and our host code never calls.
#define UNSUPPORTED(NAME)                                                                                           \
    API int NAME() { return fail(NOT_SUPPORTED, #NAME); }
#include "unsupported.h"
