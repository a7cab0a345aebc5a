"""Cod: the subset of C in which stone functions are written, as a typed tree.

Here are the statements and declarations; ``codexpr.py`` has the expressions, ``codparse.py`` the parsing.
What C has and Cod has not is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from evflow.codgen import tree
from evflow.codgen.source.access import Slice
from evflow.codgen.source.arithmetic import names_of
from evflow.codgen.source.check import Builder
from evflow.codgen.source.codexpr import CONSTANTS, Expressions
from evflow.codgen.source.codnodes import Case, Compound, InitList
from evflow.codgen.source.codparse import parse
from evflow.codgen.tree import Expr, Function, Stmt
from evflow.schema import Schema
from evflow.schema.logical import Enum


def build_cod(
    text: str,
    kind: str,
    inputs: Sequence[tuple[str, Schema | None, Schema | None]],
    outputs: Sequence[tuple[str, Schema]],
    fuel: int,
) -> Function:
    """The function that a text says; the arguments are those of ``Builder``.

    Raises:
        CodeError: the text is not Cod, or has no meaning for these events.
    """
    builder = Builder(kind, text, inputs, outputs, constants=CONSTANTS)
    parsed = parse(text)
    translator = _Statements(builder, text)
    if isinstance(parsed, Compound):
        body = translator.block(parsed)
    else:
        builder.pos = translator.place(parsed)
        body = [builder.returned(translator.operand(parsed))]
    return builder.finish(body, fuel)


class _Switch(Struct):
    """A ``switch`` that encloses a statement; ``resumed`` is set where it is left by ``continue``."""

    resumed: tree.Variable | None = None


class _Statements(Expressions):
    """Translates statements.

    Attributes:
        enclosing: the loops (None) and switches around the statement, the innermost last.
    """

    def __init__(self, builder: Builder, text: str) -> None:
        super().__init__(builder, text)
        self.enclosing: list[_Switch | None] = []

    def block(self, node: Any) -> list[Stmt]:
        """The statements of a compound, or of a single statement, in a scope of their own."""
        self.builder.scopes.append({})
        statements = self._run(node.block_items if isinstance(node, Compound) else [node])
        self.builder.scopes.pop()
        return statements

    def _run(self, nodes: list[Any]) -> list[Stmt]:
        statements: list[Stmt] = []
        for node in nodes:
            statements += self.statement(node)
        return statements

    def _body(self, node: Any) -> tree.Block:
        return self.builder.block(self.block(node))

    def other_statement(self, node: Any) -> list[Stmt]:
        return self.effect(node)

    def stmt_EmptyStatement(self, node: Any) -> list[Stmt]:
        return []

    def stmt_Compound(self, node: Any) -> list[Stmt]:
        return [self._body(node)]

    def stmt_If(self, node: Any) -> list[Stmt]:
        condition, then = self.condition(node.cond), self._body(node.iftrue).body
        return [self.builder.when(condition, then, node.iffalse and self._body(node.iffalse))]

    def _loop_body(self, node: Any) -> tree.Block:
        self.enclosing.append(None)
        body = self._body(node)
        self.enclosing.pop()
        return body

    def stmt_While(self, node: Any) -> list[Stmt]:
        condition = self.condition(node.cond)
        return [self.builder.loop(condition, self._loop_body(node.stmt), test_last=node.test_last)]

    def stmt_For(self, node: Any) -> list[Stmt]:
        builder = self.builder
        builder.scopes.append({})
        statements = self._run(node.init)
        condition = builder.const("bool", True) if node.cond is None else self.condition(node.cond)
        step = [] if node.next is None else self.effect(node.next)
        loop = builder.loop(condition, self._loop_body(node.stmt), step)
        builder.scopes.pop()
        return [builder.block([*statements, loop])]

    def stmt_Break(self, node: Any) -> list[Stmt]:
        if not self.enclosing:
            raise self.error("'break' is not in a loop or a switch", node)
        return [tree.Break(pos=self.builder.pos)]

    def stmt_Continue(self, node: Any) -> list[Stmt]:
        if None not in self.enclosing:
            raise self.error("'continue' is not in a loop", node)
        return self._resume()

    def _resume(self) -> list[Stmt]:
        """``continue``; a switch around it is a loop of one turn in the tree, and is left with a note."""
        switch, pos = self.enclosing[-1], self.builder.pos
        if switch is None:
            return [tree.Continue(pos=pos)]
        if switch.resumed is None:
            switch.resumed = self.builder.new_local("", "bool")
        return [self.builder.set(switch.resumed, self.builder.const("bool", True)), tree.Break(pos=pos)]

    def stmt_Return(self, node: Any) -> list[Stmt]:
        if node.expr is None:
            return [self.builder.returned(None)]
        value = self.operand(node.expr)
        with self.builder.at(self.place(node.expr)):
            return [self.builder.returned(value)]

    def stmt_Switch(self, node: Any) -> list[Stmt]:
        """A loop of one turn over the sections, each of which runs from the one that was chosen on."""
        builder, subject = self.builder, self.value(node.cond)
        if subject.type in ("f32", "f64", "str"):
            raise self.error("'switch' needs an integer", node.cond)
        value = builder.new_local("", subject.type, names=names_of(subject))
        chosen = builder.new_local("", "i32")
        switch = _Switch()
        self.enclosing.append(switch)
        builder.scopes.append({})
        choice, turn = self._sections(node.sections, value, chosen)
        builder.scopes.pop()
        self.enclosing.pop()
        loop = builder.loop(builder.const("bool", False), builder.block(turn), test_last=True)
        statements = [builder.set(value, subject), *choice, loop]
        if switch.resumed is not None:
            clear = builder.set(switch.resumed, builder.const("bool", False))
            again = builder.when(builder.read(switch.resumed), self._resume())
            statements = [clear, *statements, again]
        return [builder.block(statements)]

    def _sections(
        self, sections: list[Any], value: tree.Variable, chosen: tree.Variable
    ) -> tuple[list[Stmt], list[Stmt]]:
        """The statements that choose a section by its number, and the guarded sections themselves."""
        builder, choice, turn = self.builder, list[Stmt](), list[Stmt]()
        default, seen = len(sections), set[int]()
        for number, section in enumerate(sections):
            with builder.at(self.place(section)):
                if not isinstance(section, Case) or (section.expr is None and default < len(sections)):
                    raise self.error("expected 'case' or one 'default' in a switch", section)
                if section.expr is None:
                    default = number
                else:
                    label = self._label(section, value)
                    if label.value in seen:
                        raise self.error(f"case {label.value} stands there twice", section)
                    seen.add(label.value)
                    matches = builder.compare("eq", builder.read(value), label)
                    here = builder.set(chosen, builder.const("i32", number))
                    choice.append(builder.when(matches, [here]))
                reached = builder.compare("le", builder.read(chosen), builder.const("i32", number))
                turn.append(builder.when(reached, self._run(section.stmts)))
        return [builder.set(chosen, builder.const("i32", default)), *choice], turn

    def _label(self, section: Any, subject: tree.Variable) -> tree.Const:
        label, names = self.value(section.expr), subject.names
        if isinstance(names, Enum):
            label = self.builder.number_of(label, names)
        label = self.builder.convert(label, subject.type)
        if not isinstance(label, tree.Const) or label.type in ("f32", "f64"):
            raise self.error("the value of a case must be a constant integer", section.expr)
        return label

    def stmt_Decl(self, node: Any) -> list[Stmt]:
        builder, (kind, shape) = self.builder, self._declared(node)
        values = self._initials(node, kind, shape)
        if node.static:
            initial = self._constants(values, kind, shape) if values else 0
            variable = builder.declare(node.name, kind, shape, static=True, initial=initial)
            statements: list[Stmt] = []
        else:
            variable = builder.declare(node.name, kind, shape)
            value = values[0][1] if values and not shape else None
            statements = [tree.Declare(pos=builder.pos, variable=variable, value=value)]
            statements += self._fill(variable, values) if shape else []
        if node.const:
            builder.fixed.add(variable)
        return statements

    def _declared(self, node: Any) -> tuple[str, tuple[int, ...]]:
        """The type and the shape of a declared variable."""
        shape: list[int] = []
        for size in node.dims:
            if size is None and not shape and isinstance(node.init, InitList):
                shape.append(len(node.init.exprs))
            else:
                shape.append(self._dimension(size, node))
        return self.type_name(node.words, node), tuple(shape)

    def _dimension(self, written: Any, node: Any) -> int:
        size = None if written is None else self.value(written)
        if not isinstance(size, tree.Const) or not isinstance(size.value, int) or size.type == "bool":
            raise self.error("the size of an array must be a constant integer", written or node)
        if not 1 <= size.value <= 1 << 20:
            raise self.error(f"an array of {size.value} elements: expected 1 to {1 << 20}", written)
        return size.value

    def _initials(self, node: Any, kind: str, shape: tuple[int, ...]) -> list[tuple[int, Expr]]:
        """The initial values of a declared variable: (position in C order, value as it is stored)."""
        if isinstance(node.init, InitList) and not shape:
            raise self.error(f"'{node.name}' is a single value; braces are for arrays", node.init)
        items = [] if node.init is None else self._items(node.init, shape) if shape else [(0, node.init)]
        values = []
        for at, item in items:
            value = self.value(item)
            with self.builder.at(self.place(item)):
                values.append((at, self.builder.stored(value, kind, node.name)))
        return values

    def _constants(self, values: list[tuple[int, Expr]], kind: str, shape: tuple[int, ...]) -> object:
        """The first value of a static variable."""
        cells: list[object] = [self.builder.const(kind, 0).value] * math.prod(shape)
        for at, value in values:
            if not isinstance(value, tree.Const):
                what = "a static variable starts with a constant; assign what changes in a statement"
                raise self.builder.error(what, value.pos)
            cells[at] = value.value
        return tuple(cells) if shape else cells[0]

    def _items(self, node: Any, shape: tuple[int, ...], start: int = 0) -> list[tuple[int, Any]]:
        """The initial values in braces: (position in C order, expression)."""
        if not isinstance(node, InitList):
            raise self.error("an array is initialised by values in braces", node)
        part, end, at = math.prod(shape[1:]), start + math.prod(shape), start
        items: list[tuple[int, Any]] = []
        for item in node.exprs:
            nested = isinstance(item, InitList)
            if at >= end or (nested and (len(shape) == 1 or (at - start) % part)):
                raise self.error("these braces hold more values than the array", item)
            items += self._items(item, shape[1:], at) if nested else [(at, item)]
            at += part if nested else 1
        return items

    def _fill(self, variable: tree.Variable, values: list[tuple[int, Expr]]) -> list[Stmt]:
        statements: list[Stmt] = []
        for at, value in values:
            indexes: list[Expr] = []
            for size in reversed(variable.shape):
                at, index = divmod(at, size)
                indexes.insert(0, self.builder.const("i64", index))
            with self.builder.at(value.pos):
                assigned = self.builder.assign(Slice(variable, tuple(indexes)), value)
                statements.append(self.builder.run(assigned))
        return statements
