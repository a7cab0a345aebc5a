// A batch of events a launch: one or more warps an event, which test only the filters near to it.
//
// Filters stand in the order of their cells' buckets. Cells of several sizes hold filters of as many ranges
// of radius, so that a place lies only in circles whose centres are in the 2 x 2 (2 x 2 x 2) cells around it.
// A bucket may hold other cells too; each candidate is tested in full.

#include "values.cuh"

typedef unsigned long long u64;

// 40 bytes, filled by evflow/gpu/pack.py. Its attributes are sorted by name.
struct Event {
    double x, y, z; // NaN: nowhere
    unsigned bloom;
    int first, last;
    int unused;
};

struct Filters {
    const void *centres, *reaches;
    const unsigned *blooms;
    const int *subscriptions, *first, *size;
};

struct Constraints {
    const int *names;
    const byte *codes;
    const double *operands;
};

static __device__ __forceinline__ long long cell(double at, double inverse, double back)
{
    double index = floor(at * inverse - back);
    index = index < 4e18 ? index : 4e18;
    return (long long)(index > -4e18 ? index : -4e18);
}

static __device__ __forceinline__ unsigned bucket(unsigned level, long long x, long long y, long long z, int bits)
{
    u64 hash = (u64)x * 0x9E3779B97F4A7C15ull ^ (u64)y * 0xC2B2AE3D27D4EB4Full ^ (u64)z * 0xD6E8FEB86659FD93ull;
    hash = (hash ^ level) * 0x9E3779B97F4A7C15ull;
    hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93ull;
    return (unsigned)(hash >> 32) >> (32 - bits);
}

// Where the attribute ``name`` of an event stands, or -1.
static __device__ __forceinline__ int find(const Attribute *input, int first, int last, int name)
{
    while (first < last) {
        int middle = (first + last) >> 1;
        if (input[middle].start < name)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

static __device__ __forceinline__ bool satisfied(int dimensions, const Event *event, unsigned i, Filters filters,
                                                 Constraints constraints, const Attribute *input, const byte *chars,
                                                 Strings strings)
{
    unsigned names = filters.blooms[i];
    if ((names & event->bloom) != names)
        return false;
    if (!inside(dimensions, filters.centres, filters.reaches, i, event->x, event->y, event->z))
        return false;
    int end = filters.first[i] + filters.size[i];
    for (int c = filters.first[i]; c < end; c++) {
        int name = constraints.names[c], at = find(input, event->first, event->last, name);
        if (at == event->last || input[at].start != name)
            return false;
        if (!holds(constraints.codes[c], constraints.operands[c], &input[at], chars, strings))
            return false;
    }
    return true;
}

static __device__ __forceinline__ void match(int dimensions, unsigned events, const Event *heads,
                                             const Attribute *input, const byte *chars, Filters filters,
                                             Constraints constraints, Strings strings, unsigned everywhere,
                                             unsigned recent, unsigned total, const unsigned *buckets, int bits,
                                             unsigned levels, const double *inverse, unsigned *seen, unsigned words,
                                             unsigned *result, unsigned capacity)
{
    unsigned number = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (number >= events)
        return;
    Event event = heads[number];
    unsigned cells = dimensions == 2 ? 4 : 8, part = blockIdx.y * 32 + (threadIdx.x & 31), step = gridDim.y * 32;
    // Two ranges for every event: filters that may match anywhere, and those that have no bucket yet.
    unsigned ranges = event.x == event.x ? 2 + levels * cells : 2;
    for (unsigned range = 0; range < ranges; range++) {
        unsigned first = range ? recent : 0, end = range ? total : everywhere;
        if (range > 1) {
            unsigned level = (range - 2) / cells, corner = (range - 2) % cells;
            double scale = inverse[level];
            long long x = cell(event.x, scale, 0.5) + (corner & 1), y = cell(event.y, scale, 0.5) + ((corner >> 1) & 1);
            long long z = dimensions == 2 ? 0 : cell(event.z, scale, 0.5) + (corner >> 2);
            unsigned b = bucket(level, x, y, z, bits);
            first = buckets[b];
            end = buckets[b + 1];
        }
        for (unsigned i = first + part; i < end; i += step) {
            if (!satisfied(dimensions, &event, i, filters, constraints, input, chars, strings))
                continue;
            unsigned subscription = filters.subscriptions[i], bit = 1u << (subscription & 31);
            if (atomicOr(&seen[(u64)number * words + (subscription >> 5)], bit) & bit)
                continue;
            unsigned at = atomicAdd(result, 1u);
            if (at < capacity) {
                result[2 + 2 * (u64)at] = number;
                result[3 + 2 * (u64)at] = subscription;
            }
        }
    }
}

#define MATCH(NAME, DIMENSIONS)                                                                                     \
    extern "C" __global__ void NAME(                                                                                \
        unsigned events, const Event *heads, const Attribute *input, const byte *chars, const void *centres,        \
        const void *reaches, const unsigned *blooms, const int *subscriptions, const int *firsts, const int *sizes, \
        const int *names, const byte *codes, const double *operands, const byte *data, const long long *offsets,    \
        unsigned everywhere, unsigned recent, unsigned total, const unsigned *buckets, int bits, unsigned levels,   \
        const double *inverse, unsigned *seen, unsigned words, unsigned *result, unsigned capacity)                 \
    {                                                                                                               \
        Filters filters = {centres, reaches, blooms, subscriptions, firsts, sizes};                                 \
        Constraints constraints = {names, codes, operands};                                                         \
        Strings strings = {data, offsets};                                                                          \
        match(DIMENSIONS, events, heads, input, chars, filters, constraints, strings, everywhere, recent, total,    \
              buckets, bits, levels, inverse, seen, words, result, capacity);                                       \
    }

MATCH(grid_plane, 2)
MATCH(grid_globe, 3)

// Clears the bits of the pairs that were found.
extern "C" __global__ void clear(const unsigned *result, unsigned capacity, unsigned *seen, unsigned words)
{
    unsigned count = result[0] < capacity ? result[0] : capacity;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        atomicExch(&seen[(u64)result[2 + 2 * (u64)i] * words + (result[3 + 2 * (u64)i] >> 5)], 0u);
}
