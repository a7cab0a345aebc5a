// Runs kernels that ptx.py has translated: all threads of a grid on one CPU thread, in an order of choice.
#pragma once
#include <algorithm>
#include <array>
#include <csignal>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

enum { DONE = 0, TURN = 1 << 24, BARRIER = 1 << 25, WHERE = (1 << 24) - 1 };
enum { IN_ORDER, REVERSED, SHUFFLED };

struct Thread {
    uint32_t tid[3], ctaid[3], ntid[3], nctaid[3];
};

struct Launch {
    const unsigned *grid, *block;
    const void *parameters;
    int order;
    uint64_t seed;
};

struct KernelEntry {
    const char *name;
    unsigned parameter_bytes;
    const char *(*launch)(const Launch &);
};

// What a kernel costs, counted while it runs. Memory is moved in sectors of 32 bytes; an access of a warp takes
// each sector that its threads touch once.
struct Counts {
    uint64_t launches = 0, threads = 0, instructions = 0, sectors = 0;
    std::map<std::array<uint64_t, 3>, std::set<uint64_t>> warps;
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> times;

    void touch(const Thread &thread, unsigned site, const char *at, unsigned bytes)
    {
        uint64_t number = thread.tid[0], first = uint64_t(at) / 32, last = (uint64_t(at) + bytes - 1) / 32;
        std::set<uint64_t> &warp = warps[{number / 32, site, times[{number, site}]++}];
        for (uint64_t sector = first; sector <= last; sector++)
            warp.insert(sector);
    }

    void end_block()
    {
        for (auto &[key, touched] : warps)
            sectors += touched.size();
        warps.clear();
        times.clear();
    }
};

static Counts counts;
#ifdef COUNT
static std::map<std::string, Counts> all_counts;

// Launches, threads, instructions and bytes of a kernel since it was last asked.
extern "C" void kernel_counts(const char *name, uint64_t *four)
{
    const Counts &held = all_counts[name];
    four[0] = held.launches;
    four[1] = held.threads;
    four[2] = held.instructions;
    four[3] = 32 * held.sectors;
    all_counts.erase(name);
}
#endif

// A register read as a type: its bits, of which a smaller type takes the low ones.
template <class To, class From> static inline To as(From from)
{
    if constexpr (std::is_floating_point_v<To> != std::is_floating_point_v<From>) {
        static_assert(sizeof(To) == sizeof(From));
        To to;
        memcpy(&to, &from, sizeof to);
        return to;
    } else {
        return static_cast<To>(from);
    }
}

// A value put into a register, which holds bits: a sign is extended, as loads and conversions do.
template <class Register, class Value> static inline void set(Register &to, Value value)
{
    if constexpr (std::is_floating_point_v<Register> != std::is_floating_point_v<Value>) {
        static_assert(sizeof(Register) == sizeof(Value));
        memcpy(&to, &value, sizeof to);
    } else {
        to = static_cast<Register>(value);
    }
}

template <class T> static inline T load(const char *from, int index)
{
    T value;
    memcpy(&value, from + index * sizeof(T), sizeof value);
    return value;
}

template <class T> static inline void store(char *to, int index, T value)
{
    memcpy(to + index * sizeof(T), &value, sizeof value);
}

template <class T> static inline T shl(T value, uint32_t by)
{
    return by >= 8 * sizeof(T) ? T(0) : T(value << by);
}

template <class T> static inline T shr(T value, uint32_t by)
{
    return by >= 8 * sizeof(T) ? T(value < 0 ? -1 : 0) : T(value >> by);
}

template <class T> static inline T least(T a, T b)
{
    if constexpr (std::is_floating_point_v<T>)
        return std::fmin(a, b);
    return a < b ? a : b;
}

template <class T> static inline T most(T a, T b)
{
    if constexpr (std::is_floating_point_v<T>)
        return std::fmax(a, b);
    return a > b ? a : b;
}

template <class T> static inline T insert(T part, T whole, uint32_t at, uint32_t size)
{
    constexpr uint32_t bits = 8 * sizeof(T);
    T mask = at >= bits ? T(0) : T((size >= bits ? ~T(0) : (T(1) << size) - 1) << at);
    return (whole & ~mask) | (at >= bits ? T(0) : T(part << at) & mask);
}

// The upper half of a product.
template <class T> static inline T product_high(T a, T b)
{
    using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return T(Wide(a) * Wide(b) >> 8 * sizeof(T));
}

// Four of the bytes of two words, each named by a digit; with 8 added the digit means the byte's sign.
static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t digits)
{
    uint64_t bytes = uint64_t(b) << 32 | a;
    uint32_t made = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t digit = digits >> 4 * i;
        uint8_t byte = uint8_t(bytes >> 8 * (digit & 7));
        made |= uint32_t(digit & 8 ? (byte & 0x80 ? 0xFF : 0) : byte) << 8 * i;
    }
    return made;
}

// An address that is a multiple of the bytes that are read or written there at once; a device takes no other.
template <unsigned bytes> static inline char *aligned(char *at, uint64_t offset)
{
    if (offset % bytes)
        raise(SIGBUS);
    return at;
}

// An offset into the memory of a thread, which has ``size`` bytes.
template <uint64_t size> static inline uint64_t bounded(uint64_t at)
{
    if (at >= size)
        abort();
    return at;
}

// A float to an integer as the GPU does it: what is too large or small gives the end of the range. NaN gives 0,
// but the sign bit where either of the two has 64 bits.
template <class T, class From> static inline T truncate(From value)
{
    if (std::isnan(value))
        return sizeof(From) == 8 || sizeof(T) == 8 ? T(T(1) << (8 * sizeof(T) - 1)) : T(0);
    if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits))
        return std::numeric_limits<T>::max();
    return value < double(std::numeric_limits<T>::min()) ? std::numeric_limits<T>::min() : T(value);
}

template <class Registers> struct Turn {
    Thread thread;
    Registers registers;
    char *shared;
    int at;
    size_t block;
};

static inline Thread thread_of(const Launch &how, uint64_t block, uint64_t number)
{
    const unsigned *g = how.grid, *b = how.block;
    Thread thread = {};
    for (int i = 0; i < 3; i++) {
        thread.ntid[i] = b[i];
        thread.nctaid[i] = g[i];
        thread.ctaid[i] = uint32_t(block % g[i]);
        thread.tid[i] = uint32_t(number % b[i]);
        block /= g[i];
        number /= b[i];
    }
    return thread;
}

static inline std::vector<uint32_t> ordered(uint64_t count, int order, std::mt19937_64 &random)
{
    std::vector<uint32_t> numbers(count);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = uint32_t(order == REVERSED ? count - 1 - i : i);
    if (order == SHUFFLED)
        std::shuffle(numbers.begin(), numbers.end(), random);
    return numbers;
}

// Runs these threads until all are done: each in turn, or one at random up to its next stop.
template <class Registers, int (*step)(const Thread &, const char *, char *, Registers &, int)>
static const char *take_turns(std::vector<Turn<Registers>> &turns, size_t blocks, const Launch &how,
                              std::mt19937_64 &random)
{
    const char *parameters = static_cast<const char *>(how.parameters);
    std::vector<uint32_t> ready = ordered(turns.size(), how.order, random);
    std::vector<std::vector<uint32_t>> waiting(blocks);
    std::vector<size_t> alive(blocks, blocks ? turns.size() / blocks : 0);
    std::reverse(ready.begin(), ready.end());
    while (!ready.empty()) {
        size_t pick = how.order == SHUFFLED ? random() % ready.size() : ready.size() - 1;
        std::swap(ready[pick], ready.back());
        Turn<Registers> &turn = turns[ready.back()];
        int stop = step(turn.thread, parameters, turn.shared, turn.registers, turn.at);
        turn.at = stop & WHERE;
        if (stop & TURN)
            continue;
        uint32_t number = ready.back();
        ready.pop_back();
        if (stop & BARRIER)
            waiting[turn.block].push_back(number);
        else
            alive[turn.block] -= 1;
        std::vector<uint32_t> &here = waiting[turn.block];
        if (here.empty() || here.size() < alive[turn.block])
            continue;
        if (alive[turn.block] < turns.size() / blocks)
            return "a barrier that some threads of the block have left out";
        std::vector<uint32_t> again = ordered(here.size(), how.order, random);
        for (size_t i = again.size(); i-- > 0;)
            ready.push_back(here[again[i]]);
        here.clear();
    }
    for (auto &here : waiting)
        if (!here.empty())
            return "a barrier that some threads of the block have left out";
    return nullptr;
}

template <class Registers, int (*step)(const Thread &, const char *, char *, Registers &, int), bool stops>
static const char *run_blocks(const Launch &how, unsigned shared_bytes)
{
    std::mt19937_64 random(how.seed);
    uint64_t blocks = uint64_t(how.grid[0]) * how.grid[1] * how.grid[2];
    uint64_t threads = uint64_t(how.block[0]) * how.block[1] * how.block[2];
    std::vector<uint32_t> block_order = ordered(blocks, how.order, random);
    std::vector<char> shared;
    Registers fresh;
    memset(&fresh, 0xCD, sizeof fresh);
    if constexpr (!stops) {
        for (uint32_t block : block_order) {
            for (uint32_t number : ordered(threads, how.order, random)) {
                Registers registers = fresh;
                step(thread_of(how, block, number), static_cast<const char *>(how.parameters), nullptr, registers, 0);
            }
            counts.end_block();
        }
        return nullptr;
    }
    // Shuffled, all blocks run at the same time, where they are few enough.
    uint64_t together = how.order == SHUFFLED && blocks * threads <= 1 << 16 ? blocks : 1;
    std::vector<Turn<Registers>> turns;
    for (uint64_t first = 0; first < blocks; first += together) {
        shared.assign(together * shared_bytes, char(0xCD));
        turns.clear();
        for (uint64_t i = 0; i < together; i++)
            for (uint64_t number = 0; number < threads; number++)
                turns.push_back({thread_of(how, block_order[first + i], number), fresh,
                                 shared.data() + i * shared_bytes, 0, size_t(i)});
        if (const char *wrong = take_turns<Registers, step>(turns, together, how, random))
            return wrong;
        counts.end_block();
    }
    return nullptr;
}

template <class Registers, int (*step)(const Thread &, const char *, char *, Registers &, int), bool stops>
static const char *run(const char *name, const Launch &how, unsigned shared_bytes)
{
    (void)name;
    counts = Counts();
    const char *wrong = run_blocks<Registers, step, stops>(how, shared_bytes);
#ifdef COUNT
    Counts &held = all_counts[name];
    held.launches += 1;
    held.instructions += counts.instructions;
    held.sectors += counts.sectors;
    uint64_t blocks = uint64_t(how.grid[0]) * how.grid[1] * how.grid[2];
    held.threads += blocks * how.block[0] * how.block[1] * how.block[2];
#endif
    return wrong;
}
