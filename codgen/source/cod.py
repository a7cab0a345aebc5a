"""Cod: the subset of C in which stone functions are written, as a typed tree.

Here are the statements and declarations; ``codexpr.py`` has the expressions, ``codtext.py`` the parsing.
What C has and Cod has not (pointers, goto, functions and structs of one's own) is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pycparser import c_ast

from evflow.codgen import tree
from evflow.codgen.source.access import Operand, Slice
from evflow.codgen.source.check import Builder
from evflow.codgen.source.codexpr import CONSTANTS, Expressions
from evflow.codgen.source.codtext import parse
from evflow.codgen.tree import Expr, Function, Pos, Stmt
from evflow.schema import Schema

__all__ = ["build_cod"]


def build_cod(
    text: str,
    kind: str,
    inputs: Sequence[tuple[str, Schema | None, Schema | None]],
    outputs: Sequence[tuple[str, Schema]],
    fuel: int,
) -> Function:
    """The function that a text says; the arguments are those of ``Builder``.

    Raises:
        CodeError: the text is no Cod, or has no meaning for these events.
    """
    builder = Builder(kind, text, inputs, outputs, constants=CONSTANTS)
    parsed = parse(text)
    translator = _Statements(builder, parsed.shift)
    if isinstance(parsed.tree, c_ast.Compound):
        body = translator.block(parsed.tree)
    else:
        pos = translator.pos(parsed.tree)
        body = [builder.returned(translator.operand(parsed.tree), pos)]
    return builder.finish(body, fuel)


@dataclass
class _Switch:
    """A ``switch`` that encloses a statement; ``resumed`` is set where it is left by ``continue``."""

    resumed: tree.Variable | None = None


class _Statements(Expressions):
    """Translates statements.

    Attributes:
        enclosing: the loops (None) and switches around the statement, the innermost last.
    """

    def __init__(self, builder: Builder, shift: int) -> None:
        super().__init__(builder, shift)
        self.enclosing: list[_Switch | None] = []

    def block(self, node: Any) -> list[Stmt]:
        """The statements of a compound, or of a single statement, in a scope of their own."""
        items = node.block_items or [] if isinstance(node, c_ast.Compound) else [node]
        self.builder.scopes.append({})
        statements = [s for item in items for s in self.statement(item)]
        self.builder.scopes.pop()
        return statements

    def _body(self, node: Any) -> tree.Block:
        return tree.Block(pos=self.pos(node), body=tuple(self.block(node)))

    def statement(self, node: Any) -> list[Stmt]:
        """One statement or declaration."""
        translate = _STATEMENTS.get(type(node))
        if translate is None:
            return self.effect(node)
        self.enter(node)
        statements = translate(self, node)
        self.leave()
        return statements

    def _nothing(self, node: Any) -> list[Stmt]:
        return []

    def _compound(self, node: Any) -> list[Stmt]:
        return [self._body(node)]

    def _if(self, node: Any) -> list[Stmt]:
        condition = self.condition(node.cond)
        then = self._body(node.iftrue) if node.iftrue is not None else tree.Block(pos=self.pos(node), body=())
        otherwise = None if node.iffalse is None else self._body(node.iffalse)
        return [tree.If(pos=self.pos(node), condition=condition, then=then, otherwise=otherwise)]

    def _loop_body(self, node: Any) -> tree.Block:
        self.enclosing.append(None)
        body = self._body(node)
        self.enclosing.pop()
        return body

    def _while(self, node: Any) -> list[Stmt]:
        condition = self.condition(node.cond)
        last = isinstance(node, c_ast.DoWhile)
        return [
            tree.Loop(
                pos=self.pos(node), condition=condition, body=self._loop_body(node.stmt), test_last=last
            )
        ]

    def _for(self, node: Any) -> list[Stmt]:
        pos = self.pos(node)
        self.builder.scopes.append({})
        statements: list[Stmt] = []
        if isinstance(node.init, c_ast.DeclList):
            statements += [s for declaration in node.init.decls for s in self.statement(declaration)]
        elif node.init is not None:
            statements += self.effect(node.init)
        condition = self.builder.const("bool", True, pos) if node.cond is None else self.condition(node.cond)
        step = (
            None
            if node.next is None
            else tree.Block(pos=self.pos(node.next, pos), body=tuple(self.effect(node.next)))
        )
        statements.append(tree.Loop(pos=pos, condition=condition, body=self._loop_body(node.stmt), step=step))
        self.builder.scopes.pop()
        return [tree.Block(pos=pos, body=tuple(statements))]

    def _break(self, node: Any) -> list[Stmt]:
        if not self.enclosing:
            raise self.error("'break' stands in no loop and no switch", node)
        return [tree.Break(pos=self.pos(node))]

    def _continue(self, node: Any) -> list[Stmt]:
        if None not in self.enclosing:
            raise self.error("'continue' stands in no loop", node)
        return self._resume(self.pos(node))

    def _resume(self, pos: Pos) -> list[Stmt]:
        """``continue``; a switch around it is a loop of one turn in the tree, and is left with a note."""
        switch = self.enclosing[-1]
        if switch is None:
            return [tree.Continue(pos=pos)]
        if switch.resumed is None:
            switch.resumed = self.builder.new_local("", "bool")
        return [self._set(switch.resumed, self.builder.const("bool", True, pos), pos), tree.Break(pos=pos)]

    def _set(self, variable: tree.Variable, value: Expr, pos: Pos) -> Stmt:
        return tree.Run(pos=pos, value=self.builder.assign(Slice(variable), value, pos))

    def _return(self, node: Any) -> list[Stmt]:
        value = None if node.expr is None else self.operand(node.expr)
        return [self.builder.returned(value, self.pos(node if node.expr is None else node.expr))]

    def _switch(self, node: Any) -> list[Stmt]:
        """A loop of one turn over the sections, each of which runs from the one that was chosen on."""
        pos = self.pos(node)
        subject = self.value(node.cond)
        if subject.type in ("f32", "f64", "str"):
            raise self.error("'switch' needs an integer", node.cond)
        sections = node.stmt.block_items or [] if isinstance(node.stmt, c_ast.Compound) else [node.stmt]
        value = self.builder.new_local("", subject.type)
        chosen = self.builder.new_local("", "i32")
        switch = _Switch()
        self.enclosing.append(switch)
        self.builder.scopes.append({})
        choice, turn = self._sections(sections, value, chosen)
        self.builder.scopes.pop()
        self.enclosing.pop()
        loop = tree.Loop(
            pos=pos,
            condition=self.builder.const("bool", False, pos),
            body=tree.Block(pos=pos, body=tuple(turn)),
            test_last=True,
        )
        statements = [self._set(value, subject, pos), *choice, loop]
        if switch.resumed is not None:
            clear = self._set(switch.resumed, self.builder.const("bool", False, pos), pos)
            resumed = tree.Load(type="bool", pos=pos, place=tree.Element(switch.resumed))
            again = tree.If(
                pos=pos, condition=resumed, then=tree.Block(pos=pos, body=tuple(self._resume(pos)))
            )
            statements = [clear, *statements, again]
        return [tree.Block(pos=pos, body=tuple(statements))]

    def _sections(
        self, sections: list[Any], value: tree.Variable, chosen: tree.Variable
    ) -> tuple[list[Stmt], list[Stmt]]:
        """The statements that choose a section by its number, and the guarded sections themselves."""
        default, choice, turn = len(sections), list[Stmt](), list[Stmt]()
        seen: set[int] = set()
        for number, section in enumerate(sections):
            pos = self.pos(section)
            if isinstance(section, c_ast.Case):
                label = self._label(section, value.type)
                if label.value in seen:
                    raise self.error(f"case {label.value} stands there twice", section)
                seen.add(label.value)
                matches = self.builder.compare(
                    "eq", tree.Load(type=value.type, pos=pos, place=tree.Element(value)), label, pos
                )
                here = self._set(chosen, self.builder.const("i32", number, pos), pos)
                choice.append(tree.If(pos=pos, condition=matches, then=tree.Block(pos=pos, body=(here,))))
            elif isinstance(section, c_ast.Default) and default == len(sections):
                default = number
            else:
                raise self.error("expected 'case' or one 'default' in a switch", section)
            now = tree.Load(type="i32", pos=pos, place=tree.Element(chosen))
            reached = self.builder.compare("le", now, self.builder.const("i32", number, pos), pos)
            body = tuple(s for item in section.stmts or [] for s in self.statement(item))
            turn.append(tree.If(pos=pos, condition=reached, then=tree.Block(pos=pos, body=body)))
        first = self.builder.const("i32", default, Pos(1, 1))
        return [self._set(chosen, first, first.pos), *choice], turn

    def _label(self, section: Any, kind: str) -> tree.Const:
        label = self.builder.convert(self.value(section.expr), kind)
        if not isinstance(label, tree.Const) or label.type in ("f32", "f64"):
            raise self.error("the value of a case must be a constant integer", section.expr)
        return label

    def _declaration(self, node: Any) -> list[Stmt]:
        kind, shape = self._declared(node)
        pos = self.pos(node)
        static = "static" in node.storage
        for word in node.storage:
            if word not in ("static", "register", "auto"):
                raise self.error(f"'{word}' is not part of Cod", node)
        if static:
            initial = self._constant_initial(node, kind, shape)
            variable = self.builder.declare(node.name, kind, shape, pos, static=True, initial=initial)
            statements: list[Stmt] = []
        elif shape:
            items = [] if node.init is None else self._initials(node.init, shape)
            values = [
                (at, self.builder.stored(self.value(n), kind, node.name, self.pos(n))) for at, n in items
            ]
            variable = self.builder.declare(node.name, kind, shape, pos)
            statements = [tree.Declare(pos=pos, variable=variable), *self._fill(variable, values, pos)]
        else:
            value = None if node.init is None else self._initial(node, kind)
            variable = self.builder.declare(node.name, kind, shape, pos)
            statements = [tree.Declare(pos=pos, variable=variable, value=value)]
        if "const" in node.quals:
            self.builder.fixed.add(variable)
        return statements

    def _declared(self, node: Any) -> tuple[str, tuple[int, ...]]:
        """The type and the shape of a declared variable."""
        shape: list[int] = []
        kind = node.type
        while isinstance(kind, c_ast.ArrayDecl):
            if kind.dim is None and not shape and isinstance(node.init, c_ast.InitList):
                shape.append(len(node.init.exprs or []))
            else:
                shape.append(self._dimension(kind, node))
            kind = kind.type
        return self.type_name(kind, node), tuple(shape)

    def _dimension(self, kind: Any, node: Any) -> int:
        size = None if kind.dim is None else self.value(kind.dim)
        if not isinstance(size, tree.Const) or not isinstance(size.value, int) or size.type == "bool":
            raise self.error("the size of an array must be a constant integer", kind.dim or node)
        if not 1 <= size.value <= 1 << 20:
            raise self.error(f"an array of {size.value} elements: expected 1 to {1 << 20}", kind.dim)
        return size.value

    def _initial(self, node: Any, kind: str) -> Expr:
        if isinstance(node.init, c_ast.InitList):
            raise self.error(f"'{node.name}' is a single value; braces are for arrays", node.init)
        return self.builder.stored(self.value(node.init), kind, node.name, self.pos(node.init))

    def _constant_initial(self, node: Any, kind: str, shape: tuple[int, ...]) -> object:
        if node.init is None:
            return 0
        if not shape:
            return self._constant_value(self._initial(node, kind), node.init)
        values: list[object] = [self.builder.const(kind, 0, self.pos(node)).value] * math.prod(shape)
        for at, item in self._initials(node.init, shape):
            stored = self.builder.stored(self.value(item), kind, node.name, self.pos(item))
            values[at] = self._constant_value(stored, item)
        return tuple(values)

    def _constant_value(self, value: Expr, node: Any) -> object:
        if not isinstance(value, tree.Const):
            raise self.error(
                "a static variable starts with a constant; assign what changes in a statement", node
            )
        return value.value

    def _initials(self, node: Any, shape: tuple[int, ...], start: int = 0) -> list[tuple[int, Any]]:
        """The initial values in braces: (position in C order, expression)."""
        if not isinstance(node, c_ast.InitList):
            raise self.error("an array is initialised by values in braces", node)
        part, end, at = math.prod(shape[1:]), start + math.prod(shape), start
        items: list[tuple[int, Any]] = []
        for item in node.exprs or []:
            if isinstance(item, c_ast.NamedInitializer):
                raise self.error("named initialisers are not part of Cod", node)
            nested = isinstance(item, c_ast.InitList)
            if at >= end or (nested and (len(shape) == 1 or (at - start) % part)):
                raise self.error("these braces hold more values than the array", item)
            items += self._initials(item, shape[1:], at) if nested else [(at, item)]
            at += part if nested else 1
        return items

    def _fill(self, variable: tree.Variable, values: list[tuple[int, Expr]], pos: Pos) -> list[Stmt]:
        statements: list[Stmt] = []
        for at, value in values:
            indexes: list[Expr] = []
            for size in reversed(variable.shape):
                at, index = divmod(at, size)
                indexes.insert(0, self.builder.const("i64", index, pos))
            place: Operand = Slice(variable, tuple(indexes))
            statements.append(tree.Run(pos=value.pos, value=self.builder.assign(place, value, value.pos)))
        return statements

    def _refused(self, node: Any) -> list[Stmt]:
        raise self.error(f"{_REFUSED[type(node)]} is not part of Cod", node)


_REFUSED = {
    c_ast.Goto: "'goto'",
    c_ast.Label: "a label",
    c_ast.Typedef: "'typedef'",
    c_ast.FuncDef: "a function of one's own",
    c_ast.Case: "'case' outside of a switch",
    c_ast.Default: "'default' outside of a switch",
    c_ast.Pragma: "a pragma",
    c_ast.StaticAssert: "'_Static_assert'",
}
_STATEMENTS = {
    c_ast.EmptyStatement: _Statements._nothing,
    c_ast.Compound: _Statements._compound,
    c_ast.If: _Statements._if,
    c_ast.While: _Statements._while,
    c_ast.DoWhile: _Statements._while,
    c_ast.For: _Statements._for,
    c_ast.Break: _Statements._break,
    c_ast.Continue: _Statements._continue,
    c_ast.Return: _Statements._return,
    c_ast.Switch: _Statements._switch,
    c_ast.Decl: _Statements._declaration,
    **dict.fromkeys(_REFUSED, _Statements._refused),
}
