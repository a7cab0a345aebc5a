"""Filters that use each construct that a GPU can run, and the schemas of their events."""

from __future__ import annotations

from evflow.schema import Schema
from evflow.schema.types import Array, Bytes, Str, boolean, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

__all__ = ["COD", "CONVERTED", "INNER", "PYTHON", "WIDE"]

INNER = Schema("inner", {"c": i16, "d": Str[3], "e": Array[boolean, 3]})
WIDE = Schema(
    "wide",
    {
        "a": i64, "b": f64, "c": i32, "d": u64, "e": u32, "f": f32, "g": i8, "h": u8, "i": i16, "j": u16,
        "k": boolean, "s": Str[9], "t": Str[300], "y": Bytes[5], "m": Array[f64, 2, 3], "n": Array[i16, 4],
        "o": Array[u64, 2], "r": INNER,
    },
)  # fmt: skip
COD = [
    "1",
    "0",
    "input.a > 3",
    "input.c / input.g > 1",
    "input.a % input.c == 1",
    "input.d / input.h < 9 || input.e % input.h == 2",
    "input.a / -1 == input.a || input.a % -1 != 0",
    "input.c + 2147483647 < 0",
    "input.a * 3037000500 > input.a - 9223372036854775807",
    "(input.a << input.c) > (input.a >> input.g)",
    "(input.d >> input.c) == (input.e << input.g)",
    "(~input.c ^ input.e | input.h & 12) > 100",
    "-input.d > 5 && -input.g < 5",
    "abs(input.a) < 0 || abs(input.c) == 3",
    "input.b > input.f",
    "input.b == input.b && input.b != input.f",
    "input.f * input.f + 1.5f > input.f / 3.0f",
    "input.b / input.f > 0.1",
    "1.0 / input.b > 1.0f / input.f",
    "(int)input.b == 1 || (unsigned long)input.b > 5",
    "(char)input.f == -128 || (unsigned char)input.b == 255",
    "(long)input.f != 0 && (short)input.a > 0",
    "(float)input.a == (float)(input.a + 1)",
    "(bool)input.b && (double)input.d > 1e18",
    "floor(input.b) == ceil(input.b) || trunc(input.b) < round(input.b)",
    "sqrt(input.b) > fabs(input.f)",
    "fmod(input.b, input.f) > 0.5 || fmod(input.m[0][1], 1e-310) > 0",
    "copysign(1.0, input.b) < 0 || copysign(input.f, input.m[1][1]) > 0",
    "fmin(input.b, input.f) < fmax(input.m[0][0], input.b)",
    "isnan(input.b) || isfinite(input.f)",
    "min(input.a, input.c) > max(input.g, input.i)",
    'input.s == "abc"',
    'input.s != "" && input.s < "b"',
    "input.s == input.t || input.s <= input.r.d",
    'input.y == "ab" || input.y >= input.s',
    'starts_with(input.t, "a") && !ends_with(input.s, "b")',
    'contains(input.t, input.s) || contains(input.s, "")',
    "length(input.t) > length(input.y)",
    'input.s == "longer than nine" || input.s == "a\\0"',
    "input.k && !input.r.e[1] || input.r.c > 0",
    "input.m[1][2] > input.m[input.c][input.g]",
    "input.n[input.a] > 0 && input.o[1] > 3000000000u",
    "length(input.m) * 10 + length(input.m, 1) == 23",
    "input.j > 5 ? input.k : input.i / input.h",
    "{ int i = 0; while (1) i++; return i; }",
    "{ int i, n = 0; for (i = 0; i < 9; i++) { if (i == input.c) continue; if (i > 6) break; n += i; }"
    " return n > 18; }",
    "{ int i = 0; do { i++; if (i == 2) continue; } while (i < input.c); return i > 1; }",
    "{ int n = 0; for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) { if (j == i) break; n += j; }"
    " return n; }",
    "{ long x[3][2]; x[1][0] = input.a; x[input.g][input.h] += 2; return x[1][0] > x[0][1]; }",
    "{ double x[2] = {1.5, input.b}; int i = 0; x[i++] += x[i]; return x[0] > x[i]; }",
    '{ string s = input.s; if (input.k) s = "none"; return s == input.r.d || s == "none"; }',
    "{ int i = input.c; return (i = i + 1) + i++ * i > 5 && (i += 2) != (i -= 2); }",
    "{ unsigned char i = input.c; i += 250; short j = i * 300; return j > i; }",
    "{ if (input.a > 2) return input.a / input.c; else if (input.b > 0) return 0; }",
    "{ switch (input.c) { case 1: return 1; case 2: break; default: return input.a > 0; } return input.k; }",
    '{ for (int i = 0; i < 3; i++) if (contains(input.t, input.s) || input.s == "a") return 1; return 0; }',
    "{\n\n return input.n[input.c] /\n input.g > 0; }",
]
PYTHON = [
    "lambda e: e.a // e.c == e.a % e.c",
    "lambda e: e.b // e.f > e.b % e.f",
    "lambda e: e.f % 2.5 > e.m[1][0] // -0.75",
    "lambda e: int(e.b) > 3 or e.a / e.c > 0.5",
    "lambda e: 'a' in e.s and e.s in ('a', 'abc')",
    "def f(e):\n    n = 0\n    for i in range(2, e.c, 3):\n        n += i ** 2\n    return n > e.r.c",
]
CONVERTED = [
    (Schema("narrow", {"x": x, "y": y}), Schema("wider", {"x": p, "y": q}))
    for x, y, p, q in [
        (i8, u8, i64, i64), (i32, u32, u64, i64), (boolean, i64, i64, u64), (i64, u64, f64, f64),
        (f32, f32, f64, i64), (f64, f32, i64, u64), (boolean, i16, f64, f32), (u16, i8, f32, f32),
    ]
]  # fmt: skip
"""What a function is written for, and what comes: converted, and a fault where the number changes."""
