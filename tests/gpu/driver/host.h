// CUDA C as C++ with a thread of the CPU for each thread of the GPU, for ThreadSanitizer and AddressSanitizer.
//
// The kernels are compiled once for each block of the grid, in a namespace of its own, so that what is shared
// in a block is a static variable there. All threads are alive before any begins.
#pragma once
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

#define EVFLOW_HOST
#define __device__
#define __forceinline__ inline
#define __shared__ static

struct Three { unsigned x, y, z; };
struct double2 { double x, y; };
inline thread_local Three threadIdx, blockIdx, blockDim, gridDim;
inline thread_local std::barrier<> *barrier;

inline void __syncthreads() { barrier->arrive_and_wait(); }
inline unsigned atomicAdd(unsigned *at, unsigned by) { return __atomic_fetch_add(at, by, __ATOMIC_RELAXED); }
inline unsigned atomicOr(unsigned *at, unsigned by) { return __atomic_fetch_or(at, by, __ATOMIC_RELAXED); }
inline unsigned atomicExch(unsigned *at, unsigned by) { return __atomic_exchange_n(at, by, __ATOMIC_RELAXED); }
inline unsigned peek(const unsigned *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
inline void poke(unsigned char *to, unsigned char value) { __atomic_store_n(to, value, __ATOMIC_RELAXED); }
using std::floor;

// Runs one block for each function, ``threads`` threads each, in a grid of ``columns`` by ``rows`` blocks.
inline void launch(const std::vector<std::function<void()>> &blocks, unsigned columns, unsigned rows, unsigned threads)
{
    std::latch gate(blocks.size() * threads);
    std::vector<std::barrier<> *> barriers;
    std::vector<std::thread> running;
    for (unsigned block = 0; block < blocks.size(); block++)
        barriers.push_back(new std::barrier<>(threads));
    for (unsigned block = 0; block < blocks.size(); block++)
        for (unsigned thread = 0; thread < threads; thread++)
            running.emplace_back([=, &blocks, &gate, &barriers] {
                threadIdx = {thread, 0, 0};
                blockIdx = {block % columns, block / columns, 0};
                blockDim = {threads, 1, 1};
                gridDim = {columns, rows, 1};
                barrier = barriers[block];
                gate.arrive_and_wait();
                blocks[block]();
                barrier->arrive_and_drop();
            });
    for (auto &thread : running)
        thread.join();
    for (auto *one : barriers)
        delete one;
}
