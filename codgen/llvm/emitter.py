"""What the parts of the LLVM back end share while they write one function.

The parts (expressions, texts, paths, outputs, statements) are written as functions over an ``Emitter``.
Where the events, outputs, attributes and statics really are is the business of a ``Host`` (``host.py``): the
batch kernel and the queue kernel each have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from evflow.codgen.costs import tank, work_tank
from evflow.codgen.llvm.ir import Body
from evflow.codgen.tree import Assign, Element, Expr, Fault, Function, Path, Pos
from evflow.schema.types import FieldType

if TYPE_CHECKING:
    from evflow.codgen.llvm.host import Host

Text = tuple[str, str]
"""The operands of a text: pointer and length (i64)."""


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


class Place(Struct, frozen=True):
    """A value in an event: ``offset`` bytes from the address ``base``.

    ``element`` marks a raw element of an array: little-endian, without a marker.
    """

    base: str
    offset: int
    type: FieldType
    element: bool = False


class Emitter:
    """One function being written.

    Attributes:
        body: the instructions so far.
        function: the tree that is compiled.
        host: its surroundings.
        faults: every jump to the block ``fault``.
        loops: how many loops the current place is in.
        loaded: numbers of events that were loaded in the first block, by where and what they are.
    """

    def __init__(self, body: Body, function: Function, host: Host) -> None:
        self.body = body
        self.function = function
        self.host = host
        self.faults: list[Failure] = []
        self.loops = 0
        self.loaded: dict[tuple[str, int, str, bool] | None, str] = {}
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
