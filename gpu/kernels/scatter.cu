// Puts what has changed where it belongs: elements of ``words`` words each, to where ``index`` says.
extern "C" __global__ void scatter(unsigned count, unsigned words, const unsigned *index, const unsigned *values,
                                   unsigned *target)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count * words)
        target[(unsigned long long)index[i / words] * words + i % words] = values[i];
}
