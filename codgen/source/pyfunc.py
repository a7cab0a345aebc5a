"""The Python subset in which stone functions may be written, as a typed tree.

Here are the statements; ``pyexpr.py`` has the expressions, ``pysource.py`` finds the source. A variable has
the type of its first assignment, and must have a value on every way to where it is read: there is no None
and no NameError at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from evflow.codgen import tree
from evflow.codgen.source.access import Operand, Ref, Slice
from evflow.codgen.source.arithmetic import spelled
from evflow.codgen.source.check import Builder
from evflow.codgen.source.pyexpr import Expressions
from evflow.codgen.source.pyoperators import OPERATIONS
from evflow.codgen.source.pysource import FunctionNode, PythonSource, parse_python, plain_text, python_source
from evflow.codgen.tree import Expr, Function, Pos, Stmt
from evflow.errors import CodeError
from evflow.schema import Schema

__all__ = ["build_python"]

_ANNOTATIONS = {"int": "i64", "float": "f64", "bool": "bool", "str": "str"}
_ALLOWED = "it has assignments, if, while, for … in range(…), break, continue, pass, return and calls"


def build_python(
    code: str | Callable[..., object],
    kind: str,
    inputs: Sequence[tuple[str, Schema | None, Schema | None]],
    outputs: Sequence[tuple[str, Schema]],
    fuel: int,
) -> Function:
    """The function that a Python function or its text says; its parameters name the inputs, then the outputs.

    Raises:
        CodeError: it is not within the subset, or has no meaning for these events.
    """
    source = PythonSource(plain_text(code)) if isinstance(code, str) else python_source(code)
    node, lines, columns = parse_python(source.text)
    where = (source.name, source.file, source.line) if source.file else None
    names = _parameters(node, source, kind, [i[0] for i in inputs], [o[0] for o in outputs])
    builder = Builder(
        kind,
        source.text,
        [(name, declared, actual) for name, (_, declared, actual) in zip(names, inputs, strict=False)],
        [(name, schema) for name, (_, schema) in zip(names[len(inputs) :], outputs, strict=True)],
        constants=source.constants,
        where=where,
        strict=True,
    )
    translator = _Statements(builder, source, lines, columns)
    return builder.finish(translator.function(node), fuel)


def _parameters(
    node: FunctionNode, source: PythonSource, kind: str, inputs: list[str], outputs: list[str]
) -> list[str]:
    """The names of inputs and outputs, as the function calls them."""
    args = node.args
    given = [a.arg for a in (*args.posonlyargs, *args.args)]
    expected = [*inputs, *outputs]
    plain = not (args.vararg or args.kwarg or args.kwonlyargs or args.defaults)
    # Outputs that are only submitted need not be taken, but a transform is about its output.
    enough = len(given) == len(expected) or (kind != "transform" and len(given) == len(inputs))
    if not plain or not enough or len(set(given)) < len(given):
        found = f"({ast.unparse(args)})"
        raise CodeError(
            f"a {kind} takes the parameters ({', '.join(expected)}), under any names and without defaults; "
            f"found {found}",
            source.text,
        )
    return given + outputs[len(given) - len(inputs) :]


class _Statements(Expressions):
    """Translates statements.

    Attributes:
        assigned: the variables that have a value here for certain; None where nothing can be reached.
        breaks: for each loop around the statement, ``assigned`` at its breaks.
        variables: the variables, in the order of their first assignment.
    """

    def __init__(self, builder: Builder, source: PythonSource, lines: int, columns: int) -> None:
        super().__init__(builder, source, lines, columns)
        self.breaks: list[list[set[str]]] = []
        self.variables: list[tree.Variable] = []

    def function(self, node: FunctionNode) -> list[Stmt]:
        """The whole body."""
        if isinstance(node, ast.Lambda):
            return [self._result(node.body, self.pos(node.body))]
        body = self._statements(node.body)
        if self.assigned is not None and self.builder.kind == "router":
            body.append(self._nothing(Pos(1, 1)))
        declared: list[Stmt] = [tree.Declare(pos=Pos(1, 1), variable=v) for v in self.variables]
        return declared + body

    def _statements(self, nodes: list[ast.stmt]) -> list[Stmt]:
        return [s for node in nodes for s in self.statement(node)]

    def _block(self, nodes: list[ast.stmt], pos: Pos) -> tree.Block:
        return tree.Block(pos=pos, body=tuple(self._statements(nodes)))

    def statement(self, node: ast.stmt) -> list[Stmt]:
        """One statement.

        Raises:
            CodeError: it is not within the subset.
        """
        translate = _STATEMENTS.get(type(node))
        if translate is None:
            raise self.error(f"'{_keyword(node)}' is not within the Python subset; {_ALLOWED}", node)
        self.enter(node)
        statements = translate(self, node)
        self.leave()
        return statements

    def _pass(self, node: ast.Pass) -> list[Stmt]:
        return []

    def _expression(self, node: ast.Expr) -> list[Stmt]:
        if isinstance(node.value, ast.Constant):  # a docstring
            return []
        pos = self.pos(node)
        if isinstance(node.value, ast.Call):
            return [self.builder.effect(self.called(node.value), pos)]
        return [tree.Run(pos=pos, value=self.value(node.value))]

    def _assign(self, node: ast.Assign) -> list[Stmt]:
        if isinstance(node.targets[0], ast.Tuple):
            return self._assign_together(node, node.targets[0])
        statements = self._store(node.targets[0], node.value)
        for target in node.targets[1:]:
            statements += self._store(target, node.targets[0])
        return statements

    def _assign_together(self, node: ast.Assign, targets: ast.Tuple) -> list[Stmt]:
        """``a, b = b, a``: all values first, then the targets in order."""
        values = node.value.elts if isinstance(node.value, ast.Tuple) else []
        if len(values) != len(targets.elts) or len(node.targets) > 1:
            raise self.error("several targets need as many values: a, b = x, y", node)
        held = [self.builder.hidden(self.value(v)) for v in values]
        statements: list[Stmt] = [tree.Run(pos=first.pos, value=first) for first, _ in held]
        for target, (_, again) in zip(targets.elts, held, strict=True):
            statements += self._store_value(target, again, self.pos(target))
        return statements

    def _annotated(self, node: ast.AnnAssign) -> list[Stmt]:
        kind = _ANNOTATIONS.get(node.annotation.id) if isinstance(node.annotation, ast.Name) else None
        if kind is None or not isinstance(node.target, ast.Name):
            raise self.error("a variable can be annotated with int, float, bool or str", node)
        known = self.builder.scopes[0].get(node.target.id)
        if known is None:
            self._new_variable(node.target.id, kind, self.pos(node))
        elif known.type != kind:
            raise self.error(
                f"'{node.target.id}' holds {spelled(known.type)}, as first assigned; it cannot become a "
                f"{ast.unparse(node.annotation)}",
                node,
            )
        return [] if node.value is None else self._store(node.target, node.value)

    def _store(self, target: ast.expr, source: ast.expr) -> list[Stmt]:
        pos = self.pos(target)
        if isinstance(target, (ast.Name, ast.Tuple)):
            return self._store_value(target, self.value(source), pos)
        if isinstance(target, ast.Subscript):
            attribute = self.attribute_target(target)
            if attribute is not None:
                return [self.set_attribute(attribute, self.value(source), pos)]
        return self.builder.store(self.target(target), self._source(source), pos)

    def _source(self, node: ast.expr) -> Operand:
        """What is stored: a whole record or array as it is, a number with Python's type."""
        operand = self.operand(node)
        if isinstance(operand, Ref) and not self.builder.is_value(operand):
            return operand
        if isinstance(operand, Ref) and self.is_optional(operand):
            return operand
        return self.wide(self.builder.value(operand, self.pos(node)))

    def _store_value(self, target: ast.expr, value: Expr, pos: Pos) -> list[Stmt]:
        if isinstance(target, ast.Name):
            place = self._variable(target.id, value.type, pos)
            stored = self.builder.assign(place, value, pos)
            if self.assigned is not None:
                self.assigned.add(target.id)
            return [tree.Run(pos=pos, value=stored)]
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            return self.builder.store(self.target(target), value, pos)
        raise self.builder.error("expected a variable or a field of an output on the left", pos)

    def _variable(self, name: str, kind: str, pos: Pos) -> Operand:
        """The variable of this name, a new one at its first assignment."""
        if name not in self.builder.scopes[0]:
            self._new_variable(name, kind, pos)
        return Slice(self.builder.scopes[0][name])

    def _new_variable(self, name: str, kind: str, pos: Pos) -> None:
        self.variables.append(self.builder.declare(name, kind, (), pos))

    def _augmented(self, node: ast.AugAssign) -> list[Stmt]:
        pos = self.pos(node)
        operation = OPERATIONS.get(type(node.op))
        if operation is None:
            raise self.error(f"'{_keyword(node.op)}' is not within the Python subset", node)
        target = self.target(node.target)
        value = self.value(node.value)
        updated = self.builder.update(
            target, lambda before: operation(self.builder, self.wide(before), value, pos), pos
        )
        return [tree.Run(pos=pos, value=updated)]

    def _if(self, node: ast.If) -> list[Stmt]:
        pos = self.pos(node)
        condition = self.condition(node.test)
        before = self.assigned
        self.assigned = _copied(before)
        then = self._block(node.body, pos)
        after_then, self.assigned = self.assigned, _copied(before)
        otherwise = self._block(node.orelse, pos) if node.orelse else None
        self.assigned = _either(after_then, self.assigned)
        return [tree.If(pos=pos, condition=condition, then=then, otherwise=otherwise)]

    def _loop_body(self, nodes: list[ast.stmt], pos: Pos, *, endless: bool = False) -> tree.Block:
        """The body of a loop; afterwards ``assigned`` is what holds behind the loop."""
        before = _copied(self.assigned)
        self.breaks.append([])
        body = self._block(nodes, pos)
        after: set[str] | None = None if endless else before
        for at_break in self.breaks.pop():
            after = _either(after, at_break)
        self.assigned = after
        return body

    def _while(self, node: ast.While) -> list[Stmt]:
        self._no_else(node.orelse)
        pos = self.pos(node)
        condition = self.condition(node.test)
        endless = isinstance(condition, tree.Const) and bool(condition.value)
        return [
            tree.Loop(pos=pos, condition=condition, body=self._loop_body(node.body, pos, endless=endless))
        ]

    def _for(self, node: ast.For) -> list[Stmt]:
        """``for name in range(…)``: a hidden counter, since the name may be assigned in the body."""
        self._no_else(node.orelse)
        pos = self.pos(node)
        if not isinstance(node.target, ast.Name):
            raise self.error("a loop has one variable: for name in range(…)", node.target)
        start, stop, step = self._range(node.iter)
        first, counter = self._held(start)
        second, end = self._held(stop)
        variable = self._variable(node.target.id, "i64", pos)
        before = _copied(self.assigned)
        if self.assigned is not None:
            self.assigned.add(node.target.id)
        inside = self._loop_body(node.body, pos)
        self.assigned = before
        named = tree.Run(pos=pos, value=self.builder.assign(variable, self.builder.value(counter, pos), pos))
        body = tree.Block(pos=pos, body=(named, *inside.body))
        up = step.value > 0
        more = self.builder.compare(
            "lt" if up else "gt", self.builder.value(counter, pos), self.builder.value(end, pos), pos
        )
        advance = self.builder.update(counter, lambda v: self.builder.binary("add", v, step, pos), pos)
        loop = tree.Loop(
            pos=pos,
            condition=more,
            body=body,
            step=tree.Block(pos=pos, body=(tree.Run(pos=pos, value=advance),)),
        )
        return [*first, *second, loop]

    def _held(self, value: Expr) -> tuple[list[Stmt], Slice]:
        """A hidden variable with this value."""
        place = Slice(self.builder.new_local("", "i64"))
        return [tree.Run(pos=value.pos, value=self.builder.assign(place, value, value.pos))], place

    def _range(self, node: ast.expr) -> tuple[Expr, Expr, tree.Const]:
        is_range = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
        if not is_range or not isinstance(node, ast.Call) or node.keywords or not 1 <= len(node.args) <= 3:
            raise self.error(
                "a loop runs over range(stop), range(start, stop) or range(start, stop, step)", node
            )
        values = [self.builder.as_index(self.value(a)) for a in node.args]
        pos = self.pos(node)
        step = values[2] if len(values) == 3 else self.builder.const("i64", 1, pos)
        if not isinstance(step, tree.Const) or step.value == 0:
            raise self.error("the step of a range must be a constant that is not zero", node)
        start = values[0] if len(values) > 1 else self.builder.const("i64", 0, pos)
        return start, values[0] if len(values) == 1 else values[1], step

    def _no_else(self, orelse: list[ast.stmt]) -> None:
        if orelse:
            raise self.error("'else' of a loop is not within the Python subset", orelse[0])

    def _break(self, node: ast.Break) -> list[Stmt]:
        if self.assigned is not None:
            self.breaks[-1].append(self.assigned)
        self.assigned = None
        return [tree.Break(pos=self.pos(node))]

    def _continue(self, node: ast.Continue) -> list[Stmt]:
        self.assigned = None
        return [tree.Continue(pos=self.pos(node))]

    def _return(self, node: ast.Return) -> list[Stmt]:
        is_none = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        if is_none or node.value is None:
            statement = self._nothing(self.pos(node))
        else:
            statement = self._result(node.value, self.pos(node.value))
        self.assigned = None
        return [statement]

    def _result(self, node: ast.expr, pos: Pos) -> tree.Return:
        if self.builder.kind in ("filter", "transform"):
            return self.builder.returned(self.condition(node), pos)
        return self.builder.returned(self.value(node), pos)

    def _nothing(self, pos: Pos) -> tree.Return:
        """``return None``: no event is passed on."""
        value = -1 if self.builder.kind == "router" else 0
        self.builder.returns = True
        return tree.Return(pos=pos, value=self.builder.const("i64", value, pos))


def _copied(names: set[str] | None) -> set[str] | None:
    return None if names is None else set(names)


def _either(a: set[str] | None, b: set[str] | None) -> set[str] | None:
    """What is assigned on both of two ways; a way that cannot be reached does not count."""
    if a is None or b is None:
        return a if b is None else b
    return a & b


def _keyword(node: ast.AST) -> str:
    """How Python writes a statement."""
    names = {
        "FunctionDef": "def",
        "ClassDef": "class",
        "ImportFrom": "import",
        "AsyncFunctionDef": "async def",
    }
    name = type(node).__name__
    return names.get(name, name.lower())


_STATEMENTS: dict[type[ast.stmt], Callable[[_Statements, Any], list[Stmt]]] = {
    ast.Pass: _Statements._pass,
    ast.Expr: _Statements._expression,
    ast.Assign: _Statements._assign,
    ast.AnnAssign: _Statements._annotated,
    ast.AugAssign: _Statements._augmented,
    ast.If: _Statements._if,
    ast.While: _Statements._while,
    ast.For: _Statements._for,
    ast.Break: _Statements._break,
    ast.Continue: _Statements._continue,
    ast.Return: _Statements._return,
}
