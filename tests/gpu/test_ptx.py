"""Each instruction that is translated gives what its definition says, computed here by other means."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.conftest import had
from tests.gpu.driver.ptx import PtxError, translate
from tests.gpu.toolchain import compiled

DRIVER = Path(__file__).parent / "driver"
KERNEL = """
.global .align 1 .b8 table[4] = {7, 8, 9, 250};
.visible .entry probe(
	.param .u64 probe_param_0
)
{
	.local .align 4 .b8 	__local_depot0[8];
	.reg .b64 	%SPL;
	.reg .pred 	%p<4>;
	.reg .b16 	%rs<4>;
	.reg .b32 	%r<8>;
	.reg .f32 	%f<4>;
	.reg .b64 	%rd<8>;
	.reg .f64 	%fd<4>;
	mov.u64 	%SPL, __local_depot0;
	ld.param.u64 	%rd1, [probe_param_0];
BODY
	ret;
}
"""
WORDS = [0, 1, 5, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
FLOATS = [0.0, -0.0, 1.5, -1.5, 2.5e9, -2.5e9, 1e300, math.inf, -math.inf, math.nan]


def signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def on_words(*lines: str) -> str:
    """Two words in, one out."""
    head = "\tld.global.u32 \t%r1, [%rd1];\n\tld.global.u32 \t%r2, [%rd1+8];\n"
    return head + "".join(f"\t{line};\n" for line in lines) + "\tst.global.u32 \t[%rd1+16], %r3;"


def on_floats(*lines: str) -> str:
    """Two doubles in, a double or a word out."""
    head = "\tld.global.f64 \t%fd1, [%rd1];\n\tld.global.f64 \t%fd2, [%rd1+8];\n"
    return head + "".join(f"\t{line};\n" for line in lines)


LOW = 0xFFFFFFFF
ON_WORDS: dict[str, tuple[tuple[str, ...], Callable[[int, int], int]]] = {
    "add": (("add.s32 %r3, %r1, %r2",), lambda a, b: (a + b) & LOW),
    "sub": (("sub.s32 %r3, %r1, %r2",), lambda a, b: (a - b) & LOW),
    "mul.lo": (("mul.lo.s32 %r3, %r1, %r2",), lambda a, b: (a * b) & LOW),
    "mad.lo": (("mad.lo.s32 %r3, %r1, %r2, %r2",), lambda a, b: (a * b + b) & LOW),
    "mul.wide.u32": (("mul.wide.u32 %rd2, %r1, %r2", "shr.u64 %rd3, %rd2, 32", "cvt.u32.u64 %r3, %rd3"),
                     lambda a, b: (a * b) >> 32),
    "mul.wide.s32": (("mul.wide.s32 %rd2, %r1, %r2", "shr.u64 %rd3, %rd2, 32", "cvt.u32.u64 %r3, %rd3"),
                     lambda a, b: (signed(a) * signed(b) >> 32) & LOW),
    "and": (("and.b32 %r3, %r1, %r2",), lambda a, b: a & b),
    "or": (("or.b32 %r3, %r1, %r2",), lambda a, b: a | b),
    "xor": (("xor.b32 %r3, %r1, %r2",), lambda a, b: a ^ b),
    "shl": (("shl.b32 %r3, %r1, %r2",), lambda a, b: (a << min(b, 64)) & LOW),
    "shr.u32": (("shr.u32 %r3, %r1, %r2",), lambda a, b: a >> min(b, 64)),
    "shr.s32": (("shr.s32 %r3, %r1, %r2",), lambda a, b: (signed(a) >> min(b, 64)) & LOW),
    "min.s32": (("min.s32 %r3, %r1, %r2",), lambda a, b: min(signed(a), signed(b)) & LOW),
    "min.u32": (("min.u32 %r3, %r1, %r2",), min),
    "setp.lt.s32": (("setp.lt.s32 %p1, %r1, %r2", "selp.b32 %r3, 1, 0, %p1"),
                    lambda a, b: int(signed(a) < signed(b))),
    "setp.ge.u32": (("setp.ge.u32 %p1, %r1, %r2", "selp.b32 %r3, 1, 0, %p1"), lambda a, b: int(a >= b)),
    "not.pred": (("setp.eq.s32 %p1, %r1, %r2", "not.pred %p2, %p1", "selp.u32 %r3, 7, 9, %p2"),
                 lambda a, b: 7 if a != b else 9),
    "bfi": (("bfi.b32 %r3, %r1, %r2, 8, 8",), lambda a, b: (b & ~0xFF00) | ((a & 0xFF) << 8)),
    "bfi.b64": (("cvt.u64.u32 %rd2, %r1", "cvt.u64.u32 %rd3, %r2", "bfi.b64 %rd4, %rd2, %rd3, 40, 12",
                 "shr.u64 %rd5, %rd4, 32", "cvt.u32.u64 %r3, %rd5"), lambda a, b: (a & 0xFFF) << 8),
    "mul.hi.u32": (("mul.hi.u32 %r3, %r1, %r2",), lambda a, b: (a * b) >> 32),
    "mul.hi.s32": (("mul.hi.s32 %r3, %r1, %r2",), lambda a, b: (signed(a) * signed(b) >> 32) & LOW),
    "neg.s32": (("neg.s32 %r4, %r1", "setp.lt.s32 %p1, %r4, 4", "selp.u32 %r3, 1, 0, %p1"),
                lambda a, b: int(signed(-a & LOW) < 4)),
    "abs.s32": (("abs.s32 %r3, %r1",), lambda a, b: abs(signed(a)) & LOW),
    "prmt": (("prmt.b32 %r3, %r1, %r2, 45857",),  # 0xB321: the sign of byte 3, then bytes 3, 2 and 1
             lambda a, b: int.from_bytes([a >> 8 & 255, a >> 16 & 255, a >> 24, 255 * (a >> 31)], "little")),
    "local": (("st.local.u32 [%SPL+4], %r1", "st.local.u32 [%SPL], %r2", "add.u64 %rd2, %SPL, 4",
               "ld.local.u32 %r3, [%rd2]"), lambda a, b: a),
    "constant": (("and.b32 %r4, %r1, 3", "mov.u64 %rd2, table", "cvt.u64.u32 %rd3, %r4",
                  "add.u64 %rd4, %rd2, %rd3", "ld.u8 %r3, [%rd4]"), lambda a, b: (7, 8, 9, 250)[a & 3]),
    "cvt.s64.s32": (("cvt.s64.s32 %rd2, %r1", "shr.u64 %rd3, %rd2, 32", "cvt.u32.u64 %r3, %rd3"),
                    lambda a, b: LOW if a >> 31 else 0),
    "cvt.u16": (("cvt.u16.u32 %rs1, %r1", "cvt.u32.u16 %r3, %rs1"), lambda a, b: a & 0xFFFF),
}  # fmt: skip
NAN = math.isnan
ON_FLOATS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "neu": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "gtu": lambda a, b: NAN(a) or NAN(b) or a > b,
    "nan": lambda a, b: NAN(a) or NAN(b),
    "num": lambda a, b: not (NAN(a) or NAN(b)),
}


def probe(body: str) -> Callable[[bytes], bytes]:
    """A kernel of these lines, as a function from 24 bytes of memory to what stands there afterwards."""
    source = translate(KERNEL.replace("BODY", body))
    call = (
        'extern "C" void call(void *memory)\n{\n'
        "    unsigned one[3] = {1, 1, 1};\n    uint64_t at = uint64_t(memory);\n"
        "    kernel_entries[0].launch(Launch{one, one, &at, IN_ORDER, 1});\n}\n"
    )
    library = ctypes.CDLL(str(compiled([DRIVER / "run.h"], ["-O1", "-w"], text=source + call)))

    def run(memory: bytes) -> bytes:
        held = ctypes.create_string_buffer(memory, len(memory))
        library.call(held)
        return held.raw

    return run


def test_instructions_on_integers() -> None:
    body = []
    for index, (lines, _) in enumerate(ON_WORDS.values()):
        body.append(on_words(*lines).replace("[%rd1+16]", f"[%rd1+{16 + 4 * index}]"))
    run = had(lambda: probe("\n".join(body)))
    for a in WORDS:
        for b in WORDS:
            out = run(struct.pack("QQ", a, b) + bytes(4 * len(ON_WORDS)))[16:]
            found = dict(zip(ON_WORDS, struct.unpack(f"{len(ON_WORDS)}I", out), strict=True))
            assert found == {name: expected(a, b) for name, (_, expected) in ON_WORDS.items()}, (a, b)


def test_comparisons_of_floats() -> None:
    body = [on_floats()]
    for index, how in enumerate(ON_FLOATS):
        body.append(f"\tsetp.{how}.f64 \t%p1, %fd1, %fd2;\n\tselp.u32 \t%r3, 1, 0, %p1;")
        body.append(f"\tst.global.u32 \t[%rd1+{16 + 4 * index}], %r3;")
    run = had(lambda: probe("\n".join(body)))
    for a in FLOATS:
        for b in FLOATS:
            out = run(struct.pack("dd", a, b) + bytes(4 * len(ON_FLOATS)))[16:]
            found = dict(zip(ON_FLOATS, struct.unpack(f"{len(ON_FLOATS)}I", out), strict=True))
            assert found == {how: int(expected(a, b)) for how, expected in ON_FLOATS.items()}, (a, b)


def test_arithmetic_of_floats_is_rounded_step_by_step() -> None:
    steps = (
        "sub.rn.f64 %fd3, %fd1, %fd2", "mul.rn.f64 %fd3, %fd3, %fd3", "add.rn.f64 %fd3, %fd3, %fd2",
        "cvt.rn.f32.f64 %f1, %fd3",
    )  # fmt: skip
    run = had(lambda: probe(on_floats(*steps) + "\tst.global.f32 \t[%rd1+16], %f1;"))
    random = np.random.default_rng(1)
    for a, b in random.uniform(-3, 3, (200, 2)).tolist():
        expected = np.float32((a - b) * (a - b) + b)
        assert struct.unpack("f", run(struct.pack("dd", a, b) + bytes(8))[16:20])[0] == expected


@pytest.mark.parametrize(("to", "bits", "source"), [("s32", 32, 64), ("s64", 64, 64), ("s32", 32, 32)])
def test_floats_become_integers_as_on_a_device(to: str, bits: int, source: int) -> None:
    """NaN gives the sign bit, or 0 where neither has 64 bits, as the PTX ISA says of ``cvt``."""
    register = "%r3" if bits == 32 else "%rd3"
    lines: tuple[str, ...] = ("cvt.rmi.f64.f64 %fd3, %fd1", f"cvt.rzi.{to}.f64 {register}, %fd3")
    if source == 32:
        lines = (lines[0], "cvt.rn.f32.f64 %f1, %fd3", f"cvt.rzi.{to}.f32 {register}, %f1")
    run = had(lambda: probe(on_floats(*lines) + f"\tst.global.u{bits} \t[%rd1+16], {register};"))
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    for value in [*FLOATS, 0.5, -0.5, 9.3e18, -9.3e18, 2147483647.0, -2147483649.0]:
        if NAN(value):
            expected = least if 64 in (bits, source) else 0
        elif math.isinf(value):
            expected = most if value > 0 else least
        else:
            with np.errstate(over="ignore"):
                held = float(np.float32(math.floor(value))) if source == 32 else math.floor(value)
            expected = int(min(max(held, least), most))
        out = run(struct.pack("dd", value, 0) + bytes(8))[16 : 16 + bits // 8]
        assert int.from_bytes(out, "little", signed=True) == expected, value


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("fma.rn.f64 %fd1, %fd1, %fd2, %fd3", "not known"),
        ("mul.f64 %fd1, %fd1, %fd2", "not rounded"),
        ("add.rn.ftz.f32 %f1, %f1, %f2", "not rounded"),
        ("vote.sync.ballot.b32 %r1, %p1, -1", "not known"),
        ("ld.const.u32 %r1, [%rd1]", "neither global, shared"),
        ("cvta.local.u64 %rd1, %SPL", "an address that is not of global memory"),
        ("mov.u32 %r1, %clock", "clock"),
    ],
)
def test_an_instruction_that_is_not_known_is_an_error(line: str, why: str) -> None:
    with pytest.raises(PtxError, match=why):
        translate(KERNEL.replace("BODY", f"\t{line};"))


def test_quotients_and_roots_of_floats_are_rounded_once() -> None:
    steps = ("div.rn.f64 %fd3, %fd1, %fd2", "abs.f64 %fd3, %fd3", "sqrt.rn.f64 %fd3, %fd3")
    steps += ("rcp.rn.f64 %fd3, %fd3",)
    run = had(lambda: probe(on_floats(*steps) + "\tst.global.f64 \t[%rd1+16], %fd3;"))
    random = np.random.default_rng(1)
    for a, b in random.uniform(-3, 3, (200, 2)).tolist():
        found = struct.unpack("d", run(struct.pack("dd", a, b) + bytes(8))[16:])[0]
        assert found == 1 / math.sqrt(abs(a / b))


def test_floats_become_unsigned_integers_as_on_a_device() -> None:
    run = had(lambda: probe(on_floats("cvt.rzi.u64.f64 %rd3, %fd1") + "\tst.global.u64 \t[%rd1+16], %rd3;"))
    most = (1 << 64) - 1
    for value, expected in [
        (-3.5, 0),
        (0.9, 0),
        (9.5, 9),
        (1e19, 10**19),
        (2e19, most),
        (math.inf, most),
        (math.nan, 1 << 63),
    ]:
        out = run(struct.pack("dd", value, 0) + bytes(8))[16:]
        assert int.from_bytes(out, "little") == expected, value


def test_a_barrier_that_some_threads_leave_out_is_told() -> None:
    body = "\tmov.u32 \t%r1, %tid.x;\n\tsetp.eq.s32 \t%p1, %r1, 0;\n\t@%p1 bra \t$L1;\n\tbar.sync \t0;\n$L1:"
    source = translate(KERNEL.replace("BODY", body)) + (
        'extern "C" const char *call()\n{\n    unsigned grid[3] = {1, 1, 1}, block[3] = {4, 1, 1};\n'
        "    uint64_t at = 0;\n"
        "    const char *said = kernel_entries[0].launch(Launch{grid, block, &at, IN_ORDER, 1});\n"
        '    return said ? said : "";\n}\n'
    )
    path = had(lambda: compiled([DRIVER / "run.h"], ["-O1", "-w"], text=source))
    library = ctypes.CDLL(str(path))
    library.call.restype = ctypes.c_char_p
    assert b"some threads of the block have left out" in library.call()
