// A small event through every kernel, with all threads at once. Prints how many subscriptions matched, on the
// plane and on the globe.
// The kernels are in block_0, block_1 and block_2, once for each block of a grid.

template <class T> struct Exact {
    T *at;
    explicit Exact(size_t count, T value = T()) : at(new T[count]) { std::fill_n(at, count, value); }
    ~Exact() { delete[] at; }
    operator T *() { return at; }
};

constexpr unsigned FILTERS = 40, ROWS = 3, THREADS = 48;

void scattered()
{
    Exact<unsigned> index(THREADS), values(2 * THREADS, 5u), target(2 * THREADS);
    for (unsigned i = 0; i < THREADS; i++)
        index[i] = THREADS - 1 - i;
    launch(
        {
#define CALL(N) [&] { block_##N::scatter(THREADS, 2, index, values, target); },
            CALL(0) CALL(1) CALL(2)
#undef CALL
        },
        3, 1, THREADS);
    printf("scattered %ld\n", long(std::count(target.at, target.at + 2 * THREADS, 5u)));
}

void played(bool globe)
{
    // Each filter has one constraint on each of three names, two of them number >= 0 and one on a string; the
    // first ten have two that fail.
    Exact<Attribute> input(ROWS);
    Exact<byte> chars(3), codes(ROWS * FILTERS, GE), data(6), matched(FILTERS / 2);
    Exact<double> operands(ROWS * FILTERS);
    Exact<int> filters(ROWS * FILTERS), subscriptions(FILTERS);
    Exact<unsigned> sizes(FILTERS, ROWS), blooms(FILTERS, 7u), counts(FILTERS), found(1), next(FILTERS, 9u), next_found(1, 9u);
    Exact<unsigned> result(1 + FILTERS / 2);
    Exact<long long> offsets(4);
    Exact<double2> plane(FILTERS);
    Exact<double> sphere(3 * FILTERS, 1.0), reaches(FILTERS, 25.0);
    const void *centres = plane;
    if (globe)
        centres = sphere;
    const byte on_text[] = {PREFIX, CONTAINS, GE, SUFFIX};
    memcpy(chars.at, "abc", 3);
    memcpy(data.at, "abbccd", 6);
    for (int i = 0; i < 4; i++)
        offsets[i] = 2 * i;
    for (unsigned row = 0; row < ROWS; row++) {
        int kind = row == 2 ? TEXT : NUMBER;
        input[row] = Attribute{1.0, int(row * FILTERS), int(FILTERS), kind, -1, 0, 3};
        for (unsigned i = 0; i < FILTERS; i++) {
            filters[row * FILTERS + i] = int(i);
            // "ab" and "bc", in turn, hold on "abc"; "cd" does not.
            operands[row * FILTERS + i] = row == 2 ? (i < 10 ? 2 : i % 2) : i < 10 && row ? 5.0 : 0.0;
            if (row == 2)
                codes[row * FILTERS + i] = byte(TEXT_OPERAND + on_text[i % 4]);
            subscriptions[i] = int(i / 2);
            plane[i] = double2{3.0, 4.0};
        }
    }
    auto one = [](auto f) { return std::vector<std::function<void()>>{f}; };
    launch(
        {
#define CALL(N)                                                                                                     \
    [&] {                                                                                                           \
        auto *ccm = globe ? &block_##N::ccm_globe : &block_##N::ccm_plane;                                          \
        ccm(input, chars, 0, 0, 0, codes, operands, filters, sizes, subscriptions, centres, reaches, data,          \
            offsets, counts, found, next, next_found, FILTERS, 1);                                                  \
    },
            CALL(0) CALL(1) CALL(2)
#undef CALL
        },
        1, ROWS, THREADS);
    int ccm = __builtin_popcount(found[0]);
    for (unsigned i = 0; i < FILTERS; i++)
        ccm += next[i] ? 1000 : 0;

    auto *loc = globe ? &block_0::loc_globe : &block_0::loc_plane;
    launch(one([&] { loc(FILTERS, 0, 7, 0, 0, 0, blooms, centres, reaches, sizes, subscriptions, counts, matched, result); }),
           1, 1, THREADS);
    launch(
        {
#define CALL(N)                                                                                                     \
    [&] {                                                                                                           \
        block_##N::cont(input, chars, 0, 255, codes, operands, filters, sizes, subscriptions, data, offsets,        \
                        counts, matched);                                                                           \
    },
            CALL(0) CALL(1) CALL(2)
#undef CALL
        },
        1, ROWS, THREADS);
    launch(one([&] { block_0::zip(FILTERS / 2, matched, result); }), 1, 1, THREADS);
    int clcb = int(result[0]);

    // The same filters for clcb-grid: all are recent, and name is the row.
    Exact<Attribute> sorted(ROWS);
    Exact<block_0::Event> heads(2);
    Exact<int> first(FILTERS), size(FILTERS, ROWS), names(ROWS * FILTERS);
    Exact<byte> by_filter(ROWS * FILTERS);
    Exact<double> values(ROWS * FILTERS), inverse(1, 1.0);
    Exact<unsigned> buckets(3), seen(2), pairs(2 + 2 * FILTERS);
    for (unsigned i = 0; i < FILTERS; i++) {
        first[i] = int(ROWS * i);
        for (unsigned row = 0; row < ROWS; row++) {
            names[ROWS * i + row] = int(row);
            values[ROWS * i + row] = operands[row * FILTERS + i];
            by_filter[ROWS * i + row] = codes[row * FILTERS + i];
        }
    }
    for (unsigned row = 0; row < ROWS; row++) {
        sorted[row] = input[row];
        sorted[row].start = int(row);
    }
    heads[0] = heads[1] = block_0::Event{0, 0, 0, 7, 0, ROWS, 0};
    launch(
        {
#define CALL(N)                                                                                                     \
    [&] {                                                                                                           \
        auto *grid = globe ? &block_##N::grid_globe : &block_##N::grid_plane;                                       \
        grid(2, heads_##N(heads), sorted, chars, centres, reaches, blooms, subscriptions, first, size, names,       \
             by_filter, values, data, offsets, 0, 0, FILTERS, buckets, 1, 1, inverse, seen, 1, pairs, FILTERS);     \
    },
#define heads_0(E) E
#define heads_1(E) reinterpret_cast<const block_1::Event *>(static_cast<block_0::Event *>(E))
            CALL(0) CALL(1)
        },
        1, 2, 64);
    int grid = int(pairs[0]);
    launch(one([&] { block_0::clear(pairs, FILTERS, seen, 1); }), 1, 1, THREADS);
    printf("ccm %d clcb %d grid %d left %u\n", ccm, clcb, grid, seen[0] | seen[1]);
}

int main()
{
    played(false);
    played(true);
    scattered();
}
