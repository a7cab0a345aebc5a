// CUDA C as C++ with a fiber for each thread of the GPU. Which fiber goes on is drawn from a seed.
//
// A fiber gives way at barriers, and at random before and after each atomic and each access that may race.
// It shares nothing with run.h, which runs the PTX: what one of them gets wrong, the other may get right.
#pragma once
#include <cmath>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <ucontext.h>
#include <vector>

#define EVFLOW_HOST
#define __device__
#define __forceinline__ inline
#define __global__

struct Three { unsigned x, y, z; };
static Three threadIdx, blockIdx, blockDim, gridDim;
using std::floor;

namespace fibers {

enum Order { IN_ORDER, REVERSED, RANDOM, UNEVEN };
enum State { READY, AT_BARRIER, DONE };
const unsigned MOST = 2048; // fibers at a time; blocks beyond them come later
const size_t STACK = 1 << 14, SHARED = 64;
const unsigned char POISON = 0xCD;

struct Launch {
    unsigned columns, rows, threads, order, percent; // percent: how often a fiber gives way
    uint64_t seed;
};

struct Fiber {
    ucontext_t first;
    jmp_buf next;
    bool begun;
    State state;
    unsigned thread, block;
    uint64_t rank;
};

static Fiber *all, *me;
static char *stacks;
static jmp_buf scheduler;
static std::vector<unsigned char> shared;
static void (*body)(const char *);
static const char *packed, *fault;
static unsigned percent;
static uint64_t state;

static uint64_t draw()
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static __attribute__((noinline)) void give_way()
{
    asm volatile("" ::: "memory");
    if (!_setjmp(me->next))
        _longjmp(scheduler, 1);
    asm volatile("" ::: "memory");
}

static void maybe()
{
    if (draw() % 100 < percent)
        give_way();
}

// A fiber serves one thread after another, so that it has to be made only once.
static void live()
{
    for (;;) {
        body(packed);
        me->state = DONE;
        give_way();
    }
}

static __attribute__((noinline)) void go_on(Fiber &fiber)
{
    if (_setjmp(scheduler))
        return;
    if (fiber.begun)
        _longjmp(fiber.next, 1);
    fiber.begun = true;
    setcontext(&fiber.first);
}

static void broken(int signal)
{
    fault = signal == SIGILL ? "an access is not aligned, or a number does not fit"
                             : "memory is touched that was not allocated";
    _longjmp(scheduler, 1);
}

static size_t choose(size_t ready, const std::vector<unsigned> &which, unsigned order)
{
    if (order == IN_ORDER)
        return 0;
    if (order == REVERSED)
        return ready - 1;
    size_t pick = draw() % ready;
    // Some threads run far ahead of others.
    for (int i = 0; order == UNEVEN && i < 3; i++) {
        size_t other = draw() % ready;
        pick = all[which[other]].rank > all[which[pick]].rank ? other : pick;
    }
    return pick;
}

static void run_together(const std::vector<unsigned> &blocks, const Launch &how)
{
    std::vector<unsigned> ready, alive(blocks.size(), how.threads), waiting(blocks.size(), 0);
    shared.assign(blocks.size() * SHARED, POISON);
    for (unsigned i = 0; i < blocks.size() * how.threads; i++) {
        all[i].state = READY, all[i].thread = i % how.threads, all[i].block = i / how.threads;
        all[i].rank = draw();
        ready.push_back(i);
    }
    while (!ready.empty()) {
        size_t pick = choose(ready.size(), ready, how.order);
        Fiber &fiber = all[ready[pick]];
        unsigned block = fiber.block, number = blocks[block];
        threadIdx = {fiber.thread, 0, 0};
        blockIdx = {number % how.columns, number / how.columns, 0};
        me = &fiber;
        go_on(fiber);
        if (fault)
            return;
        if (fiber.state == READY)
            continue;
        ready.erase(ready.begin() + pick);
        fiber.state == DONE ? alive[block]-- : waiting[block]++;
        if (!waiting[block] || waiting[block] < alive[block])
            continue;
        if (waiting[block] < how.threads)
            fault = "some threads of a block leave a barrier out";
        waiting[block] = 0;
        for (unsigned i = block * how.threads; i < (block + 1) * how.threads; i++)
            if (all[i].state == AT_BARRIER)
                all[i].state = READY, ready.push_back(i);
    }
}

static void run(const Launch &how)
{
    std::vector<unsigned> numbers, together;
    for (unsigned i = 0; i < how.columns * how.rows; i++)
        numbers.push_back(how.order == REVERSED ? how.columns * how.rows - 1 - i : i);
    for (size_t i = numbers.size(); how.order >= RANDOM && i > 1; i--)
        std::swap(numbers[i - 1], numbers[draw() % i]);
    size_t most = how.order < RANDOM ? 1 : MOST / how.threads;
    for (size_t first = 0; first < numbers.size() && !fault; first += most) {
        size_t last = first + most < numbers.size() ? first + most : numbers.size();
        run_together({numbers.begin() + first, numbers.begin() + last}, how);
    }
}

static void make()
{
    all = all ? all : (Fiber *)calloc(MOST, sizeof(Fiber));
    stacks = stacks ? stacks : (char *)malloc(MOST * STACK);
    for (unsigned i = 0; i < MOST; i++) {
        all[i].begun = false;
        getcontext(&all[i].first);
        all[i].first.uc_stack.ss_sp = stacks + i * STACK;
        all[i].first.uc_stack.ss_size = STACK;
        makecontext(&all[i].first, live, 0);
    }
}

// Runs a kernel; gives what is wrong with it, or null.
static const char *launch(void (*kernel)(const char *), const Launch &how, const char *arguments)
{
    if (!how.columns || !how.rows || !how.threads || how.threads > 1024 || how.rows > 65535)
        return "there is no such grid";
    if (!all)
        make();
    body = kernel, packed = arguments, percent = how.percent, state = how.seed, fault = nullptr;
    blockDim = {how.threads, 1, 1}, gridDim = {how.columns, how.rows, 1};
    static char room[1 << 16];
    stack_t apart = {}, stack_before;
    apart.ss_sp = room, apart.ss_size = sizeof room;
    struct sigaction action = {}, before[3];
    action.sa_handler = broken, action.sa_flags = SA_ONSTACK | SA_NODEFER;
    const int signals[] = {SIGSEGV, SIGBUS, SIGILL};
    sigaltstack(&apart, &stack_before);
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &action, &before[i]);
    run(how);
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &before[i], nullptr);
    sigaltstack(&stack_before, nullptr);
    if (fault)
        make(); // Those that stopped in the middle.
    return fault;
}

// The one variable that a block shares.
template <class T> T &of_block()
{
    static_assert(sizeof(T) <= SHARED);
    return *(T *)&shared[me->block * SHARED];
}

template <class T> T take(const char *&from)
{
    T value;
    from = (const char *)(((uintptr_t)from + sizeof(T) - 1) / sizeof(T) * sizeof(T));
    memcpy(&value, from, sizeof(T));
    from += sizeof(T);
    return value;
}

template <auto F> struct Call;
template <class... A, void (*F)(A...)> struct Call<F> {
    static void run(const char *from)
    {
        std::tuple<A...> arguments{take<A>(from)...};
        std::apply(F, arguments);
    }
};

template <class T> T change(T *at, T (*to)(T, T), T by)
{
    maybe();
    T old = *at;
    *at = to(old, by);
    maybe();
    return old;
}

} // namespace fibers

#define ENTRY(NAME)                                                                                         \
    extern "C" const char *launch_##NAME(const fibers::Launch *how, const char *arguments)                  \
    {                                                                                                       \
        return fibers::launch(fibers::Call<NAME>::run, *how, arguments);                                    \
    }

static inline void __syncthreads()
{
    fibers::me->state = fibers::AT_BARRIER;
    fibers::give_way();
}
static inline unsigned atomicAdd(unsigned *at, unsigned by)
{
    return fibers::change<unsigned>(at, [](unsigned old, unsigned by) { return old + by; }, by);
}
static inline unsigned atomicOr(unsigned *at, unsigned by)
{
    return fibers::change<unsigned>(at, [](unsigned old, unsigned by) { return old | by; }, by);
}
static inline unsigned atomicExch(unsigned *at, unsigned by)
{
    return fibers::change<unsigned>(at, [](unsigned, unsigned by) { return by; }, by);
}
static inline unsigned peek(const unsigned *from)
{
    fibers::maybe();
    unsigned value = *from;
    fibers::maybe();
    return value;
}
static inline void poke(unsigned char *to, unsigned char value)
{
    fibers::maybe();
    *to = value;
}
