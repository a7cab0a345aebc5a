"""The meaning of the tree in plain Python: slow, and simple enough to be believed.

What a machine computes is right if it is what this computes. Events are plain decoded values: a dict of
field to number, text (str or bytes), list, numpy array or nested list, nested dict, or None.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evflow.codgen import semantics, tree
from evflow.codgen.costs import tank
from evflow.codgen.semantics import ZERO, Halt
from evflow.codgen.tree import Expr, Fault, Function, Pos, Stmt
from evflow.schema.types import Array, Maybe
from tests.codgen.functions import FUNCTIONS, checked_cast
from tests.codgen.records import stored_text, utf8_text, zero_event

__all__ = ["Emitted", "Outcome", "State", "interpret", "interpret_queue", "new_state"]

Event = Mapping[str, Any]

_MAX_SUBMITS = 100_000


class Emitted(NamedTuple):
    """An event that a function sent.

    Attributes:
        port: where to.
        source: the slot of an output, or ``("input", slot)`` or ``("queue", slot)``.
        event: its fields.
    """

    port: int
    source: int | tuple[str, int]
    event: Event


@dataclass
class Outcome:
    """What one call did.

    Attributes:
        result: the i64 returned; 0 after a fault.
        fault: why the event was given up, or ``Fault.NONE``.
        fault_pos: where in the source.
        emitted: the events sent, in order; a transform's own output is the last.
        attributes: the event's attributes afterwards.
        queues: the queued events afterwards, for a queue.
    """

    result: int
    fault: Fault
    fault_pos: Pos | None
    emitted: list[Emitted]
    attributes: dict[str, Any]
    queues: list[list[Event]] = field(default_factory=list)


@dataclass
class State:
    """The static variables of a function, from one event to the next."""

    values: list[Any]


def new_state(function: Function) -> State:
    """The static variables with their initial values."""
    return State([_initial(v) for v in function.statics])


def interpret(
    function: Function,
    events: Event | Sequence[Event],
    *,
    state: State | None = None,
    attributes: Mapping[str, Any] | None = None,
    stone_attributes: Mapping[str, Any] | None = None,
    system: Mapping[str, float] | None = None,
) -> Outcome:
    """Calls a filter, transform or router.

    Args:
        function: the function.
        events: the event, or one for each input.
        state: its static variables, changed in place; new ones by default.
        attributes: of the event: int, float or str.
        stone_attributes: of the stone.
        system: system values by name; 0.0 by default.
    """
    given = [events] if isinstance(events, Mapping) else list(events)
    call = _Call(function, state, attributes, stone_attributes, system)
    call.events = given
    return call.outcome()


def interpret_queue(
    function: Function,
    queues: Sequence[Sequence[Event]],
    *,
    state: State | None = None,
    attributes: Mapping[str, Any] | None = None,
    stone_attributes: Mapping[str, Any] | None = None,
    system: Mapping[str, float] | None = None,
) -> Outcome:
    """Calls a queue's function; ``queues`` has the waiting events of each input, the oldest first, and is
    left as it is.

    After a fault every event is still there.
    """
    call = _Call(function, state, attributes, stone_attributes, system)
    call.queues = [list(q) for q in queues]
    outcome = call.outcome()
    outcome.queues = [list(q) for q in queues] if outcome.fault else call.queues
    return outcome


class _Stop(Exception):
    """A fault at a place."""

    def __init__(self, fault: Fault, pos: Pos) -> None:
        super().__init__(fault.name)
        self.fault = fault
        self.pos = pos


class _Jump:
    """How a statement ended, other than by its end."""

    def __init__(self, value: int = 0) -> None:
        self.value = value


_BREAK = _Jump()
_CONTINUE = _Jump()


class _Call:
    """One call of a function."""

    def __init__(
        self,
        function: Function,
        state: State | None,
        attributes: Mapping[str, Any] | None,
        stone_attributes: Mapping[str, Any] | None,
        system: Mapping[str, float] | None,
    ) -> None:
        self.function = function
        self.locals = [_initial(v) for v in function.locals]
        self.statics = (state or new_state(function)).values
        self.outputs = [zero_event(schema) for _, schema in function.outputs]
        self.events: list[Event] = []
        self.queues: list[list[Event]] = []
        self.emitted: list[Emitted] = []
        self.given = dict(attributes or {})
        self.attributes = {"event": dict(self.given), "stone": dict(stone_attributes or {})}
        self.system = dict(system or {})
        self.fuel = tank(function)

    def outcome(self) -> Outcome:
        try:
            end = self._block(self.function.body)
        except _Stop as stop:
            return Outcome(0, stop.fault, stop.pos, [], self.given)
        result = end.value if isinstance(end, _Jump) else 0
        if self.function.kind == "transform" and result != 0:
            self.emitted.append(Emitted(0, 0, self.outputs[0]))
        return Outcome(result, Fault.NONE, None, self.emitted, self.attributes["event"])

    # Statements return None at their end, or a jump.

    def _block(self, block: tree.Block) -> _Jump | None:
        for statement in block.body:
            jump = _STATEMENTS[type(statement)](self, statement)
            if jump is not None:
                return jump
        return None

    def _declare(self, node: tree.Declare) -> None:
        variable = node.variable
        self.locals[variable.index] = _initial(variable)
        if node.value is not None:
            self.locals[variable.index] = self.eval(node.value)

    def _run(self, node: tree.Run) -> None:
        self.eval(node.value)

    def _if(self, node: tree.If) -> _Jump | None:
        if self.eval(node.condition):
            return self._block(node.then)
        return None if node.otherwise is None else self._block(node.otherwise)

    def _loop(self, node: tree.Loop) -> _Jump | None:
        untested = node.test_last
        while untested or self.eval(node.condition):
            untested = False
            jump = self._block(node.body)
            if jump is _BREAK:
                return None
            if jump is not None and jump is not _CONTINUE:
                return jump
            if node.step is not None:
                self._block(node.step)
        return None

    def _spend(self, node: tree.Spend) -> None:
        self.fuel -= node.steps
        if self.fuel < 0:
            raise _Stop(Fault.FUEL, node.pos)

    def _break(self, node: tree.Break) -> _Jump:
        return _BREAK

    def _continue(self, node: tree.Continue) -> _Jump:
        return _CONTINUE

    def _return(self, node: tree.Return) -> _Jump:
        return _Jump(self.eval(node.value))

    def _copy(self, node: tree.Copy) -> None:
        value = copy.deepcopy(self._walk(node.source, node.pos))
        holder, key = self._holder(node.target, node.pos)
        holder[key] = value

    def _set_attribute(self, node: tree.SetAttribute) -> None:
        value = self.eval(node.value)
        try:
            self.attributes["event"][node.name] = utf8_text(value) if isinstance(value, bytes) else value
        except Halt as halt:
            raise _Stop(halt.fault, node.pos) from None

    def _submit(self, node: tree.Submit) -> None:
        port = self.eval(node.port)
        if len(self.emitted) >= _MAX_SUBMITS:
            raise _Stop(Fault.LIMIT, node.pos)
        if node.output is not None:
            self.emitted.append(Emitted(port, node.output, self.outputs[node.output]))
            self.outputs[node.output] = zero_event(self.function.outputs[node.output][1])
        elif node.event is not None:
            self.emitted.append(
                Emitted(port, (node.event.kind, node.event.slot), self._root(node.event, node.pos))
            )

    def _discard(self, node: tree.Discard) -> None:
        index = self.eval(node.index)
        queue = self.queues[node.queue]
        if not 0 <= index < len(queue):
            raise _Stop(Fault.INDEX, node.pos)
        del queue[index]

    # Places.

    def _root(self, root: tree.Root, pos: Pos) -> Any:
        if root.kind == "input":
            return self.events[root.slot]
        if root.kind == "output":
            return self.outputs[root.slot]
        assert root.index is not None
        return self._at(self.queues[root.slot], root.index, pos)

    def _at(self, values: Any, index: Expr, pos: Pos) -> Any:
        return values[self._inside(values, index, pos)]

    def _inside(self, values: Any, index: Expr, pos: Pos) -> int:
        at: int = self.eval(index)
        if not 0 <= at < len(values):
            raise _Stop(Fault.INDEX, pos)
        return at

    def _walk(self, path: tree.Path, pos: Pos) -> Any:
        """The decoded value at the end of a path; None for an absent optional."""
        value = self._root(path.root, pos)
        for step in path.steps:
            value = self._there(value, pos)[step.field]
            for index in step.indexes:
                value = self._at(self._there(value, pos), index, pos)
        return value

    @staticmethod
    def _there(value: Any, pos: Pos) -> Any:
        if value is None:
            raise _Stop(Fault.ABSENT, pos)
        return value

    def _holder(self, path: tree.Path, pos: Pos) -> tuple[Any, Any]:
        """The container that a place of an output is in, and its key there."""
        *steps, last = path.steps
        holder = self._walk(tree.Path(path.root, tuple(steps), path.type), pos)
        key: Any = last.field
        for index in last.indexes:
            holder = holder[key]
            key = self._inside(holder, index, pos)
        return holder, key

    def _variable(self, element: tree.Element, pos: Pos) -> tuple[list[Any], int]:
        """The list that a variable's value is in, and its index there."""
        variable = element.variable
        values = self.statics if variable.static else self.locals
        if not variable.shape:
            return values, variable.index
        at = 0
        for index, size in zip(element.indexes, variable.shape, strict=True):
            at = at * size + self._inside(range(size), index, pos)
        return values[variable.index], at

    # Expressions.

    def eval(self, node: Expr) -> Any:
        """The value of an expression, in the normal form of its type."""
        return _EXPRESSIONS[type(node)](self, node)

    def _const(self, node: tree.Const) -> Any:
        return node.value

    def _load(self, node: tree.Load) -> Any:
        if isinstance(node.place, tree.Element):
            values, at = self._variable(node.place, node.pos)
            return values[at]
        return semantics.normal(self._there(self._walk(node.place, node.pos), node.pos), node.type)

    def _length(self, node: tree.Length) -> int:
        if isinstance(node.what, int):
            return len(self.queues[node.what])
        value = self._there(self._walk(node.what, node.pos), node.pos)
        kind = node.what.type.element if isinstance(node.what.type, Maybe) else node.what.type
        known = kind.shape[node.axis] if isinstance(kind, Array) else None
        if known is not None:
            return known
        if hasattr(value, "shape"):
            return int(value.shape[node.axis])
        for _ in range(node.axis):
            if not len(value):
                return 0
            value = value[0]
        return len(value)

    def _present(self, node: tree.Present) -> bool:
        return self._walk(node.path, node.pos) is not None

    def _attribute(self, node: tree.Attribute) -> Any:
        held = self.attributes[node.scope].get(node.name)
        if node.exists:
            return held is not None
        if held is None or (node.type == "str") != isinstance(held, (str, bytes)):
            return ZERO[node.type] if node.default is None else self.eval(node.default)
        return semantics.normal(held, "str") if node.type == "str" else semantics.cast(held, node.type)

    def _unary(self, node: tree.Unary) -> Any:
        return semantics.unary(node.op, self.eval(node.operand), node.type)

    def _binary(self, node: tree.Binary) -> Any:
        left, right = self.eval(node.left), self.eval(node.right)
        try:
            return semantics.binary(node.op, left, right, node.type)
        except Halt as halt:
            raise _Stop(halt.fault, node.pos) from None

    def _compare(self, node: tree.Compare) -> bool:
        left, right = self.eval(node.left), self.eval(node.right)
        return semantics.compare(node.op, left, right)

    def _logical(self, node: tree.Logical) -> bool:
        if node.op == "and":
            return bool(self.eval(node.left) and self.eval(node.right))
        return bool(self.eval(node.left) or self.eval(node.right))

    def _select(self, node: tree.Select) -> Any:
        return self.eval(node.yes if self.eval(node.condition) else node.no)

    def _convert(self, node: tree.Convert) -> Any:
        value = self.eval(node.operand)
        if not node.checked:
            return semantics.cast(value, node.type)
        try:
            return checked_cast(value, node.type)
        except Halt as halt:
            raise _Stop(halt.fault, node.pos) from None

    def _call(self, node: tree.Call) -> Any:
        function = FUNCTIONS.get(node.name)
        if function is None:
            return float(self.system.get(node.name, 0.0))
        return function(*(self.eval(a) for a in node.args))

    def _assign(self, node: tree.Assign) -> Any:
        value = self.eval(node.value)
        if isinstance(node.place, tree.Element):
            values, at = self._variable(node.place, node.pos)
            before, values[at] = values[at], value
            return before if node.old else value
        holder, key = self._holder(node.place, node.pos)
        before = semantics.normal(holder[key], node.type) if node.old else None
        try:
            holder[key] = stored_text(value, node.place.type) if node.type == "str" else value
        except Halt as halt:
            raise _Stop(halt.fault, node.pos) from None
        return before if node.old else value


def _initial(variable: tree.Variable) -> Any:
    """The first value of a variable; an array is a flat list in C order."""
    if not variable.shape:
        return variable.initial if variable.initial else ZERO[variable.type]
    size = 1
    for n in variable.shape:
        size *= n
    return list(variable.initial) if isinstance(variable.initial, tuple) else [ZERO[variable.type]] * size


_STATEMENTS: dict[type[Stmt], Callable[[_Call, Any], _Jump | None]] = {
    tree.Block: _Call._block,
    tree.Declare: _Call._declare,
    tree.Run: _Call._run,
    tree.If: _Call._if,
    tree.Loop: _Call._loop,
    tree.Spend: _Call._spend,
    tree.Break: _Call._break,
    tree.Continue: _Call._continue,
    tree.Return: _Call._return,
    tree.Copy: _Call._copy,
    tree.SetAttribute: _Call._set_attribute,
    tree.Submit: _Call._submit,
    tree.Discard: _Call._discard,
}
_EXPRESSIONS: dict[type[Expr], Callable[[_Call, Any], Any]] = {
    tree.Const: _Call._const,
    tree.Load: _Call._load,
    tree.Length: _Call._length,
    tree.Present: _Call._present,
    tree.Attribute: _Call._attribute,
    tree.Unary: _Call._unary,
    tree.Binary: _Call._binary,
    tree.Compare: _Call._compare,
    tree.Logical: _Call._logical,
    tree.Select: _Call._select,
    tree.Convert: _Call._convert,
    tree.Call: _Call._call,
    tree.Assign: _Call._assign,
}
