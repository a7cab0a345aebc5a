"""The Python subset in which stone functions may be written, as a typed tree.

Here are the statements; ``pyexpr.py`` has the expressions, ``pysource.py`` finds the source. A variable has
the type of its first assignment, and must have a value on every way to where it is read: there is no None
and no NameError at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from evflow.codgen import tree
from evflow.codgen.source.access import Operand, Ref, Slice
from evflow.codgen.source.arithmetic import spelled
from evflow.codgen.source.check import Builder
from evflow.codgen.source.pyexpr import Expressions
from evflow.codgen.source.pylibrary import OPERATIONS
from evflow.codgen.source.pysource import FunctionNode, PythonSource, parse_python, plain_text, python_source
from evflow.codgen.tree import Expr, Function, Stmt
from evflow.errors import CodeError
from evflow.schema import Schema

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
        self.breaks: list[list[frozenset[str]]] = []
        self.variables: list[tree.Variable] = []

    def function(self, node: FunctionNode) -> list[Stmt]:
        """The whole body."""
        if isinstance(node, ast.Lambda):
            return [self._result(node.body)]
        body = self._statements(node.body)
        if self.assigned is not None and self.builder.kind == "router":
            body.append(self._nothing())
        return [*(tree.Declare(pos=self.builder.pos, variable=v) for v in self.variables), *body]

    def _statements(self, nodes: list[ast.stmt]) -> list[Stmt]:
        return [s for node in nodes for s in self.statement(node)]

    def _block(self, nodes: list[ast.stmt]) -> tree.Block:
        return self.builder.block(self._statements(nodes))

    def other_statement(self, node: ast.stmt) -> list[Stmt]:
        raise self.error(f"'{_keyword(node)}' is not within the Python subset; {_ALLOWED}", node)

    def stmt_Pass(self, node: ast.Pass) -> list[Stmt]:
        return []

    def stmt_Expr(self, node: ast.Expr) -> list[Stmt]:
        if isinstance(node.value, ast.Constant):  # a docstring
            return []
        if isinstance(node.value, ast.Call):
            return [self.builder.effect(self.called(node.value))]
        return [self.builder.run(self.value(node.value))]

    def stmt_Assign(self, node: ast.Assign) -> list[Stmt]:
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
        statements = [self.builder.run(first) for first, _ in held]
        for target, (_, again) in zip(targets.elts, held, strict=True):
            with self.builder.at(self.place(target)):
                statements += self._store_value(target, again)
        return statements

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> list[Stmt]:
        kind = _ANNOTATIONS.get(node.annotation.id) if isinstance(node.annotation, ast.Name) else None
        if kind is None or not isinstance(node.target, ast.Name):
            raise self.error("a variable can be annotated with int, float, bool or str", node)
        known = self._variable(node.target.id, kind).variable
        if known.type != kind:
            raise self.error(
                f"'{node.target.id}' holds {spelled(known.type)}, as first assigned; it cannot become a "
                f"{ast.unparse(node.annotation)}",
                node,
            )
        return [] if node.value is None else self._store(node.target, node.value)

    def _store(self, target: ast.expr, source: ast.expr) -> list[Stmt]:
        with self.builder.at(self.place(target)):
            if isinstance(target, (ast.Name, ast.Tuple)):
                return self._store_value(target, self.value(source))
            attribute = self.attribute_target(target)
            if attribute is not None:
                return [self.set_attribute(attribute, self.value(source))]
            return self.builder.store(self.operand(target), self._source(source))

    def _source(self, node: ast.expr) -> Operand:
        """What is stored: a whole record or array as it is, a number with Python's type."""
        operand = self.operand(node)
        if isinstance(operand, Ref) and (not self.builder.is_value(operand) or self.is_optional(operand)):
            return operand
        with self.builder.at(self.place(node)):
            return self.wide(self.builder.value(operand))

    def _store_value(self, target: ast.expr, value: Expr) -> list[Stmt]:
        if isinstance(target, ast.Name):
            stored = self.builder.assign(self._variable(target.id, value.type), value)
            self._assigned(target.id)
            return [self.builder.run(stored)]
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            return self.builder.store(self.operand(target), value)
        raise self.builder.error("expected a variable or a field of an output on the left")

    def _assigned(self, name: str) -> None:
        if self.assigned is not None:
            self.assigned |= {name}

    def _variable(self, name: str, kind: str) -> Slice:
        """The variable of this name, a new one at its first assignment."""
        if name not in self.builder.scopes[0]:
            self.variables.append(self.builder.declare(name, kind, ()))
        return Slice(self.builder.scopes[0][name])

    def stmt_AugAssign(self, node: ast.AugAssign) -> list[Stmt]:
        operation = OPERATIONS.get(type(node.op))
        if operation is None:
            raise self.error(f"'{_keyword(node.op)}' is not within the Python subset", node)
        target, value = self.operand(node.target), self.value(node.value)
        updated = self.builder.update(target, lambda v: operation(self.builder, self.wide(v), value))
        return [self.builder.run(updated)]

    def stmt_If(self, node: ast.If) -> list[Stmt]:
        condition, before = self.condition(node.test), self.assigned
        then = self._statements(node.body)
        after_then, self.assigned = self.assigned, before
        otherwise = self._block(node.orelse) if node.orelse else None
        self.assigned = _either(after_then, self.assigned)
        return [self.builder.when(condition, then, otherwise)]

    def _loop_body(self, nodes: list[ast.stmt], *, endless: bool = False) -> list[Stmt]:
        """The body of a loop; afterwards ``assigned`` is what holds behind the loop."""
        after = None if endless else self.assigned
        self.breaks.append([])
        body = self._statements(nodes)
        for at_break in self.breaks.pop():
            after = _either(after, at_break)
        self.assigned = after
        return body

    def stmt_While(self, node: ast.While) -> list[Stmt]:
        self._no_else(node.orelse)
        condition = self.condition(node.test)
        endless = isinstance(condition, tree.Const) and bool(condition.value)
        body = self.builder.block(self._loop_body(node.body, endless=endless))
        return [self.builder.loop(condition, body)]

    def stmt_For(self, node: ast.For) -> list[Stmt]:
        """``for name in range(…)``: a hidden counter, since the name may be assigned in the body."""
        self._no_else(node.orelse)
        builder = self.builder
        if not isinstance(node.target, ast.Name):
            raise self.error("a loop has one variable: for name in range(…)", node.target)
        start, stop, step = self._range(node.iter)
        counter, end = builder.new_local("", "i64"), builder.new_local("", "i64")
        statements = [builder.set(counter, start), builder.set(end, stop)]
        variable, before = self._variable(node.target.id, "i64"), self.assigned
        self._assigned(node.target.id)
        inside = self._loop_body(node.body)
        self.assigned = before
        named = builder.run(builder.assign(variable, builder.read(counter)))
        more = builder.compare("lt" if step.value > 0 else "gt", builder.read(counter), builder.read(end))
        advance = builder.set(counter, builder.binary("add", builder.read(counter), step))
        return [*statements, builder.loop(more, builder.block([named, *inside]), [advance])]

    def _range(self, node: ast.expr) -> tuple[Expr, Expr, tree.Const]:
        is_range = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
        if not is_range or not isinstance(node, ast.Call) or node.keywords or not 1 <= len(node.args) <= 3:
            raise self.error(
                "a loop runs over range(stop), range(start, stop) or range(start, stop, step)", node
            )
        values = [self.builder.as_index(self.value(a)) for a in node.args]
        with self.builder.at(self.place(node)):
            step = values[2] if len(values) == 3 else self.builder.const("i64", 1)
            if not isinstance(step, tree.Const) or step.value == 0:
                raise self.error("the step of a range must be a constant that is not zero", node)
            start = values[0] if len(values) > 1 else self.builder.const("i64", 0)
        return start, values[0] if len(values) == 1 else values[1], step

    def _no_else(self, orelse: list[ast.stmt]) -> None:
        if orelse:
            raise self.error("'else' of a loop is not within the Python subset", orelse[0])

    def stmt_Break(self, node: ast.Break) -> list[Stmt]:
        if self.assigned is not None:
            self.breaks[-1].append(self.assigned)
        self.assigned = None
        return [tree.Break(pos=self.builder.pos)]

    def stmt_Continue(self, node: ast.Continue) -> list[Stmt]:
        self.assigned = None
        return [tree.Continue(pos=self.builder.pos)]

    def stmt_Return(self, node: ast.Return) -> list[Stmt]:
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
            statement = self._nothing()
        else:
            statement = self._result(node.value)
        self.assigned = None
        return [statement]

    def _result(self, node: ast.expr) -> tree.Return:
        is_condition = self.builder.kind in ("filter", "transform")
        value = self.condition(node) if is_condition else self.value(node)
        with self.builder.at(self.place(node)):
            return self.builder.returned(value)

    def _nothing(self) -> tree.Return:
        """``return None``: no event is passed on."""
        self.builder.returns = True
        value = self.builder.const("i64", -1 if self.builder.kind == "router" else 0)
        return tree.Return(pos=self.builder.pos, value=value)


def _either(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    """What is assigned on both of two ways; a way that cannot be reached does not count."""
    if a is None or b is None:
        return a if b is None else b
    return a & b


_KEYWORDS = {
    "FunctionDef": "def",
    "ClassDef": "class",
    "ImportFrom": "import",
    "AsyncFunctionDef": "async def",
}


def _keyword(node: ast.AST) -> str:
    """How Python writes a statement."""
    name = type(node).__name__
    return _KEYWORDS.get(name, name.lower())
