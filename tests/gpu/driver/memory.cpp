// Memory of the device and pinned memory; copies and fills.

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

#include "standin.h"

using namespace standin;

namespace {

constexpr size_t PAGE = 4096, ALIGN = 16;
constexpr unsigned char POISON = 0xCD, CANARY = 0xA5;

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
    if (forked())
        return NOT_INITIALIZED;
    if (contexts.empty())
        misused("memory was freed where no context is current");
    for (Stream *stream : state.streams)
        if (!state.lost && !stream->queue.empty())
            misused("memory was freed while work was outstanding");
    int code = state.lost ? state.lost : finish_all();
    auto found = table.find(at);
    if (found == table.end())
        return fail(INVALID_VALUE, "freed something that was not allocated");
    munmap(found->second.base, found->second.mapped);
    table.erase(found);
    return code;
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
    state.counters["fills"] += 1;
    auto work = [=] { std::fill_n(reinterpret_cast<T *>(at), count, value); return int(SUCCESS); };
    return submit(waits ? nullptr : stream, work);
}

} // namespace

int standin::check_ends()
{
    for (auto &[begin, block] : state.device)
        if (overrun(begin, block))
            return state.lost = fail(ILLEGAL_ADDRESS, "a kernel wrote past the end of an allocation");
    return SUCCESS;
}

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
    auto found = state.device.find(at);
    state.used -= found == state.device.end() ? 0 : found->second.bytes;
    return release(state.device, at);
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
    return release(state.pinned, Pointer(at));
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
