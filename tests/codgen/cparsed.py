"""pycparser as the judge of Cod's parser: both trees in one form, nested tuples of names and parts.

A node is (kind, place, parts…). The place is line and column where both parsers must agree on it, and None
where pycparser says that an expression stands where its first operand stands.
"""

from __future__ import annotations

from typing import Any

from pycparser import c_ast, c_parser

from evflow import CodeError
from evflow.codgen.source import codnodes as cod
from evflow.codgen.source.codparse import parse
from evflow.codgen.source.codtext import TYPE_NAMES

__all__ = ["Refused", "by_evflow", "by_pycparser"]

_BEFORE = "".join(f"typedef int {name};" for name in TYPE_NAMES) + "int f(){"
_parser = c_parser.CParser()


class Refused(Exception):
    """pycparser does not take the text, or Cod has no such part of C."""


def by_pycparser(text: str) -> Any:
    """The statements of a block as pycparser sees them.

    Raises:
        Refused: the text is not Cod.
    """
    try:
        tree = _parser.parse(f"{_BEFORE}{text}}}")
    except (c_parser.ParseError, RecursionError, ValueError) as error:
        raise Refused(str(error)) from None
    if len(tree.ext) != len(TYPE_NAMES) + 1:
        raise Refused("more than one function")
    return _statements(tree.ext[-1].body.block_items)


def _place(node: Any) -> tuple[int, int]:
    line, column = node.coord.line, node.coord.column
    return line, column - len(_BEFORE) if line == 1 else column


def _expression(node: Any) -> Any:
    match node:
        case None:
            return None
        case c_ast.ID():
            return ("ID", _place(node), node.name)
        case c_ast.Constant(type="string") if node.value[0] == '"':
            return ("Text", _place(node), node.value[1:-1].replace('" "', ""))
        case c_ast.Constant() if node.value[0] in "0123456789.'":
            kind = "char" if node.value[0] == "'" else "int" if "int" in node.type else "float"
            return ("Constant", _place(node), kind, node.value)
        case c_ast.UnaryOp() if node.op not in ("*", "&", "sizeof", "_Alignof"):
            return ("UnaryOp", None, node.op, _expression(node.expr))
        case c_ast.BinaryOp():
            return ("BinaryOp", None, node.op, _expression(node.left), _expression(node.right))
        case c_ast.Assignment():
            return ("Assignment", None, node.op, _expression(node.lvalue), _expression(node.rvalue))
        case c_ast.TernaryOp():
            return ("TernaryOp", None, *map(_expression, (node.cond, node.iftrue, node.iffalse)))
        case c_ast.ExprList():
            return ("ExprList", None, [_expression(part) for part in node.exprs])
        case c_ast.StructRef(type="."):
            return ("StructRef", None, _expression(node.name), _expression(node.field))
        case c_ast.ArrayRef():
            return ("ArrayRef", None, _expression(node.name), _expression(node.subscript))
        case c_ast.FuncCall():
            args = [] if node.args is None else node.args.exprs
            return ("FuncCall", None, _expression(node.name), [_expression(arg) for arg in args])
        case c_ast.Cast(to_type=c_ast.Typename(type=c_ast.TypeDecl(type=c_ast.IdentifierType(names=words)))):
            return ("Cast", _place(node), words, _expression(node.expr))
        case c_ast.InitList():
            return ("InitList", None, [_expression(part) for part in node.exprs])
    raise Refused(type(node).__name__)


def _statements(nodes: list[Any] | None) -> list[Any]:
    return [_statement(node) for node in nodes or []]


def _statement(node: Any) -> Any:
    match node:
        case c_ast.Decl():
            return _declaration(node)
        case c_ast.Compound():
            return ("Compound", _place(node), _statements(node.block_items))
        case c_ast.EmptyStatement() | c_ast.Break() | c_ast.Continue():
            return (type(node).__name__, _place(node))
        case c_ast.If():
            otherwise = node.iffalse and _statement(node.iffalse)
            return ("If", _place(node), _expression(node.cond), _statement(node.iftrue), otherwise)
        case c_ast.While() | c_ast.DoWhile():
            last = isinstance(node, c_ast.DoWhile)
            return ("While", _place(node), _expression(node.cond), _statement(node.stmt), last)
        case c_ast.For():
            first = node.init.decls if isinstance(node.init, c_ast.DeclList) else [node.init]
            init = [_statement(part) for part in first if part is not None]
            rest = _expression(node.cond), _expression(node.next), _statement(node.stmt)
            return ("For", _place(node), init, *rest)
        case c_ast.Switch():
            braced = isinstance(node.stmt, c_ast.Compound)
            sections = node.stmt.block_items or [] if braced else [node.stmt]
            return ("Switch", _place(node), _expression(node.cond), [_section(part) for part in sections])
        case c_ast.Return():
            return ("Return", _place(node), _expression(node.expr))
    return _expression(node)


def _section(node: Any) -> Any:
    """A part of a switch, without the empty statement that pycparser puts where none follows a label."""
    if not isinstance(node, c_ast.Case | c_ast.Default):
        return _statement(node)
    statements = [s for s in node.stmts or [] if not _is_made_up(s, node)]
    return ("Case", _place(node), _expression(getattr(node, "expr", None)), _statements(statements))


def _is_made_up(statement: Any, section: Any) -> bool:
    return isinstance(statement, c_ast.EmptyStatement) and statement.coord == section.coord


def _declaration(node: Any) -> Any:
    kind, dims = node.type, []
    while isinstance(kind, c_ast.ArrayDecl):
        dims.append(_expression(kind.dim))
        kind = kind.type
    words = kind.type.names if isinstance(kind, c_ast.TypeDecl) and hasattr(kind.type, "names") else None
    strange = {*node.storage, *node.quals} - {"static", "register", "auto", "const", "volatile"}
    if words is None or strange or node.funcspec or node.align:
        raise Refused("declaration")
    static, const = "static" in node.storage, "const" in node.quals
    return ("Decl", _place(node), node.name, words, dims, static, const, _expression(node.init))


def by_evflow(text: str) -> Any:
    """The statements of a block as Cod's parser sees them.

    Raises:
        CodeError: the text is not Cod.
    """
    tree = parse(text)
    assert isinstance(tree, cod.Compound)
    return [_plain(node, text) for node in tree.block_items]


_ANYWHERE = (
    cod.UnaryOp, cod.BinaryOp, cod.Assignment, cod.TernaryOp, cod.ExprList, cod.StructRef, cod.ArrayRef,
    cod.FuncCall, cod.InitList,
)  # fmt: skip


def _plain(value: Any, text: str) -> Any:
    if isinstance(value, list):
        return [_plain(part, text) for part in value]
    if not isinstance(value, cod.Node):
        return value
    if (
        isinstance(value, cod.UnaryOp)
        and value.op in ("++", "--")
        and isinstance(value.expr, cod.Cast)
        and "(" not in text[value.at : value.expr.at]
    ):
        raise CodeError("a cast cannot be assigned to: C's grammar says so, Cod's translator", text)
    before = text[: value.at]
    place = before.count("\n") + 1, value.at - (before.rfind("\n") + 1) + 1
    parts = [getattr(value, name) for name in value.__struct_fields__ if name != "at"]
    if isinstance(value, cod.Text):
        return ("Text", place, "".join(part[1:-1] for part in value.parts))
    shown = None if isinstance(value, _ANYWHERE) else place
    return (type(value).__name__, shown, *(_plain(part, text) for part in parts))
