"""What the parts of the CUDA back end share while they write one function: lines, names, faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evflow.codgen.tree import Element, Expr, Fault, Function, Path, Pos

__all__ = ["Writer", "c_type"]


def c_type(kind: str) -> str:
    """The C type of a value type; the prelude names them as the tree does."""
    return "Text" if kind == "str" else kind


class Writer:
    """One function being written. Each value is named once it is computed, so that the order is that of the
    tree; the compiler removes what is not needed.

    Attributes:
        function: the tree that is compiled.
        name: of the function in C.
        lines: of its body.
        literals: the texts in it, and their names.
        used: which of ``fuel`` and ``work`` are counted.
    """

    def __init__(self, function: Function, name: str) -> None:
        self.function = function
        self.name = name
        self.lines: list[str] = []
        self.literals: dict[bytes, str] = {}
        self.used: set[str] = set()
        self._depth = 1
        self._names = 0

    def value(self, expr: Expr) -> str:
        """Writes an expression; gives a name or a constant."""
        raise NotImplementedError

    def element(self, place: Element, pos: Pos) -> str:
        """Writes the indexes of a variable; gives it as a C lvalue."""
        raise NotImplementedError

    def address(self, path: Path, pos: Pos) -> Callable[[int], str]:
        """Writes the indexes of a path; gives the address so many bytes behind the start of its end."""
        raise NotImplementedError

    def line(self, text: str) -> None:
        """Adds a line."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def braces(self, head: str = "") -> Iterator[None]:
        """What is written meanwhile stands in braces, behind ``head``."""
        self.line(f"{head} {{".strip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def name_of(self, letter: str) -> str:
        """A new name."""
        self._names += 1
        return f"{letter}{self._names}"

    def let(self, kind: str, text: str) -> str:
        """Names a value of a C type."""
        name = self.name_of("t")
        self.line(f"const {kind} {name} = {text};")
        return name

    def literal(self, value: bytes) -> str:
        """A text of the source."""
        name = self.literals.setdefault(value, f"{self.name}_text{len(self.literals)}")
        return f"Text{{{name}, {len(value)}}}"

    def fault_if(self, condition: str, fault: Fault, pos: Pos) -> None:
        """Gives the event up where ``condition`` holds."""
        self.line(f"if ({condition})")
        self.line(f"    return {fault | pos.line << 8}u; // {fault.name}, line {pos.line}")

    def spend(self, steps: int, pos: Pos) -> None:
        """Takes steps from the event's fuel; a FUEL fault where fewer are left."""
        self.used.add("fuel")
        self.fault_if(f"(fuel -= {steps}) < 0", Fault.FUEL, pos)

    def charge(self, steps: str, pos: Pos) -> None:
        """Takes steps for work whose amount depends on the data; a FUEL fault where fewer are left."""
        self.used.add("work")
        self.fault_if(f"(work -= {steps}) < 0", Fault.FUEL, pos)
