"""The CUDA C that every function calls: loads from events, arithmetic with every case defined, texts.

Nothing here depends on a compiler's idea of overflow, alignment or rounding; it is compiled with
``-fmad=false``.
"""

from __future__ import annotations

__all__ = ["DROPPED", "PASSED", "PRELUDE"]

DROPPED, PASSED = 0, 255
"""What a function says of an event; another value is a fault in the low 8 bits and the line above."""

PRELUDE = """\
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
#define INLINE static __device__ __forceinline__

// A view of bytes of an event or a literal.
struct Text {
    const u8 *at;
    i64 length;
};

// Nothing in an event is aligned. Fields are big-endian, elements of arrays little-endian.
INLINE u16 big16(const u8 *p) { return (u16)((u32)p[0] << 8 | p[1]); }
INLINE u32 big32(const u8 *p) { return (u32)p[0] << 24 | (u32)p[1] << 16 | (u32)p[2] << 8 | p[3]; }
INLINE u64 big64(const u8 *p) { return (u64)big32(p) << 32 | big32(p + 4); }
INLINE u16 little16(const u8 *p) { return (u16)((u32)p[1] << 8 | p[0]); }
INLINE u32 little32(const u8 *p) { return (u32)p[3] << 24 | (u32)p[2] << 16 | (u32)p[1] << 8 | p[0]; }
INLINE u64 little64(const u8 *p) { return (u64)little32(p + 4) << 32 | little32(p); }
INLINE f32 float32(u32 bits) { return __uint_as_float(bits); }
INLINE f64 float64(u64 bits) { return __longlong_as_double((i64)bits); }

INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }

// A text that is padded with NUL.
INLINE Text trimmed(const u8 *at, i64 length)
{
    while (length > 0 && at[length - 1] == 0)
        length--;
    return Text{at, length};
}

INLINE bool same(const u8 *a, const u8 *b, i64 length)
{
    for (i64 i = 0; i < length; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

INLINE i64 order(Text a, Text b)
{
    i64 shorter = least(a.length, b.length);
    for (i64 i = 0; i < shorter; i++)
        if (a.at[i] != b.at[i])
            return (i64)a.at[i] - (i64)b.at[i];
    return a.length - b.length;
}

INLINE bool equal(Text a, Text b) { return a.length == b.length && same(a.at, b.at, a.length); }

INLINE bool starts_with(Text a, Text b) { return a.length >= b.length && same(a.at, b.at, b.length); }

INLINE bool ends_with(Text a, Text b)
{
    return a.length >= b.length && same(a.at + (a.length - b.length), b.at, b.length);
}

INLINE bool contains(Text a, Text b)
{
    for (i64 at = 0; at + b.length <= a.length; at++)
        if (same(a.at + at, b.at, b.length))
            return true;
    return false;
}

// A float as an integer: truncated, the ends of the range where it is beyond them, 0 for NaN.
template <class To, class From> INLINE To saturated(From value, To low, To high, From limit)
{
    return value != value ? (To)0 : value <= (From)low ? low : value >= limit ? high : (To)value;
}

INLINE bool isnan_(f64 x) { return x != x; }
INLINE bool isfinite_(f64 x) { return x - x == 0; }

// Which sign a NaN has depends on how it was computed; it counts as positive.
INLINE f64 copysign_(f64 x, f64 y)
{
    const u64 sign = 1ull << 63;
    u64 of = isnan_(y) ? 0 : (u64)__double_as_longlong(y) & sign;
    return float64(((u64)__double_as_longlong(x) & ~sign) | of);
}

INLINE f64 fmin_(f64 x, f64 y) { return y < x || isnan_(x) ? y : x; }
INLINE f64 fmax_(f64 x, f64 y) { return y > x || isnan_(x) ? y : x; }

// Halves away from zero.
INLINE f64 round_(f64 x)
{
    f64 whole = trunc(x);
    return fabs(x - whole) >= 0.5 ? whole + (x > 0 ? 1.0 : -1.0) : whole;
}

// A float without its sign is ``fraction`` times two to the power of ``exponent``, counted from the smallest.
INLINE u64 taken_apart(u64 bits, i32 &exponent)
{
    const u64 hidden = 1ull << 52;
    u64 fraction = bits & (hidden - 1);
    exponent = (i32)(bits >> 52);
    if (exponent)
        return fraction | hidden;
    exponent = 1;
    while (!(fraction & hidden)) {
        fraction <<= 1;
        exponent--;
    }
    return fraction;
}

// The exact remainder, by long division bit by bit, with the sign of ``x``.
INLINE f64 fmod_(f64 x, f64 y)
{
    if (isnan_(x) || isnan_(y) || !isfinite_(x) || y == 0)
        return float64(0x7ff8000000000000ull);
    if (fabs(x) < fabs(y) || x == 0)
        return x;
    i32 high, low;
    u64 rest = taken_apart((u64)__double_as_longlong(fabs(x)), high);
    u64 by = taken_apart((u64)__double_as_longlong(fabs(y)), low);
    for (; high > low; high--)
        rest = (rest >= by ? rest - by : rest) << 1;
    rest = rest >= by ? rest - by : rest;
    if (rest == 0)
        return copysign_(0.0, x);
    for (; !(rest >> 52) && high > 1; high--)
        rest <<= 1;
    if (high < 1)
        rest >>= 1 - high;
    else if (rest >> 52)
        rest = (rest & ((1ull << 52) - 1)) | (u64)high << 52;
    return copysign_(float64(rest), x);
}

// Python's ``x % y`` and ``x // y`` for y not zero.
INLINE f64 modulo(f64 x, f64 y)
{
    f64 rest = fmod_(x, y);
    if (rest == 0)
        return copysign_(0.0, y);
    return (rest < 0) != (y < 0) && rest != 0 ? rest + y : rest;
}

INLINE f64 floor_divided(f64 x, f64 y)
{
    f64 rest = fmod_(x, y), quotient = (x - rest) / y;
    if (rest != 0 && (rest < 0) != (y < 0))
        quotient = quotient - 1.0;
    if (quotient == 0)
        return copysign_(0.0, x / y);
    f64 whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

// Integers; the divisor is not zero. The least by -1 is the least.
template <class T> INLINE bool negates(T b) { return (T)-1 < (T)1 && b == (T)-1; }
template <class T> INLINE T divided(T a, T b) { return negates(b) ? (T)(0 - (u64)a) : (T)(a / b); }
template <class T> INLINE T remainder_(T a, T b) { return negates(b) ? (T)0 : (T)(a % b); }

// Rounding down differs from truncation where the remainder and the divisor have different signs.
template <class T> INLINE T modulo(T a, T b)
{
    T rest = remainder_(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? (T)(rest + b) : rest;
}

template <class T> INLINE T floor_divided(T a, T b)
{
    T rest = remainder_(a, b), quotient = divided(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? (T)(quotient - 1) : quotient;
}
"""
