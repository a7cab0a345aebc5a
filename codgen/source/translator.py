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

    def _translated(self, node: Any, translate: Callable[[Any], Any]) -> Any:
        builder, before = self.builder, self.builder.pos
        builder.pos = self.place(node)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise builder.error(f"nested deeper than {_MAX_DEPTH} levels; use variables for parts of it")
        result = translate(node)
        self._depth -= 1
        builder.pos = before
        return result

    def operand(self, node: Any) -> Operand:
        """What an expression means: a place, a queue, or a value.

        Raises:
            CodeError: the language has no such expression.
        """
        translate: Callable[[Any], Operand] | None = getattr(self, f"expr_{type(node).__name__}", None)
        if translate is None:
            raise self.error(self.refused(node), node)
        operand: Operand = self._translated(node, translate)
        return operand

    def value(self, node: Any) -> Expr:
        """The value of an expression."""
        operand = self.operand(node)
        if isinstance(operand, Expr):
            return operand
        builder, before = self.builder, self.builder.pos
        builder.pos = self.place(node)
        value = builder.value(operand)
        builder.pos = before
        return value

    def arguments(self, nodes: Sequence[Any]) -> list[Argument]:
        """Arguments as the builder takes them."""
        return [Argument(self.operand(node), self.place(node)) for node in nodes]

    def statement(self, node: Any) -> list[Stmt]:
        """The statements of one statement or declaration."""
        translate: Callable[[Any], list[Stmt]] = getattr(
            self, f"stmt_{type(node).__name__}", self.other_statement
        )
        statements: list[Stmt] = self._translated(node, translate)
        return statements

    def other_statement(self, node: Any) -> list[Stmt]:
        """A statement without a method of its own."""
        raise NotImplementedError
