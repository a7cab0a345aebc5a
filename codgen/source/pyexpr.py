"""Expressions of the Python subset: nodes of ``ast`` to operands and typed expressions.

Integers are 64 bits wide and wrap, floats are doubles; a field of another width is widened when it is read.
Division rounds down as in Python, and any division by zero is a fault of the event.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from evflow.codgen.library import LIBRARY
from evflow.codgen.semantics import INTEGERS
from evflow.codgen.source.access import Attributes, Operand, Ref, Slice
from evflow.codgen.source.arithmetic import spelled
from evflow.codgen.source.calls import Argument
from evflow.codgen.source.check import Builder
from evflow.codgen.source.pylibrary import BUILTINS, MATH, METHODS, OPERATIONS, compared, number
from evflow.codgen.source.pysource import PythonSource
from evflow.codgen.source.translator import Translator
from evflow.codgen.tree import Const, Expr, Pos, Stmt
from evflow.errors import CodeError
from evflow.schema.types import Maybe

_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"
}  # fmt: skip
_LONG, _SHOWN = 256, 24
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": math.inf, "nan": math.nan}


class Expressions(Translator):
    """Translates expressions.

    Args:
        builder: makes the nodes.
        source: the function's source.
        lines, columns: by how much lines, and columns of line 1, are too great.
    """

    def __init__(self, builder: Builder, source: PythonSource, lines: int, columns: int) -> None:
        super().__init__(builder)
        self.source = source
        self._lines = lines
        self._columns = columns
        self._rows = source.text.split("\n")
        self.assigned: frozenset[str] | None = frozenset()

    def place(self, node: Any, name: str = "") -> Pos:
        """Where a node stands, or the ``name`` that it ends with."""
        if name:
            line, column = node.end_lineno or 1, (node.end_col_offset or 0) - len(name.encode())
        else:
            line, column = node.lineno, node.col_offset
        line -= self._lines
        column -= self._columns if line == 1 else 0
        row = self._rows[line - 1] if 0 < line <= len(self._rows) else ""
        if not row.isascii():
            column = len(row.encode()[:column].decode("utf-8", "replace"))
        return Pos(line, column + 1)

    def refused(self, node: ast.expr) -> str:
        return f"{_DESCRIBED.get(type(node), type(node).__name__)} is not within the Python subset"

    def operand(self, node: ast.expr, valued: bool = False) -> Operand:
        of = super().operand(node, valued)
        return self.wide(of) if isinstance(of, Expr) else of

    def wide(self, value: Expr) -> Expr:
        """A value as Python has it; an unsigned one beyond 63 bits is a RANGE fault."""
        if value.type in INTEGERS:
            return self.builder.convert(value, "i64", checked=value.type == "u64")
        return self.builder.convert(value, "f64") if value.type == "f32" else value

    @staticmethod
    def is_optional(of: Operand) -> bool:
        """Whether this is an optional field."""
        return isinstance(of, Ref) and isinstance(of.declared, Maybe) and not of.pending

    def condition(self, node: ast.expr) -> Expr:
        """An expression as a condition, with Python's truth: not zero, not empty, not None."""
        if isinstance(node, ast.BoolOp):
            conditions = [self.condition(v) for v in node.values]
            with self.builder.at(self.place(node)):
                return self.builder.logical(_logical(node), conditions)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            condition = self.condition(node.operand)
            with self.builder.at(self.place(node)):
                return self.builder.negation(condition)
        builder, of = self.builder, self.operand(node)
        with builder.at(self.place(node)):
            optional = self.is_optional(of)
            if not builder.is_value(of) and isinstance(of, Ref):
                empty = builder.const("i64", 0)
                return (
                    builder.present(of) if optional else builder.compare("ne", builder.length(of, 0), empty)
                )
            truth = builder.truth(self.wide(builder.value(of)), text_is_condition=True)
            return builder.logical("and", [builder.present(of), truth]) if optional else truth

    def expr_Constant(self, node: ast.Constant) -> Operand:
        value = node.value
        if isinstance(value, bool):
            return self.builder.const("bool", value)
        if isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                raise self.error(f"the number {_shown(value)} does not fit 64 bits", node)
            return self.builder.const("i64", value)
        if isinstance(value, float):
            return self.builder.const("f64", value)
        if isinstance(value, (str, bytes)):
            return self.builder.const("str", value)
        if value is None:
            raise self.error("None has no value here; test a field with 'is None' or 'is not None'", node)
        raise self.error(f"the constant {value!r} is not within the Python subset", node)

    def expr_Name(self, node: ast.Name) -> Operand:
        name = node.id
        if name in self.builder.scopes[0] and self.assigned is not None and name not in self.assigned:
            raise self.error(f"'{name}' may have no value here; give it one before", node)
        known = self.source.constants.get(name)
        if isinstance(known, int) and not -(1 << 63) <= known < 1 << 63:
            raise self.error(f"the number {name} does not fit 64 bits", node)
        if name in self.source.unusable and not self.builder.knows(name):
            raise self.error(
                f"the name '{name}' means a {self.source.unusable[name]} outside this function; from outside "
                "a function can use only numbers, texts and bools",
                node,
            )
        return self.builder.lookup(name)

    def is_math(self, node: ast.expr) -> bool:
        """Whether a name means the module ``math``."""
        return (
            isinstance(node, ast.Name)
            and node.id in self.source.modules
            and node.id not in self.builder.scopes[0]
            and node.id not in self.builder.roots
        )

    def expr_Attribute(self, node: ast.Attribute) -> Operand:
        if self.is_math(node.value):
            if node.attr in _CONSTANTS:
                return self.builder.const("f64", _CONSTANTS[node.attr])
            raise self.error(f"math.{node.attr} can only be called, if it is known", node)
        of, builder = self.operand(node.value), self.builder
        # A field stands where its name does.
        before, builder.pos = builder.pos, self.place(node, node.attr)
        field = builder.field(of, node.attr)
        builder.pos = before
        return field

    def expr_Subscript(self, node: ast.Subscript) -> Operand:
        of = self.operand(node.value)
        if isinstance(of, Attributes):
            raise self.error('the type of an attribute is not known; write .get("name", default)', node)
        if isinstance(node.slice, ast.Slice):
            raise self.error("a slice is not within the Python subset; index single elements", node.slice)
        indexes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for index in indexes:
            at = self._index(of, index)
            with self.builder.at(self.place(index)):
                of = self.builder.index(of, at)
        return of

    def _index(self, of: Operand, node: ast.expr) -> Expr:
        """An index; a negative constant counts from the end."""
        index = self.value(node)
        negative = isinstance(index, Const) and index.type == "i64" and index.value < 0
        if not negative or isinstance(of, Slice):
            return index
        axis, whole = (len(of.pending), replace(of, pending=())) if isinstance(of, Ref) else (0, of)
        with self.builder.at(index.pos):
            return self.builder.binary("add", self.builder.length(whole, axis), index)

    def expr_BinOp(self, node: ast.BinOp) -> Operand:
        operation = OPERATIONS.get(type(node.op))
        if operation is None:
            raise self.error(
                f"this operator ({type(node.op).__name__}) is not within the Python subset", node
            )
        return operation(self.builder, self.value(node.left), self.value(node.right))

    def expr_UnaryOp(self, node: ast.UnaryOp) -> Operand:
        if isinstance(node.op, ast.Not):
            return self.condition(node)
        if (
            isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
            and node.operand.value == 1 << 63
        ):
            return self.builder.const("i64", -(1 << 63))
        value = number(self.builder, self.value(node.operand))
        if isinstance(node.op, ast.UAdd):
            return value if value.type != "str" else self.builder.unary("neg", value)
        return self.builder.unary("inv" if isinstance(node.op, ast.Invert) else "neg", value)

    def expr_BoolOp(self, node: ast.BoolOp) -> Operand:
        """``and`` and ``or`` give one of their operands, as in Python; of bools they are conditions."""
        values = [self.value(v) for v in node.values]
        if all(v.type == "bool" for v in values):
            return self.builder.logical(_logical(node), values)
        result = values[-1]
        for value in reversed(values[:-1]):
            first, again = self.builder.hidden(value)
            truth = self.builder.truth(first, text_is_condition=True)
            yes, no = (again, result) if isinstance(node.op, ast.Or) else (result, again)
            result = self.select(truth, yes, no)
        return result

    def select(self, condition: Expr, yes: Expr, no: Expr) -> Expr:
        """One of two values of a common type."""
        if yes.type != no.type:
            yes, no = number(self.builder, yes), number(self.builder, no)
        return self.builder.select(condition, yes, no)

    def expr_IfExp(self, node: ast.IfExp) -> Operand:
        return self.select(self.condition(node.test), self.value(node.body), self.value(node.orelse))

    def expr_Compare(self, node: ast.Compare) -> Operand:
        """A chain of comparisons; each operand is evaluated once."""
        if len(node.ops) == 1:
            return self._pair(node.ops[0], node.left, node.comparators[0])
        parts: list[Expr] = []
        left = self.value(node.left)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _COMPARE:
                raise self.error("a chain of comparisons has only ==, !=, <, <=, > and >=", comparator)
            first, again = self.builder.hidden(self.value(comparator))
            parts.append(compared(self.builder, _COMPARE[type(op)], left, first))
            left = again
        return self.builder.logical("and", parts)

    def _pair(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Expr:
        if isinstance(op, (ast.Is, ast.IsNot)):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise self.builder.error("'is' compares only with None")
            present = self.builder.present(self.operand(left))
            return present if isinstance(op, ast.IsNot) else self.builder.negation(present)
        if isinstance(op, (ast.In, ast.NotIn)):
            found = self._contained(left, right)
            return found if isinstance(op, ast.In) else self.builder.negation(found)
        if isinstance(right, ast.Constant) and right.value is None:
            raise self.error("compare with None by 'is None' or 'is not None'", right)
        return compared(self.builder, _COMPARE[type(op)], self.value(left), self.value(right))

    def _contained(self, left: ast.expr, right: ast.expr) -> Expr:
        if isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            return self.any_of(self.value(left), right.elts, partial(compared, self.builder, "eq"))
        of = self.operand(right)
        if isinstance(of, Attributes):
            return self.builder.attribute_exists(
                "in", [Argument(of, self.builder.pos), *self.arguments([left])]
            )
        with self.builder.at(self.place(right)):
            whole = self.wide(self.builder.value(of))
        part = self.value(left)
        for value in (part, whole):
            if value.type != "str":
                raise self.builder.error(f"'in' looks for a text in a text, found {spelled(value.type)}")
        result = self.builder.call("contains", [Argument(value, self.builder.pos) for value in (whole, part)])
        assert isinstance(result, Expr)
        return result

    def any_of(self, value: Expr, parts: Sequence[ast.expr], test: Callable[[Expr, Expr], Expr]) -> Expr:
        """Whether a test holds of a value, which is evaluated once, and one of several others."""
        first, again = self.builder.hidden(value)
        tests = [test(again if i else first, self.value(part)) for i, part in enumerate(parts)]
        return self.builder.logical("or", tests) if tests else self.builder.const("bool", False)

    def called(self, node: ast.Call) -> Expr | Stmt:
        """A call, of a function of Python, of ``math``, or of the library."""
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.error("arguments are given by position only", node)
        if isinstance(node.func, ast.Attribute):
            if self.is_math(node.func.value):
                return self._math(node.func.attr, node)
            method = METHODS.get(node.func.attr)
            if method is None:
                raise self._no_method(node.func)
            return method(self, self.operand(node.func.value), node.args)
        if not isinstance(node.func, ast.Name):
            raise self.error("only a function can be called, by its name", node)
        name = node.func.id
        if name in self.source.functions:
            return self._math(self.source.functions[name], node)
        if name in self.source.others and (name in BUILTINS or name in LIBRARY or name == "len"):
            raise self.error(
                f"the name '{name}' means a function of {self.source.others[name]} where this function "
                "stands, and stones cannot call that; give that function another name, or call math's",
                node,
            )
        if name in BUILTINS:
            return BUILTINS[name](self, node.args)
        result = self.builder.call(name, self.arguments(node.args))
        return self.wide(result) if isinstance(result, Expr) else result

    def _no_method(self, called: ast.Attribute) -> CodeError:
        name, owner = called.attr, called.value
        known = {*self.builder.roots, *self.builder.known, *(n for s in self.builder.scopes for n in s)}
        if isinstance(owner, ast.Name) and owner.id not in known:
            built_in = f"math.{name}" if name in MATH else name if name in BUILTINS or name in LIBRARY else ""
            hint = f"; write {built_in}(...)" if built_in else ""
            return self.error(
                f"a function may call only what is built in, not {owner.id}.{name}{hint}", called
            )
        return self.error(f"there is no method '{name}'; the Python subset has {', '.join(METHODS)}", called)

    def _math(self, name: str, node: ast.Call) -> Expr:
        function = MATH.get(name)
        if function is None:
            raise self.error(
                f"math.{name} is not within the Python subset; it has {', '.join(sorted(MATH))}", node
            )
        return function(self, node.args)

    def expr_Call(self, node: ast.Call) -> Operand:
        name = node.func.id if isinstance(node.func, ast.Name) else "this"
        return self.builder.only_value(self.called(node), name)

    def attribute_target(self, node: ast.expr) -> Argument | None:
        """The name in ``output.attrs["name"]``, or None if this is not an attribute."""
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute)):
            return None
        if node.value.attr != "attrs" or not isinstance(self.operand(node.value), Attributes):
            return None
        return Argument(self.value(node.slice), self.place(node.slice))

    def set_attribute(self, name: Argument, value: Expr) -> Stmt:
        """``input.attrs[name] = value``."""
        writer = {"str": "set_string_attr", "f64": "set_double_attr"}.get(value.type, "set_int_attr")
        pos = self.builder.pos
        result = self.builder.call(writer, [Argument(Attributes("event"), pos), name, Argument(value, pos)])
        assert isinstance(result, Stmt)
        return result


def _shown(value: int) -> str:
    """An integer; a very long one, which Python refuses to write in decimal, is cut."""
    return str(value) if value.bit_length() < _LONG else f"{hex(value)[:_SHOWN]}…"


def _logical(node: ast.BoolOp) -> str:
    return "and" if isinstance(node.op, ast.And) else "or"


_DESCRIBED: dict[type[ast.expr], str] = {
    ast.Lambda: "a function within the function",
    ast.ListComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.Dict: "a dict",
    ast.List: "a list",
    ast.Set: "a set",
    ast.Tuple: "a tuple",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "':='",
    ast.Await: "'await'",
    ast.Yield: "'yield'",
    ast.YieldFrom: "'yield'",
    ast.Starred: "'*'",
    ast.Slice: "a slice",
}
