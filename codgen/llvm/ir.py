"""LLVM IR as text: a module, and one function under construction.

The text is written directly because that costs a tenth of building an object for each instruction,
and a new filter has two milliseconds from source to machine code. An operand is the text that stands
for it: a register, or a constant as ``number`` writes it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

Values = Callable[[], Sequence[str]]

LLVM_TYPES = {
    "bool": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64", "f32": "float", "f64": "double",
}  # fmt: skip
"""The LLVM type of each value type but ``str``, which is a pointer and an ``i64`` length."""

FORMATS = {
    "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "f32": "f", "f64": "d",
}  # fmt: skip
"""How ``struct`` packs a number of each value type as a load of its LLVM type finds it."""

_LONG_BLOCK = 200

_FEW = 64
"""Bytes up to which stores set them to zero."""


def number(kind: str, value: float) -> str:
    """A constant of value type ``kind``; integers wrap, floats are exact."""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "f32":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    if kind in ("f32", "f64"):
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    bits = int(kind[1:])
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def _escaped(data: bytes) -> str:
    return "".join(f"\\{byte:02X}" for byte in data)


class Module:
    """The declarations, constants and functions of one module; each routine is added once, when first
    used.

    Attributes:
        named: what faults are about, by name, and its number; "" is 0.
    """

    END = "!0 = !{}\n"
    """How each ends."""

    def __init__(self) -> None:
        self._declarations: dict[str, None] = {}
        self._constants: dict[bytes, str] = {}
        self._functions: list[str] = []
        self._routines: set[str] = set()
        self.named: dict[str, int] = {"": 0}

    def declare(self, signature: str) -> None:
        """Declares an external function: ``double @sin(double)``."""
        self._declarations[signature] = None

    def constant(self, data: bytes) -> str:
        """A pointer to constant bytes."""
        if not data:
            return "null"
        return self._constants.setdefault(data, f"@c{len(self._constants)}")

    def routine(self, name: str, write: Callable[[str], None]) -> str:
        """The function ``name``, which ``write(name)`` adds to the module when it is first asked for."""
        if name not in self._routines:
            self._routines.add(name)
            write(name)
        return name

    def text(self) -> str:
        """The whole module."""
        constants = [
            f'{name} = private constant [{len(data)} x i8] c"{_escaped(data)}"'
            for data, name in self._constants.items()
        ]
        declarations = [f"declare {d}" for d in self._declarations]
        return "\n".join((*constants, *declarations, *self._functions, self.END))

    def add(self, text: str) -> None:
        """Adds a finished function."""
        self._functions.append(text)


class Body:
    """A function under construction: instructions are appended to the current block.

    Attributes:
        module: the module it belongs to.
        block: label of the current block, for phi nodes.
        open: whether the current block still lacks its terminator.
    """

    def __init__(self, module: Module, signature: str) -> None:
        self.module = module
        self.block = "start"
        self.open = True
        self._signature = signature
        self._entry: list[str] = []
        self._lines: list[str] = ["start:"]
        self._block_start = 0
        self._temps = 0
        self._labels = 0

    def do(self, instruction: str) -> None:
        """Appends an instruction without a result."""
        self._lines.append(f"  {instruction}")

    def let(self, instruction: str) -> str:
        """Appends an instruction and gives its result."""
        self._temps += 1
        name = f"%t{self._temps}"
        self._lines.append(f"  {name} = {instruction}")
        return name

    def call(self, result: str, name: str, *arguments: str) -> str:
        """Calls a function that returns ``result``."""
        return self.let(f"call {result} {name}({', '.join(arguments)})")

    def alloca(self, kind: str, initial: str | None = None) -> str:
        """A variable on the stack, made once at the function's entry."""
        self._temps += 1
        name = f"%v{self._temps}"
        self._entry.append(f"  {name} = alloca {kind}")
        if initial is not None:
            self._entry.append(f"  store {kind} {initial}, ptr {name}")
        return name

    def let_at_entry(self, instruction: str) -> str:
        """Adds an instruction to the entry and gives its result."""
        self._temps += 1
        name = f"%t{self._temps}"
        self._entry.append(f"  {name} = {instruction}")
        return name

    def load_at_entry(self, name: str, kind: str, pointer: str, offset: int) -> None:
        """Adds to the entry what loads the value ``%name``, from the address ``%at.name``."""
        self._entry.append(f"  %at.{name} = getelementptr i8, ptr {pointer}, i64 {offset}")
        self._entry.append(f"  %{name} = load {kind}, ptr %at.{name}")

    def label(self) -> str:
        """A fresh label."""
        self._labels += 1
        return f"b{self._labels}"

    def begin(self, label: str) -> None:
        """Starts a block; the one before falls through to it if it is open."""
        if self.open:
            self.jump(label)
        self._lines.append(f"{label}:")
        self._block_start = len(self._lines)
        self.block = label
        self.open = True

    def join(self, label: str) -> None:
        """Goes on where the block before leads; as ``begin``, for a block that nothing else leads to."""
        if self._lines[-1] == f"  br label %{label}":
            del self._lines[-1]
            self.open = True
        else:
            self.begin(label)

    def split(self) -> None:
        """Starts a new block if this one is long: instruction selection takes quadratic time over a block."""
        if len(self._lines) - self._block_start > _LONG_BLOCK:
            self.begin(self.label())

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What is written within runs where ``condition`` (i1) holds."""
        then, done = self.label(), self.label()
        self.branch(condition, then, done)
        self.begin(then)
        yield
        self.begin(done)

    def choose(self, condition: str, kinds: Sequence[str], yes: Values, no: Values) -> list[str]:
        """The values, of these kinds, that ``yes()`` writes where ``condition`` (i1) holds, else ``no()``."""
        ways, done = [(yes, self.label()), (no, self.label())], self.label()
        self.branch(condition, ways[0][1], ways[1][1])
        results = []
        for write, label in ways:
            self.begin(label)
            results.append((write(), self.block))
            self.jump(done)
        self.begin(done)
        return [self.phi(kind, [(v[i], block) for v, block in results]) for i, kind in enumerate(kinds)]

    @contextmanager
    def repeat(self, more: Callable[[], str]) -> Iterator[str]:
        """A loop over what is written within, which runs while ``more()`` gives true (i1).

        Gives the label to jump to for the next turn.
        """
        test, turn, done = (self.label() for _ in range(3))
        self.begin(test)
        self.branch(more(), turn, done)
        self.begin(turn)
        yield test
        if self.open:
            self.jump(test)
        self.begin(done)

    @contextmanager
    def counted(self, count: str, first: str = "0", step: int = 1) -> Iterator[tuple[str, str]]:
        """A loop that counts from ``first`` up to ``count`` (i64).

        Gives where it is, and the label to jump to for the next turn.
        """
        place = self.alloca("i64")
        self.put("i64", first, place)
        at = ""

        def more() -> str:
            nonlocal at
            at = self.get("i64", place)
            return self.let(f"icmp slt i64 {at}, {count}")

        with self.repeat(more) as test:
            self.put("i64", self.let(f"add i64 {at}, {step}"), place)
            yield at, test

    def get(self, kind: str, variable: str) -> str:
        """The value of a variable of the stack, or of an aligned word."""
        return self.let(f"load {kind}, ptr {variable}")

    def put(self, kind: str, value: str, variable: str) -> None:
        """Gives a variable of the stack, or an aligned word, a value."""
        self._lines.append(f"  store {kind} {value}, ptr {variable}")

    def jump(self, label: str) -> None:
        """Ends the block with a jump."""
        self._lines.append(f"  br label %{label}")
        self.open = False

    def branch(self, condition: str, yes: str, no: str) -> None:
        """Ends the block with a conditional jump."""
        self._lines.append(f"  br i1 {condition}, label %{yes}, label %{no}")
        self.open = False

    def switch(self, value: str, otherwise: str, cases: Iterable[tuple[int, str]]) -> None:
        """Ends the block with a jump chosen by an i64."""
        arms = " ".join(f"i64 {n}, label %{label}" for n, label in cases)
        self._lines.append(f"  switch i64 {value}, label %{otherwise} [ {arms} ]")
        self.open = False

    def ret(self, value: str = "void") -> None:
        """Ends the block with a return."""
        self._lines.append(f"  ret {value}")
        self.open = False

    def phi(self, kind: str, incoming: Sequence[tuple[str, str]]) -> str:
        """The value that comes with the block it was reached from: (value, label) pairs."""
        return self.let(f"phi {kind} " + ", ".join(f"[ {v}, %{label} ]" for v, label in incoming))

    def loop(self, end: str, turn: Callable[[str], None], start: str = "0", step: int = 1) -> None:
        """Does something for each index (i64) from ``start`` up to ``end``.

        Args:
            end: the first index that is not meant.
            turn: writes what is done for an index.
            start: the first index.
            step: from one index to the next.
        """
        with self.counted(end, start, step) as (index, _):
            turn(index)

    def at(self, pointer: str, offset: int | str) -> str:
        """A pointer ``offset`` bytes further."""
        if offset == 0:
            return pointer
        self._temps += 1
        self._lines.append(f"  %t{self._temps} = getelementptr i8, ptr {pointer}, i64 {offset}")
        return f"%t{self._temps}"

    def load(self, kind: str, pointer: str, offset: int | str = 0, suffix: str = "") -> str:
        """Loads a value from an address of any alignment."""
        if offset != 0:
            pointer = self.at(pointer, offset)
        self._temps += 1
        self._lines.append(f"  %t{self._temps} = load {kind}, ptr {pointer}, align 1{suffix}")
        return f"%t{self._temps}"

    def store(self, kind: str, value: str, pointer: str, offset: int | str = 0) -> None:
        """Stores a value to an address of any alignment."""
        if offset != 0:
            pointer = self.at(pointer, offset)
        self._lines.append(f"  store {kind} {value}, ptr {pointer}, align 1")

    def swap(self, bits: int, value: str) -> str:
        """An integer with its bytes in reverse order."""
        if bits == 8:
            return value
        self.module.declare(f"i{bits} @llvm.bswap.i{bits}(i{bits})")
        return self.let(f"call i{bits} @llvm.bswap.i{bits}(i{bits} {value})")

    def copy(self, target: str, source: str, size: int | str) -> None:
        """Copies bytes between places that do not overlap."""
        self.module.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def zero(self, target: str, size: int | str) -> None:
        """Sets bytes to zero; few whole words by stores, which are selected fast where a call is not."""
        if isinstance(size, int) and size % 8 == 0 and size <= _FEW:
            for offset in range(0, size, 8):
                self.store("i64", "0", target, offset)
            return
        self.module.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        self.do(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {size}, i1 false)")

    def finish(self) -> None:
        """Adds the function to its module; one that has no other end returns nothing."""
        if self.open:
            self.ret()
        first, *lines = self._lines
        # Nothing leads back to the first block.
        self.module.add("\n".join((f"define {self._signature} {{", first, *self._entry, *lines, "}")))
