"""Whole functions as CUDA C: statements, variables, places in events.

A function becomes ``static __device__ u32 name(const u8 *event)``, which gives ``PASSED``, ``DROPPED``, or
why and where the event was given up.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from evflow.codgen.costs import tank, work_tank
from evflow.codgen.cuda.expressions import value
from evflow.codgen.cuda.prelude import DROPPED, PASSED
from evflow.codgen.cuda.refuse import refuse
from evflow.codgen.cuda.writer import Writer, c_type
from evflow.codgen.tree import (
    Block,
    Break,
    Continue,
    Declare,
    Element,
    Expr,
    Fault,
    Function,
    If,
    Loop,
    Path,
    Pos,
    Return,
    Run,
    Spend,
    Stmt,
    Variable,
)
from evflow.errors import CodeError
from evflow.schema import Schema
from evflow.schema.types import Array, FieldType, Record

__all__ = ["device_function", "most_steps"]


def device_function(function: Function, name: str) -> str:
    """A filter as CUDA C, to stand behind ``prelude.PRELUDE``.

    Args:
        function: the typed tree.
        name: of the function in C.

    Raises:
        CodeError: the function has what cannot run on a GPU; the message says what, and what to do.

    Example:
        >>> from evflow import Schema
        >>> from evflow.codgen.front import Input, build
        >>> trade = Schema("trade", {"size": int})
        >>> tree = build("input.size > 3", "filter", [Input("input", trade)])
        >>> print(device_function(tree, "large"))
        static __device__ u32 large(const u8 *event)
        {
            const i64 t1 = (i64)big64(event + 2);
            const bool t2 = t1 > (i64)3;
            const i64 t3 = (i64)t2;
            return t3 ? 255u : 0u;
        }
        <BLANKLINE>
    """
    return _written(function, name).text()


def most_steps(function: Function) -> int:
    """The steps that one event may take on loops and texts; 0: it has neither, so its length bounds it.

    Raises:
        CodeError: as for ``device_function``.
    """
    return sum(_written(function, "f").tanks().values())


def _written(function: Function, name: str) -> _FunctionWriter:
    refuse(function)
    writer = _FunctionWriter(function, name)
    try:
        writer.run(function.body)
    except RecursionError:
        raise CodeError("the code is nested too deeply", function.source) from None
    return writer


class _FunctionWriter(Writer):
    """Writes one function."""

    def __init__(self, function: Function, name: str) -> None:
        super().__init__(function, name)
        self._next: list[str] = []
        self._jumps: set[str] = set()

    def text(self) -> str:
        """The function, once its body was run."""
        lines = []
        for literal, name in self.literals.items():
            numbers = ", ".join(map(str, literal or b"\0"))
            lines.append(f"static __device__ const u8 {name}[] = {{{numbers}}};")
        lines += [f"static __device__ u32 {self.name}(const u8 *event)", "{"]
        lines += [f"    i64 {name} = {steps};" for name, steps in self.tanks().items()]
        for variable in self.function.locals:
            lines.append(f"    {c_type(variable.type)} {_name(variable)}{_brackets(variable)} = {{}};")
        lines += self.lines
        if not (self.lines and self.lines[-1].startswith("    return")):
            lines.append(f"    return {DROPPED}u;")
        return "\n".join([*lines, "}", ""])

    def tanks(self) -> dict[str, int]:
        """The steps in each tank that is drawn on, once the body was run."""
        steps = {"fuel": tank(self.function), "work": work_tank(self.function)}
        return {name: steps[name] for name in sorted(self.used)}

    def value(self, expr: Expr) -> str:
        return value(self, expr)

    def run(self, stmt: Stmt) -> None:
        """Writes a statement."""
        _STATEMENTS[type(stmt)](self, stmt)

    def block(self, stmt: Block) -> None:
        """Statements in order."""
        for inner in stmt.body:
            self.run(inner)

    def declare(self, stmt: Declare) -> None:
        """Zeroes a local, then gives it its value."""
        variable, name = stmt.variable, _name(stmt.variable)
        if variable.shape:
            size = prod(variable.shape)
            self.line(f"for (i32 i = 0; i < {size}; i++)")
            self.line(f"    {name}[i] = {c_type(variable.type)}{{}};")
        else:
            self.line(f"{name} = {c_type(variable.type)}{{}};")
        if stmt.value is not None:
            self.line(f"{name} = {self.value(stmt.value)};")

    def evaluate(self, stmt: Run) -> None:
        """An expression for its effect."""
        self.value(stmt.value)

    def branch(self, stmt: If) -> None:
        """Writes an ``if``."""
        condition = self.value(stmt.condition)
        with self.braces(f"if ({condition})"):
            self.run(stmt.then)
        if stmt.otherwise is not None:
            with self.braces("else"):
                self.run(stmt.otherwise)

    def loop(self, stmt: Loop) -> None:
        """Writes a loop; ``continue`` leads to a label behind the body."""
        label = self.name_of("next")
        self._next.append(label)
        tested = "true"
        if stmt.test_last:
            tested = self.name_of("again")
            self.line(f"bool {tested} = false;")
        with self.braces("while (true)"):
            with self.braces(f"if ({tested})"):
                self.line(f"if (!{self.value(stmt.condition)})")
                self.line("    break;")
            if stmt.test_last:
                self.line(f"{tested} = true;")
            with self.braces():
                self.run(stmt.body)
            if label in self._jumps:
                self.line(f"{label}:;")
            if stmt.step is not None:
                with self.braces():
                    self.run(stmt.step)
        self._next.pop()

    def pay(self, stmt: Spend) -> None:
        """Takes fuel."""
        self.spend(stmt.steps, stmt.pos)

    def leave(self, stmt: Break | Continue) -> None:
        """Goes to the end or the next turn of the innermost loop."""
        if isinstance(stmt, Break):
            self.line("break;")
        else:
            self._jumps.add(self._next[-1])
            self.line(f"goto {self._next[-1]};")

    def give(self, stmt: Return) -> None:
        """Ends the function."""
        self.line(f"return {self.value(stmt.value)} ? {PASSED}u : {DROPPED}u;")

    def element(self, place: Element, pos: Pos) -> str:
        variable = place.variable
        if not variable.shape:
            return _name(variable)
        return f"{_name(variable)}[{self._linear(place.indexes, variable.shape, pos)}]"

    def address(self, path: Path, pos: Pos) -> Callable[[int], str]:
        schema = self.function.inputs[path.root.slot][1]
        assert isinstance(schema, Schema) and path.root.kind == "input"
        at, dynamic = 0, ""
        kind: FieldType = Record(schema.name, {schema.name: schema})
        for step in path.steps:
            assert isinstance(kind, Record)
            field = kind.schema[step.field]
            assert field.offset is not None
            at, kind = at + field.offset, field.type
            if step.indexes:
                assert isinstance(kind, Array)
                linear = self._linear(step.indexes, kind.shape, pos)
                at, dynamic = at + kind.data_offset, f" + {linear} * {kind.item_size}"
        return lambda more: f"event + {at + more}{dynamic}"

    def _linear(self, indexes: tuple[Expr, ...], sizes: tuple[int | None, ...], pos: Pos) -> str:
        """The position in C order; each index is checked before the next is evaluated."""
        linear = ""
        for expr, size in zip(indexes, sizes, strict=True):
            index = self.value(expr)
            self.fault_if(f"(u64){index} >= {size}u", Fault.INDEX, pos)
            linear = self.let("i64", f"{linear} * {size} + {index}" if linear else index)
        return linear


def _name(variable: Variable) -> str:
    return f"v{variable.index}"


def _brackets(variable: Variable) -> str:
    return f"[{prod(variable.shape)}]" if variable.shape else ""


_STATEMENTS: dict[type, Callable[[_FunctionWriter, Any], None]] = {
    Block: _FunctionWriter.block,
    Declare: _FunctionWriter.declare,
    Run: _FunctionWriter.evaluate,
    If: _FunctionWriter.branch,
    Loop: _FunctionWriter.loop,
    Spend: _FunctionWriter.pay,
    Break: _FunctionWriter.leave,
    Continue: _FunctionWriter.leave,
    Return: _FunctionWriter.give,
}
