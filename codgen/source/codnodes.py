"""The nodes of a text of Cod, as the parser makes them: what is written, and not yet what it means."""

from __future__ import annotations

from msgspec import Struct


class Node(Struct):
    """A part of the program; ``at`` is where it stands in the text."""

    at: int


class ID(Node):
    """A name."""

    name: str


class Constant(Node):
    """A number or a character as it is written; ``type`` is ``int``, ``float`` or ``char``."""

    type: str
    value: str


class Text(Node):
    """The literals that make one text, with their quotes."""

    parts: list[str]


class UnaryOp(Node):
    """An operator with one operand; behind the operand it is called ``p++`` or ``p--``."""

    op: str
    expr: Node


class BinaryOp(Node):
    """An operator between two operands."""

    op: str
    left: Node
    right: Node


class Assignment(Node):
    """``=``, or an operator that also assigns."""

    op: str
    lvalue: Node
    rvalue: Node


class TernaryOp(Node):
    """``cond ? iftrue : iffalse``."""

    cond: Node
    iftrue: Node
    iffalse: Node


class ExprList(Node):
    """Expressions with commas between them."""

    exprs: list[Node]


class StructRef(Node):
    """A field of what the name means."""

    name: Node
    field: ID


class ArrayRef(Node):
    """An element of what the name means."""

    name: Node
    subscript: Node


class FuncCall(Node):
    """A call."""

    name: Node
    args: list[Node]


class Cast(Node):
    """A conversion to the type that the words name."""

    words: list[str]
    expr: Node


class InitList(Node):
    """Initial values in braces."""

    exprs: list[Node]


class Decl(Node):
    """A declared variable; a dimension without a size is None."""

    name: str
    words: list[str]
    dims: list[Node | None]
    static: bool
    const: bool
    init: Node | None


class Compound(Node):
    """A block."""

    block_items: list[Node]


class EmptyStatement(Node):
    """A semicolon alone."""


class If(Node):
    """``if``, perhaps with ``else``."""

    cond: Node
    iftrue: Node
    iffalse: Node | None


class While(Node):
    """``while``, or ``do`` where the condition is tested last."""

    cond: Node
    stmt: Node
    test_last: bool


class For(Node):
    """``for``; what it begins with are declarations or one expression."""

    init: list[Node]
    cond: Node | None
    next: Node | None
    stmt: Node


class Switch(Node):
    """Its sections are ``Case`` nodes, and whatever stands before the first of them."""

    cond: Node
    sections: list[Node]


class Case(Node):
    """A section of a switch; without an expression it is ``default``."""

    expr: Node | None
    stmts: list[Node]


class Break(Node):
    """``break``."""


class Continue(Node):
    """``continue``."""


class Return(Node):
    """``return``, perhaps with a value."""

    expr: Node | None
