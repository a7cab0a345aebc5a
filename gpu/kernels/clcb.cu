// CLCB: Loc, Cont and Zip, one after the other, for one event (CLCB, section 4.3, algorithm 1).
//
// A filter's counter starts at 1 if Loc lets it pass, else at 0. Four events share a 32-bit counter, a byte
// each, so that it is cleared at every fourth event only ("reducing memory accesses").

#include "values.cuh"

static __device__ __forceinline__ void locate(int dimensions, unsigned filters, unsigned run, unsigned bloom,
                                              double x, double y, double z, const unsigned *blooms,
                                              const void *centres, const void *reaches, const unsigned *sizes,
                                              const int *subscriptions, unsigned *counts, byte *matched,
                                              unsigned *result)
{
    unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= filters)
        return;
    if (id == 0)
        *result = 0;
    unsigned names = blooms[id];
    bool pass = (names & bloom) == names && inside(dimensions, centres, reaches, id, x, y, z);
    if (run == 0)
        counts[id] = pass;
    else if (pass)
        ((byte *)&counts[id])[run] = 1;
    if (pass && sizes[id] == 0)
        poke(&matched[subscriptions[id]], 1);
}

#define LOC(NAME, DIMENSIONS)                                                                                       \
    extern "C" __global__ void NAME(unsigned filters, unsigned run, unsigned bloom, double x, double y, double z,   \
                                    const unsigned *blooms, const void *centres, const void *reaches,               \
                                    const unsigned *sizes, const int *subscriptions, unsigned *counts,              \
                                    byte *matched, unsigned *result)                                                \
    {                                                                                                               \
        locate(DIMENSIONS, filters, run, bloom, x, y, z, blooms, centres, reaches, sizes, subscriptions, counts,    \
               matched, result);                                                                                    \
    }

LOC(loc_plane, 2)
LOC(loc_globe, 3)

// CCM's kernel, which at once leaves out the filters that Loc stopped. ``mask`` is 255, or all ones if some
// filter has too many constraints for a byte; then every event is the first run.
extern "C" __global__ void cont(const Attribute *input, const byte *chars, unsigned run, unsigned mask,
                                const byte *codes, const double *operands, const int *filters,
                                const unsigned *sizes, const int *subscriptions, const byte *data,
                                const long long *offsets, unsigned *counts, byte *matched)
{
    __shared__ Attribute attribute;
    if (threadIdx.x == 0)
        attribute = input[blockIdx.y];
    __syncthreads();

    unsigned column = blockIdx.x * blockDim.x + threadIdx.x, shift = 8 * run;
    if (column >= (unsigned)attribute.size)
        return;
    unsigned place = attribute.start + column;
    int filter = filters[place];
    if (((peek(&counts[filter]) >> shift) & mask) == 0)
        return;
    Strings strings = {data, offsets};
    if (!holds(codes[place], operands[place], &attribute, chars, strings))
        return;
    if (((atomicAdd(&counts[filter], 1u << shift) >> shift) & mask) == sizes[filter])
        poke(&matched[subscriptions[filter]], 1);
}

// ``result`` is how many matched, then which.
extern "C" __global__ void zip(unsigned subscriptions, byte *matched, unsigned *result)
{
    unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= subscriptions)
        return;
    if (matched[id]) {
        matched[id] = 0;
        result[1 + atomicAdd(result, 1u)] = id;
    }
}
