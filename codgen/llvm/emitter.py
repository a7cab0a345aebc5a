"""What the parts of the LLVM back end share while they write one function.

The parts (expressions, texts, paths, outputs, statements) are written as functions over an ``Emitter``.
Where the events, outputs, attributes and statics really are is the business of a ``Host``: the batch
kernel and the queue kernel each have one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from evflow.codgen.costs import tank, work_tank
from evflow.codgen.llvm.ir import Body
from evflow.codgen.tree import Assign, Element, Expr, Fault, Function, Path, Pos, Root
from evflow.schema.types import FieldType

__all__ = ["Emitter", "Failure", "Host", "Place", "Text", "Triple", "failure_words"]

Text = tuple[str, str]
"""The operands of a text: pointer and length (i64)."""

Triple = tuple[str, str, str]
"""An attribute's operands, each i64: kind (0 not set, 1 i64, 2 f64, 3 text), bits or address, length."""


class Failure(NamedTuple):
    """A jump to the block ``fault``.

    Attributes:
        code: the fault in the low 8 bits, the line in the next 32, and above what it is about, by number.
        block: where it jumps from.
        value, bound: an index and the elements that there are, or the fuel that there was (i64).
    """

    code: str
    block: str
    value: str = "0"
    bound: str = "0"


def failure_words(body: Body, failures: list[Failure]) -> tuple[str, str, str]:
    """In the block ``fault``: the code, value and bound of the jump that led there."""
    code = body.phi("i64", [(one.code, one.block) for one in failures])
    value = body.phi("i64", [(one.value, one.block) for one in failures])
    return code, value, body.phi("i64", [(one.bound, one.block) for one in failures])


@dataclass(frozen=True, slots=True)
class Place:
    """A value in an event: ``offset`` bytes from the address ``base``.

    ``element`` marks a raw element of an array: little-endian, without a marker.
    """

    base: str
    offset: int
    type: FieldType
    element: bool = False


class Host(Protocol):
    """Where a function's surroundings are.

    Attributes:
        invariant: suffix for loads from events that nothing writes to while the code runs.
    """

    invariant: str

    def event(self, e: Emitter, root: Root, pos: Pos) -> str:
        """A pointer to the first byte of an input or queued event; a bad queue index is an INDEX fault."""

    def queue_length(self, e: Emitter, slot: int) -> str:
        """How many events wait in a queue (i64)."""

    def image(self, e: Emitter, slot: int) -> str:
        """A pointer to where the record under construction of an output starts."""

    def reserve(self, e: Emitter, slot: int, size: str, pos: Pos) -> str:
        """Makes room for a record of ``size`` bytes in all; gives its image, which may have moved."""

    def submit_output(self, e: Emitter, port: str, slot: int, size: str, pos: Pos) -> None:
        """Notes that the finished record of an output goes out of a port (i64), and starts the next."""

    def submit_event(self, e: Emitter, port: str, event: Root, pos: Pos) -> None:
        """Notes that an input or queued event goes out of a port (i64)."""

    def discard(self, e: Emitter, queue: int, index: str, pos: Pos) -> None:
        """Takes an event out of a queue; a bad index is an INDEX fault."""

    def attribute(self, e: Emitter, scope: str, name: str) -> Triple:
        """An attribute as it is now."""

    def set_attribute(self, e: Emitter, name: str, value: Triple) -> None:
        """Changes an attribute of what leaves the stone."""

    def system(self, e: Emitter, name: str) -> str:
        """A value of the host (f64)."""

    def static(self, e: Emitter, offset: int) -> str:
        """A pointer into the block of statics."""

    def scratch(self, e: Emitter, size: int) -> str:
        """A pointer to memory of the function's own, for what is too large for the stack."""


class Emitter:
    """One function being written.

    Attributes:
        body: the instructions so far.
        function: the tree that is compiled.
        host: its surroundings.
        faults: every jump to the block ``fault``.
        loops: how many loops the current place is in.
    """

    def __init__(self, body: Body, function: Function, host: Host) -> None:
        self.body = body
        self.function = function
        self.host = host
        self.faults: list[Failure] = []
        self.loops = 0
        self._fuel: str | None = None
        self._work: str | None = None

    def value(self, expr: Expr) -> str:
        """The operand of an expression that is not ``str``."""
        raise NotImplementedError

    def text(self, expr: Expr) -> Text:
        """The operands of a ``str`` expression."""
        raise NotImplementedError

    def place(self, path: Path, pos: Pos, *, inside: bool = True) -> Place:
        """Where a path leads; ``inside``: into the optional at its end."""
        raise NotImplementedError

    def element(self, place: Element, pos: Pos) -> str:
        """A pointer to a variable, or to an element of an array."""
        raise NotImplementedError

    def assign(self, expr: Assign) -> str:
        """Writes an assignment of a number; gives its value."""
        raise NotImplementedError

    def assign_text(self, expr: Assign) -> Text:
        """Writes an assignment of a text; gives its value."""
        raise NotImplementedError

    def fault_if(
        self, condition: str, fault: Fault, pos: Pos, value: str = "0", bound: str = "0", name: str = ""
    ) -> None:
        """Gives the event up where ``condition`` (i1) holds; for the rest see ``Failure``."""
        about = self.body.module.named.setdefault(name, len(self.body.module.named))
        code = str(fault | pos.line << 8 | about << 40)
        self.faults.append(Failure(code, self.body.block, value, bound))
        on = self.body.label()
        self.body.branch(condition, "fault", on)
        self.body.begin(on)

    def spend(self, steps: int, pos: Pos) -> None:
        """Takes steps from the event's fuel; a FUEL fault where fewer are left."""
        if self._fuel is None:
            self._fuel = self.body.alloca("i64", str(tank(self.function)))
        self._take(self._fuel, str(steps), pos)

    def charge(self, steps: str, pos: Pos) -> None:
        """Takes steps (i64) for work whose amount depends on the data; a FUEL fault where fewer are left."""
        if self._work is None:
            self._work = self.body.alloca("i64", str(work_tank(self.function)))
        self._take(self._work, steps, pos)

    def _take(self, variable: str, steps: str, pos: Pos) -> None:
        left = self.body.let(f"load i64, ptr {variable}")
        rest = self.body.let(f"sub i64 {left}, {steps}")
        self.body.do(f"store i64 {rest}, ptr {variable}")
        spent = self.body.let(f"icmp slt i64 {rest}, 0")
        self.fault_if(spent, Fault.FUEL, pos, str(min(self.function.fuel, (1 << 63) - 1)))

    def charge_bytes(self, size: str, per_step: int, pos: Pos) -> None:
        """Takes a step for each ``per_step`` bytes, a power of two, of ``size`` (i64)."""
        shift = per_step.bit_length() - 1
        self.charge(self.body.let(f"lshr i64 {size}, {shift}"), pos)
