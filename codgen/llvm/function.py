"""Function bodies as LLVM IR: statements, variables, and the way out.

``write_function`` appends a function's code to a body. Returning leads to the block ``return``, a fault to
the block ``fault``; what happens there is the caller's business, since it differs between a filter in a
chain and a queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evflow.codgen import tree
from evflow.codgen.llvm import layout
from evflow.codgen.llvm.emitter import Emitter, Place, Text
from evflow.codgen.llvm.expressions import VALUES
from evflow.codgen.llvm.ir import LLVM_TYPES, Body, number
from evflow.codgen.llvm.outputs import Output
from evflow.codgen.llvm.texts import require_utf8, text_value
from evflow.codgen.tree import Expr, Function, Pos, Stmt
from evflow.schema.types import NUMBERS, Blob, Bytes, Maybe, Record

if TYPE_CHECKING:
    from evflow.codgen.llvm.host import Host

_ON_STACK = 512
"""Bytes of a local array up to which it is kept on the stack."""


def write_function(body: Body, function: Function, host: Host) -> FunctionEmitter:
    """Writes a function's code; the caller begins the blocks ``return`` and, if there are faults,
    ``fault``."""
    e = FunctionEmitter(body, function, host)
    e.run(function.body)
    if body.open:
        e.returns.append(("0", body.block))
        body.jump("return")
    return e


class FunctionEmitter(Emitter):
    """Writes one function; ``stmt_X`` writes a statement X.

    Attributes:
        outputs: its outputs, which the caller finishes where the function emits them.
        returns: (value, block) of every jump to the block ``return``, the value an i64.
    """

    def __init__(self, body: Body, function: Function, host: Host) -> None:
        super().__init__(body, function, host)
        self.returns: list[tuple[str, str]] = []
        self.outputs = [Output(self, slot, schema) for slot, (_, schema) in enumerate(function.outputs)]
        self._statics = layout.statics_layout(function.statics)[0]
        self._locals: dict[int, str] = {}
        self._loop: list[tuple[str, str]] = []

    def value(self, expr: Expr) -> str:
        return VALUES[type(expr)](self, expr)

    def text(self, expr: Expr) -> Text:
        return text_value(self, expr)

    def run(self, stmt: Stmt) -> None:
        """Writes a statement."""
        if not self.body.open:  # what follows a return is never reached, but has to stand somewhere
            self.body.begin(self.body.label())
        getattr(self, f"stmt_{type(stmt).__name__}")(stmt)

    def place(self, path: tree.Path, pos: Pos, *, inside: bool = True) -> Place:
        """Where a path leads; ``inside``: into the optional at its end."""
        if path.root.kind == "output":
            return self.outputs[path.root.slot].place(path, pos)
        schema = self.function.inputs[path.root.slot][1]
        assert schema is not None
        start = Place(self.host.event(self, path.root, pos), 0, Record(schema.name, {schema.name: schema}))
        name = self.function.inputs[path.root.slot][0]
        return layout.walk(self, path, pos, start, name, inside=inside)

    def element(self, place: tree.Element, pos: Pos) -> str:
        """A pointer to a variable, or to an element of an array."""
        variable = place.variable
        base = self._variable(variable)
        if not variable.shape:
            return base
        linear = layout.linear_index(
            self, place.indexes, lambda axis: str(variable.shape[axis]), pos, variable.name
        )
        return self.body.at(base, self.body.let(f"mul i64 {linear}, {_item_size(variable)}"))

    def _variable(self, variable: tree.Variable) -> str:
        if variable.static:
            return self.host.static(self, self._statics[variable.index])
        known = self._locals.get(variable.index)
        if known is None:
            known = self._locals[variable.index] = self._new_local(variable)
        return known

    def _new_local(self, variable: tree.Variable) -> str:
        if variable.type == "str":
            return self.body.alloca("{ ptr, i64 }", "zeroinitializer")
        if not variable.shape:
            return self.body.alloca(LLVM_TYPES[variable.type], number(variable.type, 0))
        size = _array_size(variable)
        if size > _ON_STACK:
            return self.host.scratch(self, size)
        return self.body.alloca(f"[{size} x i8]", "zeroinitializer")

    def assign(self, expr: tree.Assign) -> str:
        """Writes an assignment of a number; gives its value."""
        value = self.value(expr.value)
        kind = LLVM_TYPES[expr.type]
        if isinstance(expr.place, tree.Element):
            pointer = self.element(expr.place, expr.pos)
            before = self.body.load(kind, pointer) if expr.old else value
            self.body.store(kind, value, pointer)
            return before
        output = self.outputs[expr.place.root.slot]
        return output.assign_number(expr.place, value, expr.pos, old=expr.old)

    def assign_text(self, expr: tree.Assign) -> Text:
        """Writes an assignment of a text; gives its value."""
        value = self.text(expr.value)
        if isinstance(expr.place, tree.Path):
            if not isinstance(expr.place.type.held, (Bytes, Blob)):
                require_utf8(self, expr.value, value, expr.pos)
            self.outputs[expr.place.root.slot].assign_text(expr.place, value, expr.pos)
            return value
        pointer = self.element(expr.place, expr.pos)
        before = (self.body.load("ptr", pointer), self.body.load("i64", pointer, 8)) if expr.old else value
        self.body.store("ptr", value[0], pointer)
        self.body.store("i64", value[1], pointer, 8)
        return before

    def stmt_Declare(self, stmt: tree.Declare) -> None:
        variable = stmt.variable
        pointer = self._variable(variable)
        if variable.shape:
            self.body.zero(pointer, _array_size(variable))
        elif variable.type == "str":
            self.body.do(f"store {{ ptr, i64 }} zeroinitializer, ptr {pointer}")
        else:
            self.body.store(LLVM_TYPES[variable.type], number(variable.type, 0), pointer)
        if stmt.value is not None:
            place = tree.Element(variable)
            self._effect(tree.Assign(type=variable.type, pos=stmt.pos, place=place, value=stmt.value))

    def _effect(self, expr: Expr) -> None:
        if expr.type == "str":
            self.text(expr)
        else:
            self.value(expr)

    def stmt_Run(self, stmt: tree.Run) -> None:
        self._effect(stmt.value)

    def stmt_Block(self, stmt: tree.Block) -> None:
        for inner in stmt.body:
            self.run(inner)
            if self.body.open:
                self.body.split()

    def stmt_If(self, stmt: tree.If) -> None:
        body = self.body
        then, otherwise, done = body.label(), body.label(), body.label()
        body.branch(self.value(stmt.condition), then, otherwise if stmt.otherwise else done)
        for label, block in ((then, stmt.then), (otherwise, stmt.otherwise)):
            if block is not None:
                body.begin(label)
                self.run(block)
                if body.open:
                    body.jump(done)
        body.begin(done)

    def stmt_Loop(self, stmt: tree.Loop) -> None:
        body = self.body
        test, turn, step, done = (body.label() for _ in range(4))
        body.jump(turn if stmt.test_last else test)
        self.loops += 1
        self._loop.append((step, done))
        body.begin(test)
        body.branch(self.value(stmt.condition), turn, done)
        body.begin(turn)
        self.run(stmt.body)
        body.begin(step)
        if stmt.step is not None:
            self.run(stmt.step)
        if body.open:
            body.jump(test)
        self._loop.pop()
        self.loops -= 1
        body.begin(done)

    def stmt_Spend(self, stmt: tree.Spend) -> None:
        self.spend(stmt.steps, stmt.pos)

    def stmt_Break(self, stmt: tree.Break | tree.Continue) -> None:
        step, done = self._loop[-1]
        self.body.jump(done if isinstance(stmt, tree.Break) else step)

    stmt_Continue = stmt_Break

    def stmt_Return(self, stmt: tree.Return) -> None:
        value = self.value(stmt.value)
        self.returns.append((value, self.body.block))
        self.body.jump("return")

    def stmt_Copy(self, stmt: tree.Copy) -> None:
        inside = not isinstance(stmt.target.type, Maybe)
        source = self.place(stmt.source, stmt.pos, inside=inside)
        self.outputs[stmt.target.root.slot].copy(stmt.target, source, stmt.pos)

    def stmt_SetAttribute(self, stmt: tree.SetAttribute) -> None:
        body, kind = self.body, stmt.value.type
        if kind == "str":
            pointer, size = self.text(stmt.value)
            require_utf8(self, stmt.value, (pointer, size), stmt.pos)
            value = ("3", body.let(f"ptrtoint ptr {pointer} to i64"), size)
        elif kind == "f64":
            value = ("2", body.let(f"bitcast double {self.value(stmt.value)} to i64"), "0")
        else:
            value = ("1", self.value(stmt.value), "0")
        self.host.set_attribute(stmt.name, value)

    def stmt_Submit(self, stmt: tree.Submit) -> None:
        port = self.value(stmt.port)
        if stmt.output is not None:
            size = self.outputs[stmt.output].finish(stmt.pos)
            self.host.submit_output(self, port, stmt.output, size, stmt.pos)
            self.outputs[stmt.output].reset()
        else:
            assert stmt.event is not None
            self.host.submit_event(self, port, stmt.event, stmt.pos)

    def stmt_Discard(self, stmt: tree.Discard) -> None:
        self.host.discard(self, stmt.queue, self.value(stmt.index), stmt.pos)


def _item_size(variable: tree.Variable) -> int:
    return 16 if variable.type == "str" else max(NUMBERS[variable.type].size, 1)


def _array_size(variable: tree.Variable) -> int:
    size = _item_size(variable)
    for n in variable.shape:
        size *= n
    return max(size, 1)
