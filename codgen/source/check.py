"""The checker: with a ``Builder`` both front ends make the typed tree, and all its rules live here and
beneath.

``Arithmetic`` (values) < ``Access`` (places) < ``Calls`` < ``Builder`` (names, assignments, results). A
front end walks its own syntax and asks the builder for nodes; whatever has no meaning is refused with a
``CodeError`` that points at it. The languages differ in one rule that is known here: with ``strict`` (the
Python subset) a value is stored only where its type fits, and a number that its field cannot hold is a
fault; in C it is cast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from evflow.choices import suggestion
from evflow.codgen import tree
from evflow.codgen.costs import metered
from evflow.codgen.semantics import FLOATS, INTEGERS
from evflow.codgen.source.access import Attributes, Operand, Queue, Ref, Slice, value_type
from evflow.codgen.source.arithmetic import enumeration, spelled
from evflow.codgen.source.calls import Calls
from evflow.codgen.source.transfer import Transfer
from evflow.codgen.tree import Expr, Function, Pos, Stmt, deepest
from evflow.schema import Schema
from evflow.schema.types import Logical, Maybe

KINDS = ("filter", "transform", "router", "queue")
"""The kinds of functions."""

_MAX_LOCAL_BYTES = 1 << 16
_MAX_STATIC_BYTES = 1 << 20
_MAX_DIMENSIONS = 8
_MAX_COPIED = 100_000
_MAX_LEVELS = 220
"""Levels of a tree: a back end takes some three calls of Python for each, and Python allows a thousand."""
_MAX_NODES = 250_000
"""Nodes of a tree: LLVM takes some three seconds for as many."""

_TYPES: dict[type, str] = {bool: "bool", int: "i64", float: "f64", str: "str"}


_PYTHONS = {"True": "true", "False": "false"}
"""What people write who know Python."""


class Builder(Calls):
    """Makes one function.

    Args:
        kind: one of ``KINDS``. source: its text. inputs: name, declared schema and actual schema of each
        event. outputs: name and schema of each record it fills. constants: names that stand for a bool,
        int, float or str. where: file and line of the source, named in errors; (name of the function, file,
        line of its first line). strict: values are stored as in Python, not cast as in C.
    """

    def __init__(
        self,
        kind: str,
        source: str,
        inputs: Sequence[tuple[str, Schema | None, Schema | None]],
        outputs: Sequence[tuple[str, Schema]] = (),
        *,
        constants: Mapping[str, bool | int | float | str] | None = None,
        where: tuple[str, str, int] | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__(source, where)
        self.known = constants or {}
        self.kind = kind
        self.strict = strict
        self.inputs = inputs
        self.outputs = outputs
        self.returns = False
        self.submits = False
        self._copied = 0
        self.fixed: set[tree.Variable] = set()
        names = [name for name, *_ in (*inputs, *outputs)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise self.error(f"'{twice[0]}' names two events; each input and output needs a name of its own")
        roots: dict[str, Operand] = {"event_attrs": Attributes("event"), "stone_attrs": Attributes("stone")}
        for slot, (name, declared, actual) in enumerate(inputs):
            if kind == "queue":
                roots[name] = Queue(name, slot, declared, actual)
            else:
                roots[name] = self.event(name, tree.Root("input", slot), declared, actual)
        for slot, (name, schema) in enumerate(outputs):
            roots[name] = self.event(name, tree.Root("output", slot), schema, schema)
        self.roots = roots
        self.scopes: list[dict[str, tree.Variable]] = [{}]

    def knows(self, name: str) -> bool:
        """Whether a name means something here."""
        return name in self.roots or name in self.known or any(name in scope for scope in self.scopes)

    def lookup(self, name: str) -> Operand:
        """What a name means here.

        Raises:
            CodeError: nothing; the message names what is known.
        """
        for scope in reversed(self.scopes):
            if name in scope:
                return Slice(scope[name])
        if name in self.roots:
            return self.roots[name]
        if name in self.known:
            value = self.known[name]
            return self.const(_TYPES[type(value)], value)
        names = [*self.roots, *(n for scope in self.scopes for n in scope)]
        fields = [f"{n}.{name}" for n, r in self.roots.items() if isinstance(r, Ref) and _has_field(r, name)]
        hint = f"; a field is written '{fields[0]}'" if fields else suggestion(name, names)
        if not self.strict and name in _PYTHONS:
            hint = f"; in Cod it is {_PYTHONS[name]}"
        raise self.error(f"the name '{name}' is not known{hint}")

    def declare(
        self, name: str, kind: str, shape: tuple[int, ...], *, static: bool = False, initial: object = 0
    ) -> tree.Variable:
        """A new variable in the innermost scope.

        Raises:
            CodeError: the name is taken here, or the variables need too much memory.
        """
        if name in self.scopes[-1]:
            raise self.error(f"'{name}' is already declared here")
        if name in self.roots:
            raise self.error(f"'{name}' cannot be declared: it is {_described(self.roots[name])}")
        if kind == "str" and (static or shape):
            raise self.error(f"'{name}': a text variable can be neither static nor an array")
        if len(shape) > _MAX_DIMENSIONS:
            raise self.error(f"'{name}' has {len(shape)} dimensions: expected at most {_MAX_DIMENSIONS}")
        if static:
            variable = tree.Variable(name, kind, len(self.statics), True, shape, initial)
            self.statics.append(variable)
            self._check_memory(self.statics, _MAX_STATIC_BYTES)
        else:
            variable = self.new_local(name, kind, shape)
            self._check_memory(self.locals, _MAX_LOCAL_BYTES)
        self.scopes[-1][name] = variable
        return variable

    def _check_memory(self, variables: list[tree.Variable], limit: int) -> None:
        used = sum(8 * math.prod(v.shape) for v in variables if v.shape)
        if used > limit:
            raise self.error(f"arrays of {used} bytes (8 an element): expected at most {limit} in all")

    def stored(self, value: Expr, kind: str, name: str) -> Expr:
        """The value as it is stored in a place of type ``kind``.

        Raises:
            CodeError: a value of this type cannot be stored there.
        """
        if value.type == kind:
            return value
        if "str" in (value.type, kind):
            raise self.error(f"'{name}' holds {spelled(kind)}, found {spelled(value.type)}")
        if self.strict:
            if kind in INTEGERS and value.type in FLOATS:
                raise self.error(f"'{name}' holds an integer ({kind}), found a float; write int(...)")
            if kind == "bool":
                raise self.error(f"'{name}' holds a bool, found {spelled(value.type)}; write bool(...)")
            # An integer becomes the nearest float, as in Python; every other loss is a fault.
            return self.convert(value, kind, checked=not (kind in FLOATS and value.type in INTEGERS))
        return self.convert(value, kind)

    def assign(self, target: Operand, value: Expr) -> Expr:
        """``target = value``; its value is the value stored.

        Raises:
            CodeError: the target cannot be assigned to.
        """
        place, kind, name = self._place(target)
        return tree.Assign(type=kind, pos=self.pos, place=place, value=self._kept(value, place, kind, name))

    def _kept(self, value: Expr, place: tree.Place, kind: str, name: str) -> Expr:
        """What a place keeps of a value: of an enumeration the position of a name, or else a RANGE fault."""
        names = enumeration(place)
        if names is None:
            return self.stored(value, kind, name)
        value = self.number_of(value, names)
        if isinstance(value, tree.Load) and enumeration(value.place) == names:
            return self.convert(value, kind)
        if (
            isinstance(value, tree.Const)
            and value.type != "str"
            and not 0 <= int(value.value) < len(names.names)
        ):
            raise self.error(f"{value.value} is not the position of a name of {names.text}")
        first, again = self.hidden(self.stored(value, "i64", name))
        ends = (self.const("i64", 0), self.const("i64", len(names.names) - 1))
        inside = self.logical("and", [self.compare("ge", first, ends[0]), self.compare("le", again, ends[1])])
        outside = tree.Convert(type="u8", pos=self.pos, operand=self.const("i64", 256), checked=True)
        return self.select(inside, self.convert(again, "u8"), outside)

    def _place(self, target: Operand) -> tuple[tree.Place, str, str]:
        """A target as a place, the type of its value, and its name."""
        if isinstance(target, Slice):
            name = target.variable.name
            if target.variable in self.fixed:
                raise self.error(f"'{name}' is const")
            return self.element(target), target.variable.type, name
        if not isinstance(target, Ref):
            raise self.error("this cannot be assigned to; expected a variable or a field of an output")
        if target.root.kind != "output":
            raise self.error(
                f"'{target.text}' belongs to an event, which cannot be changed; assign to a variable or an "
                "output"
            )
        self.complete(target)
        kind = value_type(target.declared)
        if kind is None:
            raise self.error(f"'{target.text}' can only be copied as a whole, from a field of an event")
        return self.path(target), kind, target.text

    def update(self, target: Operand, combine: Callable[[Expr], Expr], *, old: bool = False) -> Expr:
        """``target op= …``, its indexes evaluated once.

        Args:
            target: the place.
            combine: from the value there to the one to store.
            old: the expression's value is the one before.
        """
        _, first, again = self._pinned(target)
        place, kind, name = self._place(again)
        kept = self._kept(combine(self.value(first)), place, kind, name)
        return tree.Assign(type=kind, pos=self.pos, place=place, value=kept, old=old)

    def _pinned(self, of: Operand) -> tuple[list[Expr], Operand, Operand]:
        """A place whose indexes are evaluated once.

        Returns:
            The indexes that are not simple, to evaluate in order; the place that evaluates them itself; and
            the same place once they have been evaluated.
        """
        evaluated: list[Expr] = []

        def pinned(indexes: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
            pairs = [(i, i) if _is_simple(i) else self.hidden(i) for i in indexes]
            evaluated.extend(first for first, again in pairs if first is not again)
            return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)

        if isinstance(of, Slice):
            firsts, agains = pinned(of.indexes)
            return evaluated, Slice(of.variable, firsts), Slice(of.variable, agains)
        if not isinstance(of, Ref):
            return evaluated, of, of
        roots = pinned(() if of.root.index is None else (of.root.index,))
        steps = [(step.field, pinned(step.indexes)) for step in of.steps]
        first, again = (
            replace(
                of,
                root=replace(of.root, index=roots[n][0]) if roots[n] else of.root,
                steps=tuple(tree.Step(field, indexes[n]) for field, indexes in steps),
            )
            for n in (0, 1)
        )
        return evaluated, first, again

    def store(self, target: Operand, source: Operand) -> list[Stmt]:
        """The statement ``target = source``, where both may also be whole records, arrays or lists."""
        if isinstance(target, Ref) and isinstance(source, Ref):
            held = None if target.declared is None else target.declared.held
            values = self.is_value(target) and self.is_value(source)
            as_float = self.is_value(target) and not isinstance(held, Logical) and self.is_decimal(source)
            same_optional = isinstance(target.declared, Maybe) and source.actual in (None, target.declared)
            if not as_float and (same_optional or not values):
                return self.copy(target, source)
        return [self.run(self.assign(target, self.value(source)))]

    def copy(self, target: Ref, source: Ref) -> list[Stmt]:
        """The statements that copy a whole record, array, list or optional from an event into an output."""
        if target.root.kind != "output" or source.root.kind == "output":
            raise self.error("a whole record, array or list is copied only from an event into an output")
        if target.pending or source.pending:
            self.complete(target)
            self.complete(source)
        evaluated, _, settled = self._pinned(source)
        assert isinstance(settled, Ref)
        return [*(self.run(index) for index in evaluated), *Transfer(self).copied(target, settled)]

    def count_copied(self) -> None:
        """Bounds how many fields the copies of whole records write, since a short text can ask for many."""
        self._copied += 1
        if self._copied > _MAX_COPIED:
            raise self.error(f"copies of whole records write more than {_MAX_COPIED} fields")

    def returned(self, value: Operand | None) -> tree.Return:
        """``return value``: as the function's kind wants it, an i64.

        Raises:
            CodeError: the value has no number, or it is missing.
        """
        self.returns = True
        if value is None:
            if self.kind == "queue":
                return tree.Return(pos=self.pos, value=self.const("i64", 0))
            raise self.error(f"'return' needs a value here: {_RESULTS[self.kind]}")
        result = self.value(value)
        if result.type == "str" and not (self.strict and self.kind in ("filter", "transform")):
            raise self.error(f"the result is a text; expected a number: {_RESULTS[self.kind]}")
        if self.kind in ("filter", "transform") and result.type not in INTEGERS:
            result = self.truth(result, text_is_condition=self.strict)
        if self.strict and self.kind == "router" and result.type in FLOATS:
            raise self.error("the result is a float; expected the number of a port, write int(...)")
        return tree.Return(pos=self.pos, value=self.convert(result, "i64"))

    def finish(self, body: list[Stmt], fuel: int) -> Function:
        """The whole function.

        Raises:
            CodeError: it never gives a result, though its kind needs one; or it is too deep or too large.
        """
        self.pos = Pos(1, 1)
        if not (self.returns or self.submits or self.kind == "queue"):
            raise self.error(f"this function never returns a value: {_RESULTS[self.kind]}")
        hidden = [tree.Declare(pos=self.pos, variable=v) for v in self.locals if not v.name]
        whole = self.block([*hidden, *body])
        levels, nodes, pos = deepest(whole, _MAX_LEVELS, _MAX_NODES)
        if levels > _MAX_LEVELS:
            what = (
                f"the operations are nested deeper than {_MAX_LEVELS} levels; use variables for parts of it"
            )
            raise self.error(what, pos)
        if nodes > _MAX_NODES:
            raise self.error(
                f"the function has more than {_MAX_NODES} operations; use variables or loops for what comes "
                "again"
            )
        return Function(
            kind=self.kind,
            source=self.source,
            inputs=tuple([(name, declared and actual) for name, declared, actual in self.inputs]),
            outputs=tuple(self.outputs),
            locals=tuple(self.locals),
            statics=tuple(self.statics),
            attributes=tuple(self.attributes),
            system=tuple(self.system),
            fuel=fuel,
            body=metered(whole) if self.loops else whole,
        )

    def effect(self, result: Expr | Stmt) -> Stmt:
        """A call as a statement."""
        if isinstance(result, Stmt):
            self.submits = self.submits or isinstance(result, tree.Submit)
            return result
        return self.run(result)

    def only_value(self, result: Expr | Stmt, name: str) -> Expr:
        """A call as a value.

        Raises:
            CodeError: it has none.
        """
        if isinstance(result, Stmt):
            raise self.error(f"{name}(...) has no value; write it as a statement of its own")
        return result


_RESULTS = {
    "filter": "not zero passes the event on, zero drops it",
    "transform": "not zero sends the output on, zero drops it",
    "router": "the number of the port, or a negative number for none",
    "queue": "it is not used",
}


def _is_simple(index: Expr) -> bool:
    """Whether an index may stand twice in the tree: a constant or a scalar variable."""
    if isinstance(index, tree.Convert):
        return _is_simple(index.operand)
    return isinstance(index, tree.Const) or (
        isinstance(index, tree.Load) and isinstance(index.place, tree.Element) and not index.place.indexes
    )


def _has_field(event: Ref, name: str) -> bool:
    schema = getattr(event.declared, "schema", None)
    return isinstance(schema, Schema) and name in schema


def _described(root: Operand) -> str:
    if isinstance(root, Queue):
        return "a queue"
    if isinstance(root, Ref):
        return "an output" if root.root.kind == "output" else "the event"
    return "the attributes"
