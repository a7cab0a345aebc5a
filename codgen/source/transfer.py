"""Copies of whole things from an event into an output, also between types that only convert.

Used by ``output.x = input.x`` in code and by ``adapt.py``, which makes an event of one schema into one of
another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evflow.codgen import tree
from evflow.codgen.source.access import Ref, converts, value_type
from evflow.codgen.tree import Expr, Stmt
from evflow.schema.types import Array, FieldType, Logical, Maybe, Record

if TYPE_CHECKING:
    from evflow.codgen.source.check import Builder


class Transfer:
    """Makes the statements of one copy.

    Args:
        builder: makes the nodes.
        checked: a number that the target cannot hold is a fault, else it is cast.
        whole: every field of the target must come from the source or have a default; else those are set
            that do.
    """

    def __init__(self, builder: Builder, *, checked: bool = False, whole: bool = False) -> None:
        self.builder = builder
        self.checked = checked or builder.strict
        self.whole = whole

    def copied(self, target: Ref, source: Ref) -> list[Stmt]:
        """The statements that set ``target`` from ``source``.

        Raises:
            CodeError: no sequence of statements can turn the one type into the other.
        """
        into, actual, builder = target.declared, source.actual, self.builder
        if into is None or source.declared is None:
            raise builder.error("an event without a declared schema can be submitted, but not copied")
        if actual is None:
            return self._default(target, source, into)
        if converts(actual.held, into.held):
            whole = isinstance(into, Maybe) or value_type(into) is None
            if whole and target.steps and source.steps and into == actual:
                return [tree.Copy(pos=builder.pos, target=builder.path(target), source=builder.path(source))]
            both_optional = isinstance(into, Maybe) and isinstance(actual, Maybe)
            kind, found = value_type(into), value_type(actual)
            # In code a target may hold a value that nothing could take away: there both are of one type.
            if kind is not None and found is not None and (self.whole or not both_optional):
                return self._value(target, source, kind, found, optional=both_optional)
            if isinstance(into, Record) and isinstance(actual, Record):
                return self._record(target, source, into)
            if (
                isinstance(into, Array)
                and isinstance(actual, Array)
                and into.static
                and into.shape == actual.shape
            ):
                return [self._array(target, source, into, actual)]
        raise builder.error(
            f"'{target.text}' is {into.text}, '{source.text}' is {actual.text}: "
            "expected one and the same type"
        )

    def _default(self, target: Ref, source: Ref, into: FieldType) -> list[Stmt]:
        if source.default is None or isinstance(source.default, list):
            return []
        held = into.held
        # What functions do not compute with is written as it is kept.
        kind = value_type(held.stored if isinstance(held, Logical) else held)
        assert kind is not None, "defaults are single values"
        return [self._set(self.builder.path(target), self.builder.const(kind, source.default))]

    def _set(self, path: tree.Path, value: Expr) -> Stmt:
        return self.builder.run(tree.Assign(type=value.type, pos=self.builder.pos, place=path, value=value))

    def _read(self, path: tree.Path, found: str, kind: str) -> Expr:
        loaded = tree.Load(type=found, pos=self.builder.pos, place=path)
        return self.builder.convert(loaded, kind, checked=self.checked)

    def _value(self, target: Ref, source: Ref, kind: str, found: str, *, optional: bool) -> list[Stmt]:
        builder, place = self.builder, self.builder.path(source)
        assignment = self._set(builder.path(target), self._read(place, found, kind))
        if not optional:
            return [assignment]
        return [builder.when(tree.Present(type="bool", pos=builder.pos, path=place), [assignment])]

    def _record(self, target: Ref, source: Ref, into: Record) -> list[Stmt]:
        statements: list[Stmt] = []
        for field in into.schema:
            self.builder.count_copied()
            known = isinstance(source.declared, Record) and field.name in source.declared.schema
            if known or self.whole:
                part, value = (self.builder.field(of, field.name) for of in (target, source))
                assert isinstance(part, Ref) and isinstance(value, Ref)
                statements += self.copied(part, value)
        return statements

    def _array(self, target: Ref, source: Ref, into: Array, actual: Array) -> Stmt:
        """Loops over the elements, one for each dimension."""
        builder, one = self.builder, self.builder.const("i64", 1)
        counters = [builder.new_local("", "i64") for _ in into.shape]
        indexes = tuple(builder.read(counter) for counter in counters)
        kind = into.element.name
        value = self._read(_element(source, indexes, actual), actual.element.name, kind)
        statement = self._set(_element(target, indexes, into), value)
        for counter, size in zip(reversed(counters), reversed(into.shape), strict=True):
            now = builder.read(counter)
            more = builder.compare("lt", now, builder.const("i64", size or 0))
            step = builder.set(counter, builder.binary("add", now, one))
            loop = builder.loop(more, builder.block([statement]), [step])
            statement = builder.block([tree.Declare(pos=builder.pos, variable=counter), loop])
        return statement


def _element(of: Ref, indexes: tuple[Expr, ...], kind: Array) -> tree.Path:
    *before, last = of.steps
    return tree.Path(of.root, (*before, tree.Step(last.field, indexes)), kind.element)
