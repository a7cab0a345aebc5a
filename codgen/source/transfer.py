"""Copies of whole things from an event into an output, also between types that only convert.

Used by ``output.x = input.x`` in code and by ``adapt.py``, which makes an event of one schema into one of
another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evflow.codgen import tree
from evflow.codgen.source.access import Ref, converts, value_type
from evflow.codgen.tree import Expr, Pos, Stmt
from evflow.schema.types import Array, FieldType, Logical, Maybe, Record

if TYPE_CHECKING:
    from evflow.codgen.source.check import Builder

__all__ = ["Transfer"]


class Transfer:
    """Makes the statements of one copy.

    Args:
        builder: makes the nodes.
        pos: where the copy stands.
        checked: a number that the target cannot hold is a fault, else it is cast.
        whole: every field of the target must come from the source or have a default; else those are set
            that do.
    """

    def __init__(self, builder: Builder, pos: Pos, *, checked: bool = False, whole: bool = False) -> None:
        self.builder = builder
        self.pos = pos
        self.checked = checked or builder.strict
        self.whole = whole

    def copied(self, target: Ref, source: Ref) -> list[Stmt]:
        """The statements that set ``target`` from ``source``.

        Raises:
            CodeError: no sequence of statements can turn the one type into the other.
        """
        into, actual = target.declared, source.actual
        if into is None or source.declared is None:
            raise self.builder.error(
                "an event without a declared schema can be submitted, but not copied", self.pos
            )
        if actual is None:
            return self._default(target, source, into)
        self._check_logical(target, source, into, actual)
        whole = isinstance(into, Maybe) or value_type(into) is None
        if whole and target.steps and source.steps and into == actual:
            return [
                tree.Copy(pos=self.pos, target=self.builder.path(target), source=self.builder.path(source))
            ]
        both_optional = isinstance(into, Maybe) and isinstance(actual, Maybe)
        # In code a target may hold a value that nothing could take away, so there both must be of one type.
        if (
            value_type(into) is not None
            and value_type(actual) is not None
            and (self.whole or not both_optional)
        ):
            return self._value(target, source, actual)
        if isinstance(into, Record) and isinstance(actual, Record):
            return self._record(target, source, into)
        if (
            isinstance(into, Array)
            and isinstance(actual, Array)
            and into.static
            and into.shape == actual.shape
        ):
            return self._array(target, source, into, actual)
        raise self.builder.error(
            f"'{target.text}' is {into.text}, '{source.text}' is {actual.text}: expected one "
            "and the same type",
            self.pos,
        )

    def _check_logical(self, target: Ref, source: Ref, into: FieldType, actual: FieldType) -> None:
        wanted, found = (kind.held for kind in (into, actual))
        if not converts(found, wanted):
            raise self.builder.error(
                f"'{target.text}' is {into.text}, '{source.text}' is {actual.text}: expected one "
                "and the same type",
                self.pos,
            )

    def _default(self, target: Ref, source: Ref, into: FieldType) -> list[Stmt]:
        if source.default is None or isinstance(source.default, list):
            return []
        held = into.held
        # What functions do not compute with is written as it is kept.
        kind = value_type(held.stored if isinstance(held, Logical) else held)
        assert kind is not None, "defaults are single values"
        value = self.builder.const(kind, source.default, self.pos)
        return [self._set(self.builder.path(target), kind, value)]

    def _set(self, path: tree.Path, kind: str, value: Expr) -> Stmt:
        return tree.Run(pos=self.pos, value=tree.Assign(type=kind, pos=self.pos, place=path, value=value))

    def _value(self, target: Ref, source: Ref, actual: FieldType) -> list[Stmt]:
        kind, found = value_type(target.declared), value_type(actual)
        assert kind is not None and found is not None
        loaded = tree.Load(type=found, pos=self.pos, place=self.builder.path(source))
        assignment = self._set(
            self.builder.path(target), kind, self.builder.convert(loaded, kind, checked=self.checked)
        )
        if isinstance(target.declared, Maybe) and isinstance(actual, Maybe):
            condition = tree.Present(type="bool", pos=self.pos, path=self.builder.path(source))
            return [
                tree.If(pos=self.pos, condition=condition, then=tree.Block(pos=self.pos, body=(assignment,)))
            ]
        return [assignment]

    def _record(self, target: Ref, source: Ref, into: Record) -> list[Stmt]:
        statements: list[Stmt] = []
        for field in into.schema:
            self.builder.count_copied(self.pos)
            if not self.whole and not self._has(source, field.name):
                continue
            part = self.builder.field(target, field.name, self.pos)
            value = self.builder.field(source, field.name, self.pos)
            assert isinstance(part, Ref) and isinstance(value, Ref)
            statements += self.copied(part, value)
        return statements

    @staticmethod
    def _has(source: Ref, name: str) -> bool:
        return isinstance(source.declared, Record) and name in source.declared.schema

    def _array(self, target: Ref, source: Ref, into: Array, actual: Array) -> list[Stmt]:
        """Loops over the elements, one for each dimension."""
        counters = [self.builder.new_local("", "i64") for _ in into.shape]
        indexes = tuple(tree.Load(type="i64", pos=self.pos, place=tree.Element(c)) for c in counters)
        read = tree.Load(type=actual.element.name, pos=self.pos, place=self._element(source, indexes, actual))
        value = self.builder.convert(read, into.element.name, checked=self.checked)
        statement: Stmt = self._set(self._element(target, indexes, into), into.element.name, value)
        for counter, size in zip(reversed(counters), reversed(into.shape), strict=True):
            statement = self._counted(counter, size or 0, statement)
        return [statement]

    def _element(self, of: Ref, indexes: tuple[Expr, ...], kind: Array) -> tree.Path:
        last = of.steps[-1]
        return tree.Path(of.root, (*of.steps[:-1], tree.Step(last.field, indexes)), kind.element)

    def _counted(self, counter: tree.Variable, size: int, body: Stmt) -> Stmt:
        pos, place = self.pos, tree.Element(counter)
        now = tree.Load(type="i64", pos=pos, place=place)
        more = tree.Compare(
            type="bool", pos=pos, op="lt", left=now, right=self.builder.const("i64", size, pos)
        )
        one = self.builder.binary("add", now, tree.Const(type="i64", pos=pos, value=1), pos)
        step = tree.Run(pos=pos, value=tree.Assign(type="i64", pos=pos, place=place, value=one))
        loop = tree.Loop(
            pos=pos,
            condition=more,
            body=tree.Block(pos=pos, body=(body,)),
            step=tree.Block(pos=pos, body=(step,)),
        )
        return tree.Block(pos=pos, body=(tree.Declare(pos=pos, variable=counter), loop))
