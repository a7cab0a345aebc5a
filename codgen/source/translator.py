"""What both front ends do alike: walk a syntax, and tell the builder where each node stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evflow.codgen.source.access import Operand
from evflow.codgen.source.calls import Argument
from evflow.codgen.source.check import Builder
from evflow.codgen.tree import Expr, Pos, Stmt
from evflow.errors import CodeError

_MAX_DEPTH = 150
"""How deep statements and expressions may be nested in one another."""


class Translator:
    """Translates expressions and statements of one language.

    A kind of node has a method of its own: ``expr_X(node)`` gives the operand that an expression X means,
    ``stmt_X(node)`` the statements that a statement X becomes. While it runs, the builder is at the node's
    place.

    Args:
        builder: makes the nodes of the tree.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._depth = 0

    def place(self, node: Any) -> Pos:
        """Where a node stands in the user's text."""
        raise NotImplementedError

    def refused(self, node: Any) -> str:
        """What is wrong with an expression that the language lacks."""
        raise NotImplementedError

    def error(self, message: str, node: Any) -> CodeError:
        """The error to raise for a node."""
        return self.builder.error(message, self.place(node))

    def _too_deep(self) -> CodeError:
        return self.builder.error(f"nested deeper than {_MAX_DEPTH} levels; use variables for parts of it")

    def operand(self, node: Any, valued: bool = False) -> Operand:
        """What an expression means: a place, a queue, or a value.

        Args:
            node: the expression.
            valued: whether the value is taken that stands at a place.

        Raises:
            CodeError: the language has no such expression, or the place has no single value.
        """
        translate: Callable[[Any], Operand] | None = getattr(self, f"expr_{type(node).__name__}", None)
        if translate is None:
            raise self.error(self.refused(node), node)
        builder, before = self.builder, self.builder.pos
        builder.pos = self.place(node)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._too_deep()
        operand = translate(node)
        self._depth -= 1
        if valued and not isinstance(operand, Expr):
            operand = builder.value(operand)
        builder.pos = before
        return operand

    def value(self, node: Any) -> Expr:
        """The value of an expression."""
        value = self.operand(node, valued=True)
        assert isinstance(value, Expr)
        return value

    def arguments(self, nodes: Sequence[Any]) -> list[Argument]:
        """Arguments as the builder takes them."""
        return [Argument(self.operand(node), self.place(node)) for node in nodes]

    def statement(self, node: Any) -> list[Stmt]:
        """The statements of one statement or declaration."""
        translate: Callable[[Any], list[Stmt]] = getattr(
            self, f"stmt_{type(node).__name__}", self.other_statement
        )
        builder, before = self.builder, self.builder.pos
        builder.pos = self.place(node)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._too_deep()
        statements = translate(node)
        self._depth -= 1
        builder.pos = before
        return statements

    def other_statement(self, node: Any) -> list[Stmt]:
        """A statement without a method of its own."""
        raise NotImplementedError
