// What the kernels of all engines share: an attribute of an event, and whether a constraint on it holds.
//
// Numbers and places are compared as float64, strings by number or byte by byte, every step rounded: compile
// with -fmad=false, or engines differ at the rim of a circle.

// evflow/matching/operators.py
enum { EQ, NE, LT, LE, GT, GE, PREFIX, SUFFIX, CONTAINS, EXISTS, NOT_PREFIX, NOT_SUFFIX, NOT_CONTAINS };
enum { AREA = 14, ALWAYS };
enum { OPERATION = 15, TEXT_OPERAND = 16 };
enum { NUMBER = 1, TEXT = 2 };

typedef unsigned char byte;

// 32 bytes, filled by evflow/gpu/pack.py.
struct Attribute {
    double number;
    int start;   // ccm, clcb: where the constraints on it stand; clcb-grid: its name
    int size;    // ccm, clcb: how many there are
    int kind;
    int text;    // the operand that a string equals, or -1
    int chars;   // where the bytes of a string start
    int length;
};

struct Strings {
    const byte *data;
    const long long *offsets;
};

#ifndef EVFLOW_HOST
// Reads and writes that other threads may race with; what they see of them does not matter.
static __device__ __forceinline__ unsigned peek(const unsigned *from) { return *(const volatile unsigned *)from; }
static __device__ __forceinline__ void poke(byte *to, byte value) { *(volatile byte *)to = value; }
#endif

static __device__ __forceinline__ bool same(const byte *a, const byte *b, int length)
{
    for (int i = 0; i < length; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

static __device__ __forceinline__ bool contains(const byte *text, int length, const byte *part, int size)
{
    for (int at = 0; at + size <= length; at++)
        if (same(text + at, part, size))
            return true;
    return false;
}

// Less than 0, 0, or more: how two strings stand by the order of their bytes.
static __device__ __forceinline__ int order(const byte *a, int length, const byte *b, int size)
{
    int shorter = length < size ? length : size;
    for (int i = 0; i < shorter; i++)
        if (a[i] != b[i])
            return (int)a[i] - (int)b[i];
    return length - size;
}

static __device__ __forceinline__ bool number_holds(int op, double number, double operand)
{
    switch (op) {
    case EQ: return number == operand;
    case NE: return number != operand;
    case LT: return number < operand;
    case LE: return number <= operand;
    case GT: return number > operand;
    case GE: return number >= operand;
    default: return false;
    }
}

static __device__ __forceinline__ bool text_holds(int op, const Attribute *a, const byte *chars, int operand,
                                                  Strings strings)
{
    if (op == EQ)
        return a->text == operand;
    if (op == NE)
        return a->text != operand;
    const byte *text = chars + a->chars;
    const byte *part = strings.data + strings.offsets[operand];
    int length = a->length, size = (int)(strings.offsets[operand + 1] - strings.offsets[operand]);
    bool negated = op >= NOT_PREFIX;
    if (negated)
        op += PREFIX - NOT_PREFIX;
    if (op == PREFIX)
        return negated != (size <= length && same(text, part, size));
    if (op == SUFFIX)
        return negated != (size <= length && same(text + length - size, part, size));
    if (op == CONTAINS)
        return negated != contains(text, length, part, size);
    int way = order(text, length, part, size);
    return op == LT ? way < 0 : op == LE ? way <= 0 : op == GT ? way > 0 : way >= 0;
}

// Whether a constraint holds; ``code`` is its operator, plus TEXT_OPERAND if ``operand`` numbers a string.
static __device__ __forceinline__ bool holds(int code, double operand, const Attribute *a, const byte *chars,
                                             Strings strings)
{
    if (code == EXISTS)
        return true;
    if (code & TEXT_OPERAND)
        return a->kind == TEXT && text_holds(code & OPERATION, a, chars, (int)operand, strings);
    return a->kind == NUMBER && number_holds(code, a->number, operand);
}

// Whether a place lies in the area of filter ``i``; one without an area has NaN for its centre.
static __device__ __forceinline__ bool inside(int dimensions, const void *centres, const void *reaches, unsigned i,
                                              double x, double y, double z)
{
    const double *centre = (const double *)centres + dimensions * (unsigned long long)i;
    double reach = ((const double *)reaches)[i];
    if (centre[0] != centre[0])
        return true;
    double dx = x - centre[0], dy = y - centre[1], square = dx * dx + dy * dy;
    if (dimensions == 2)
        return square <= reach;
    double dz = z - centre[2];
    return square + dz * dz <= reach;
}
