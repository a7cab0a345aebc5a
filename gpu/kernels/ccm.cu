// CCM: one thread a constraint, one row of blocks an attribute of the event (CCM, section 4.2, algorithm 1).
//
// Counters and results exist twice: an event counts in one copy while its threads clear the other for the
// next event (section 4.3). An area is one more constraint, on the attribute that is the event's place.

#include "values.cuh"

static __device__ __forceinline__ void evaluate(
    int dimensions, Attribute *shared, const Attribute *input, const byte *chars, double x, double y, double z, const byte *codes,
    const double *operands, const int *filters, const unsigned *sizes, const int *subscriptions, const void *centres,
    const void *reaches, Strings strings, unsigned *counts, unsigned *found, unsigned *next_counts,
    unsigned *next_found, unsigned filter_count, unsigned words)
{
    if (threadIdx.x == 0)
        *shared = input[blockIdx.y];
    __syncthreads();

    // Rows by columns may be more than 32 bits count.
    unsigned column = blockIdx.x * blockDim.x + threadIdx.x, across = gridDim.x * blockDim.x;
    unsigned long long first = (unsigned long long)across * blockIdx.y + column;
    unsigned long long step = (unsigned long long)across * gridDim.y;
    for (unsigned long long i = first; i < filter_count; i += step)
        next_counts[i] = 0;
    for (unsigned long long i = first; i < words; i += step)
        next_found[i] = 0;

    if (column >= (unsigned)shared->size)
        return;
    unsigned place = shared->start + column;
    int code = codes[place], filter = filters[place];
    bool good = code == AREA ? inside(dimensions, centres, reaches, filter, x, y, z)
                             : code == ALWAYS || holds(code, operands[place], shared, chars, strings);
    if (!good)
        return;
    if (atomicAdd(&counts[filter], 1u) + 1 == sizes[filter]) {
        unsigned subscription = subscriptions[filter];
        atomicOr(&found[subscription >> 5], 1u << (subscription & 31));
    }
}

#define CCM(NAME, DIMENSIONS)                                                                                       \
    extern "C" __global__ void NAME(                                                                                \
        const Attribute *input, const byte *chars, double x, double y, double z, const byte *codes,                 \
        const double *operands, const int *filters, const unsigned *sizes, const int *subscriptions,                \
        const void *centres, const void *reaches, const byte *data, const long long *offsets, unsigned *counts,     \
        unsigned *found, unsigned *next_counts, unsigned *next_found, unsigned filter_count, unsigned words)        \
    {                                                                                                               \
        Strings strings = {data, offsets};                                                                          \
        __shared__ Attribute shared;                                                                                \
        evaluate(DIMENSIONS, &shared, input, chars, x, y, z, codes, operands, filters, sizes, subscriptions, centres,        \
                 reaches, strings, counts, found, next_counts, next_found, filter_count, words);                    \
    }

CCM(ccm_plane, 2)
CCM(ccm_globe, 3)
