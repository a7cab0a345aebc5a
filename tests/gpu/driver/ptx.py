"""PTX translated to C++, so that a CPU executes what a GPU would.

Only the instructions that our kernels are made of are known; any other is an error. A kernel becomes one
function that runs one thread from a label to the next stop: the end, a barrier, or (``interleave``) a memory
access. Its registers are kept in between, so threads take turns without stacks of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["PtxError", "translate"]

TYPES = {
    "pred": "uint8_t",
    **{f"{kind}{bits}": f"uint{bits}_t" for kind in "ub" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
}
ROUNDED = {"rmi": "floor", "rpi": "ceil", "rzi": "trunc"}
WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
ORDERED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
ORDERED |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
ATOMIC = {"add": "fetch_add", "or": "fetch_or", "and": "fetch_and", "xor": "fetch_xor", "exch": "exchange_n"}
SPECIAL = {"%tid": "tid", "%ctaid": "ctaid", "%ntid": "ntid", "%nctaid": "nctaid"}
ENTRY = re.compile(r"\.visible \.entry (\w+)\((.*?)\)(.*?)^\{(.*?)^\}", re.DOTALL | re.MULTILINE)
PARAMETER = re.compile(r"\.param \.(\w+) (\w+)")
REGISTERS = re.compile(r"\.reg \.(\w+)\s+%(\w+)<(\d+)>")
REGISTER = re.compile(r"\.reg \.(\w+)\s+%(\w+);")
LOCAL = re.compile(r"\.local \.align \d+ \.b8\s+(\w+)\[(\d+)\];")
CONSTANT = re.compile(r"^\.global \.align \d+ \.b8 (\w+)(\[\d+\])(?: = (\{[\d, ]*\}))?;", re.MULTILINE)
SHARED = re.compile(r"\.shared \.align (\d+) \.(\w+) ([\w$]+)(?:\[(\d+)\])?;")
ADDRESS = re.compile(r"\[(%?[\w$]+)(?:\+(-?\d+))?\]")


class PtxError(Exception):
    """PTX that this translator does not know."""


@dataclass
class Kernel:
    """What is known of one kernel while it is translated."""

    name: str
    interleave: bool
    count: bool = False
    parameters: dict[str, int] = field(default_factory=dict)
    parameter_bytes: int = 0
    shared: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    constants: frozenset[str] = frozenset()
    local: str = ""
    local_bytes: int = 0
    registers: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    stops: int = 0
    sites: int = 0

    def operand(self, text: str, kind: str) -> str:
        """An operand as a C++ expression of a PTX type."""
        if "." in text and text.split(".")[0] in SPECIAL:
            name, axis = text.split(".")
            return f"T.{SPECIAL[name]}[{'xyz'.index(axis)}]"
        if text.startswith("%"):
            if not any(name == text[1:] for _, name in self.registers):
                raise PtxError(f"register {text!r}")
            return f"as<{TYPES[kind]}>(R.{text[1:]})"
        if text[:2] in ("0f", "0d"):
            bits = f"uint{32 if text[1] == 'f' else 64}_t"
            return f"as<{TYPES[kind]}>({bits}(0x{text[2:]}ull))"
        if text in self.shared:
            return f"uint64_t({self.shared[text]})"
        if text in self.constants:
            return f"uint64_t({text})"
        if text == self.local:
            return "uint64_t(0)"
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", text):
            return f"{TYPES[kind]}({text.rstrip('U')}ll)"
        raise PtxError(f"operand {text!r}")

    def address(self, text: str, space: str, size: int = 1) -> str:
        """An address as a C++ pointer, of so many bytes that are read or written at once."""
        found = ADDRESS.fullmatch(text)
        if not found:
            raise PtxError(f"address {text!r}")
        base, offset = found[1], found[2] or "0"
        if space == "param":
            return f"P + {self.parameters[base] + int(offset)}"
        if space == "shared":
            at = f"uint32_t({self.operand(base, 'u32')}) + {offset}"
            return f"aligned<{size}>(S + {at}, {at})"
        if space == "local":
            at = f"{self.operand(base, 'u64')} + {offset}"
            return f"aligned<{size}>(R.local + bounded<{self.local_bytes}>({at}), {at})"
        at = f"{self.operand(base, 'u64')} + {offset}"
        return f"aligned<{size}>(reinterpret_cast<char *>({at}), {at})"

    def stop(self, kind: str) -> str:
        """Code that gives up the turn here and goes on from here at the next."""
        self.stops += 1
        return f"saved = R; return {kind} | {self.stops}; case {self.stops}:;"


def translate(ptx: str, *, interleave: bool = False, count: bool = False) -> str:
    """C++ for all kernels of a PTX text, for ``run.h``.

    Args:
        ptx: the text.
        interleave: stop before each access to global memory, so that threads may take turns there.
        count: count instructions, and the memory that the accesses of each warp touch.

    Raises:
        PtxError: an instruction is unknown; the message quotes it.
    """
    out = ["#define COUNT"] if count else []
    out += ['#include "run.h"', ""]
    constants = CONSTANT.findall(ptx)
    out += [f"static const uint8_t {name}{size} = {numbers or '{}'};" for name, size, numbers in constants]
    names = []
    for name, parameters, _, body in ENTRY.findall(ptx):
        kernel = Kernel(name, interleave, count, constants=frozenset(name for name, _, _ in constants))
        _declare(kernel, parameters, body)
        for number, line in enumerate(re.split(r"[;\n]", body)):
            try:
                _line(kernel, line.strip())
            except (PtxError, KeyError, ValueError, IndexError) as error:
                raise PtxError(f"{name}, line {number}: {line.strip()!r}: {error}") from error
        out += _function(kernel)
        names.append(name)
    if not names:
        raise PtxError("no kernel in this text")
    entries = [f'    {{"{name}", {name}::parameter_bytes, {name}::launch}},' for name in names]
    out += [
        'extern "C" const KernelEntry kernel_entries[] = {',
        *entries,
        "    {nullptr, 0, nullptr},",
        "};",
        "",
    ]
    return "\n".join(out)


def _declare(kernel: Kernel, parameters: str, body: str) -> None:
    for kind, name in PARAMETER.findall(parameters):
        size = _size(kind)
        kernel.parameter_bytes = -(-kernel.parameter_bytes // size) * size
        kernel.parameters[name] = kernel.parameter_bytes
        kernel.parameter_bytes += size
    for kind, prefix, count in REGISTERS.findall(body):
        kernel.registers += [(TYPES[kind], f"{prefix}{i}") for i in range(int(count))]
    kernel.registers += [(TYPES[kind], name) for kind, name in REGISTER.findall(body)]
    for kernel.local, size in LOCAL.findall(body):
        kernel.local_bytes = int(size)
    for align, kind, name, count in SHARED.findall(body):
        kernel.shared_bytes = -(-kernel.shared_bytes // int(align)) * int(align)
        kernel.shared[name] = kernel.shared_bytes
        kernel.shared_bytes += _size(kind) * int(count or 1)


def _size(kind: str) -> int:
    return int(kind[1:]) // 8


def _function(kernel: Kernel) -> list[str]:
    fields = " ".join(f"{kind} {name};" for kind, name in kernel.registers)
    fields += f" char local[{kernel.local_bytes}];" if kernel.local else ""
    return [
        f"namespace {kernel.name} {{",
        f"constexpr unsigned parameter_bytes = {kernel.parameter_bytes};",
        f"constexpr bool stops = {'true' if kernel.stops else 'false'};",
        f"struct Registers {{ {fields} }};",
        "static int step(const Thread &T, const char *P, char *S, Registers &saved, int at)",
        "{",
        "    Registers R = saved; (void)S;",
        "    switch (at) { case 0:;",
        *[f"    {line}" for line in kernel.lines],
        "    }",
        "    return DONE;",
        "}",
        "static const char *launch(const Launch &how)",
        f'{{ return run<Registers, step, stops>("{kernel.name}", how, {kernel.shared_bytes}); }}',
        "}",
        "",
    ]


def _line(kernel: Kernel, line: str) -> None:
    if not line or line.startswith((".reg", ".shared", ".local", ".loc", ".pragma", "//")):
        return
    if line.endswith(":"):
        kernel.lines.append(f"{line.replace('$', '')};")
        return
    guard = re.match(r"@(!?)%(\w+)\s+(.*)", line)
    condition = ""
    if guard:
        condition, line = f"if ({guard[1]}R.{guard[2]}) ", guard[3]
    opcode, _, rest = line.partition(" ")
    opcode, _, more = opcode.partition("\t")
    arguments = re.split(r",\s*(?![^{\[]*[}\]])", f"{more} {rest}".strip()) if more or rest else []
    arguments = [argument.strip() for argument in arguments]
    code = _instruction(kernel, opcode.split("."), arguments)
    if kernel.count:
        kernel.lines.append(
            f"counts.instructions++;{_counted(kernel, condition, opcode.split('.'), arguments)}"
        )
    if condition and "case " in code:
        raise PtxError("a stop under a condition")
    kernel.lines.append(f"{condition}{{ {code} }}" if condition or "case" not in code else code)


def _instruction(kernel: Kernel, op: list[str], a: list[str]) -> str:
    name = op[0]
    if name in ("ret", "exit"):
        return "return DONE;"
    if name == "bra":
        return f"goto {a[0].replace('$', '')};"
    if name in ("bar", "barrier"):
        return kernel.stop("BARRIER")
    if name in ("ld", "st", "atom", "red"):
        return _memory(kernel, op, a)
    return f"set(R.{a[0][1:]}, {_compute(kernel, op, a)});"


def _memory(kernel: Kernel, op: list[str], a: list[str]) -> str:
    kind, ctype = op[-1], TYPES[op[-1]]
    # An address that says nothing of its space is a global one, since none of another may be taken.
    space = next((s for s in ("param", "global", "shared", "local", "const") if s in op), "global")
    if space == "const" or (space == "local" and not kernel.local):
        raise PtxError("an access to memory that is neither global, shared, local nor a parameter")
    first = kernel.stop("TURN") + " " if kernel.interleave and space == "global" else ""
    if op[0] == "ld":
        targets = a[0].strip("{}").split(",")
        where = kernel.address(a[1], space, len(targets) * _size(kind))
        loads = [f"set(R.{t.strip()[1:]}, load<{ctype}>({where}, {i}));" for i, t in enumerate(targets)]
        return first + " ".join(loads)
    if op[0] == "st":
        values = [kernel.operand(value.strip(), kind) for value in a[1].strip("{}").split(",")]
        where = kernel.address(a[0], space, len(values) * _size(kind))
        return first + " ".join(f"store<{ctype}>({where}, {i}, {v});" for i, v in enumerate(values))
    gives = op[0] == "atom"
    where = kernel.address(a[gives], space, _size(kind))
    function = next(ATOMIC[part] for part in op if part in ATOMIC)
    call = (
        f"__atomic_{function}(reinterpret_cast<{ctype} *>({where}), {kernel.operand(a[gives + 1], kind)}, 0)"
    )
    return first + (f"set(R.{a[0][1:]}, {call});" if gives else f"{call};")


def _counted(kernel: Kernel, condition: str, op: list[str], a: list[str]) -> str:
    """Code that notes an access to global memory."""
    if op[0] not in ("ld", "st", "atom", "red") or "global" not in op:
        return ""
    place = a[1] if op[0] in ("ld", "atom") else a[0]
    many = 4 if "v4" in op else 2 if "v2" in op else 1
    kernel.sites += 1
    where, size = kernel.address(place, "global"), many * _size(op[-1])
    return f" {condition}counts.touch(T, {kernel.sites}, {where}, {size});"


def _compute(kernel: Kernel, op: list[str], a: list[str]) -> str:
    name, kind = op[0], op[-1]
    ctype = TYPES[kind]

    def value(i: int, of: str = kind) -> str:
        return kernel.operand(a[i], of)

    unsigned = kind if kind[0] == "f" else f"u{kind[1:]}"
    match name:
        case "cvta" if "global" not in op:
            raise PtxError("an address that is not of global memory, and no longer says so")
        case "mov" | "cvta":
            return value(1)
        case "abs" if kind[0] == "s":
            return f"{ctype}({value(1)} < 0 ? 0 - {value(1, unsigned)} : {value(1, unsigned)})"
        case "abs":
            return f"std::fabs({value(1)})"
        case "sqrt":
            _rounding(op)
            return f"std::sqrt({value(1)})"
        case "cvt":
            return _convert(op, kernel.operand(a[1], kind))
        case "setp":
            return _compare(op, value(1), value(2), kernel.operand(a[3], "pred") if len(a) > 3 else "")
        case "selp":
            return f"(R.{a[3][1:]} ? {value(1)} : {value(2)})"
        case "add" | "sub":
            _rounding(op)
            return f"{ctype}({value(1, unsigned)} {'+' if name == 'add' else '-'} {value(2, unsigned)})"
        case "mul" if "hi" in op:
            return f"product_high<{ctype}>({value(1)}, {value(2)})"
        case "mul" if "wide" in op:
            return f"{TYPES[WIDE[kind]]}({value(1)}) * {TYPES[WIDE[kind]]}({value(2)})"
        case "mul" if kind[0] == "f" or "lo" in op:
            _rounding(op)
            return f"{ctype}({value(1, unsigned)} * {value(2, unsigned)})"
        case "mad" if "lo" in op:
            return f"{ctype}({value(1, unsigned)} * {value(2, unsigned)} + {value(3, unsigned)})"
        case "mad" if "wide" in op:
            wide = WIDE[kind]
            return f"{TYPES[wide]}({value(1)}) * {TYPES[wide]}({value(2)}) + {value(3, wide)}"
        case "div" | "rem" if kind[0] in "us":
            return f"{ctype}({value(1)} {'/' if name == 'div' else '%'} {value(2)})"
        case "div":
            _rounding(op)
            return f"({value(1)} / {value(2)})"
        case "rcp":
            _rounding(op)
            return f"({ctype}(1) / {value(1)})"
        case "and" | "or" | "xor":
            return (
                f"{ctype}({value(1)} {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[name]} {value(2)})"
            )
        case "not":
            return f"uint8_t(!{value(1)})" if kind == "pred" else f"{ctype}(~{value(1)})"
        case "neg":
            return f"{ctype}(0 - {value(1, unsigned)})" if kind[0] == "s" else f"-{value(1)}"
        case "shl" | "shr":
            return f"{name}<{ctype}>({value(1)}, {value(2, 'u32')})"
        case "min" | "max":
            return f"{'least' if name == 'min' else 'most'}<{ctype}>({value(1)}, {value(2)})"
        case "popc":
            return f"uint32_t(__builtin_popcountll({value(1)}))"
        case "prmt" if op == ["prmt", "b32"]:
            return f"permuted({value(1)}, {value(2)}, {value(3)})"
        case "bfi":
            return f"insert<{ctype}>({value(1)}, {value(2)}, {value(3, 'u32')}, {value(4, 'u32')})"
        case _:
            raise PtxError("an instruction that is not known")


def _rounding(op: list[str]) -> None:
    """A product or sum must be rounded as it stands; without ``.rn`` it could be contracted to an fma."""
    if op[-1][0] == "f" and ("rn" not in op or "ftz" in op):
        raise PtxError("a float operation that is not rounded to nearest by itself")


def _convert(op: list[str], source: str) -> str:
    to, kind = op[-2], op[-1]
    if to[0] == "f" and kind[0] == "f":
        for how, function in ROUNDED.items():
            if how in op:
                return f"std::{function}({source})"
        if "rn" in op or (to, kind) == ("f64", "f32"):
            return f"{TYPES[to]}({source})"
    elif to[0] == "f" and "rn" in op:
        return f"{TYPES[to]}({source})"
    elif kind[0] == "f" and "rzi" in op:
        return f"truncate<{TYPES[to]}, {TYPES[kind]}>({source})"
    elif to[0] in "us" and kind[0] in "us":
        return f"{TYPES[to]}({source})"
    raise PtxError("a conversion that is not known")


def _compare(op: list[str], x: str, y: str, other: str) -> str:
    how, kind = op[1], op[-1]
    if kind[0] == "f" and how in ("num", "nan"):
        test = f"(std::isnan({x}) || std::isnan({y}))"
        test = test if how == "nan" else f"!{test}"
    elif kind[0] == "f" and how.endswith("u") and how[:-1] in ORDERED:
        test = f"(std::isnan({x}) || std::isnan({y}) || {x} {ORDERED[how[:-1]]} {y})"
    elif kind[0] == "f" and how == "ne":
        test = f"({x} < {y} || {x} > {y})"
    else:
        test = f"({x} {ORDERED[how]} {y})"
    if other:
        test = f"({test} {dict(zip(('and', 'or'), ('&&', '||'), strict=True))[op[2]]} {other})"
    return f"uint8_t({test})"
