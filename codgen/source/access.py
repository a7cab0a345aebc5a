"""Places: from a name in the code to the field, element or variable that it means.

A ``Ref`` is a place in an event that is still being written down (``input``, ``input.wind``,
``input.wind[j]``). It walks two types at once: the *declared* one, which the code is checked against, and
the *actual* one, which the event has. The code computes with declared types; a load of another actual
number type is wrapped in a checked conversion, and a field that the event lacks is its default.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from evflow.choices import suggestion
from evflow.codgen.semantics import ZERO
from evflow.codgen.source.arithmetic import Arithmetic, names_of, spelled
from evflow.codgen.tree import (
    Assign,
    Block,
    Const,
    Element,
    Expr,
    If,
    Length,
    Load,
    Loop,
    Path,
    Present,
    Root,
    Run,
    Select,
    Step,
    Stmt,
    Variable,
)  # fmt: skip
from evflow.schema import Field, Schema
from evflow.schema.logical.decimal import Decimal
from evflow.schema.logical.enum import Enum
from evflow.schema.types import (
    Array,
    Blob,
    Bytes,
    FieldType,
    ListOf,
    Logical,
    Maybe,
    Number,
    Record,
    Str,
    Text,
)

_EXACT_DIGITS = 15
"""Digits of a decimal that a float64 holds."""
_MAX_LISTED = 50


class Ref(Struct, frozen=True):
    """A place in an event.

    Attributes:
        text: how the code writes it.
        root, steps: as in ``Path``; ``pending`` are indexes of the last step while they are not complete.
        declared: the type at the end that the code sees; None for an event of which it sees no field.
        actual: the type at the end that the event has; None where the event lacks the field.
        default: stands in for a field that the event lacks.
    """

    text: str
    root: Root
    declared: FieldType | None
    actual: FieldType | None
    steps: tuple[Step, ...] = ()
    pending: tuple[Expr, ...] = ()
    default: object = None


class Slice(Struct, frozen=True):
    """A local or static array with some of its indexes (or none)."""

    variable: Variable
    indexes: tuple[Expr, ...] = ()


class Queue(Struct, frozen=True):
    """The queued events of one input of a queue stone."""

    name: str
    slot: int
    declared: Schema | None
    actual: Schema | None


class Attributes(Struct, frozen=True):
    """The attributes of the event or of the stone, as one thing that is passed to functions."""

    scope: str


Operand = Expr | Ref | Slice | Queue | Attributes
"""What a piece of an expression can mean before its value is taken."""


def is_text(kind: FieldType | None) -> bool:
    """Whether a field of this type loads as a text."""
    return isinstance(kind, (Str, Text, Bytes, Blob))


def converts(actual: FieldType, declared: FieldType) -> bool:
    """True if a value of one type can stand where one of another is declared, as far as one of them is
    logical: nobody knows what else a number or bytes would mean."""
    if isinstance(declared, Logical):
        return declared.takes(actual)
    return not isinstance(actual, Logical)


def value_type(kind: FieldType | None) -> str | None:
    """The type of the value that a field loads as, or None where it has no single value."""
    if isinstance(kind, Maybe):
        kind = kind.element
    if isinstance(kind, Logical) and not kind.computable:
        return None
    if isinstance(kind, Number):
        return kind.name
    return "str" if is_text(kind) else None


def _entered(kind: FieldType | None) -> FieldType | None:
    return None if kind is None else kind.held


def _dimensions(kind: FieldType | None) -> int:
    if isinstance(kind, Array):
        return len(kind.shape)
    return 1 if isinstance(kind, ListOf) else 0


def _event_type(schema: Schema | None) -> FieldType | None:
    return None if schema is None else Record(schema.name, {schema.name: schema})


class Access(Arithmetic):
    """Resolves fields and indexes, and takes values."""

    def __init__(self, source: str, where: tuple[str, str, int] | None) -> None:
        super().__init__(source, where)
        self.locals: list[Variable] = []
        self.statics: list[Variable] = []
        self.loops = False
        self._void: Variable | None = None

    def new_local(
        self, name: str, kind: str, shape: tuple[int, ...] = (), names: Enum | None = None
    ) -> Variable:
        """A further local variable; ``names`` where it holds the position of one."""
        variable = Variable(name, kind, len(self.locals), shape=shape, names=names)
        self.locals.append(variable)
        return variable

    def read(self, variable: Variable) -> Load:
        """The value of a scalar variable."""
        return Load(type=variable.type, pos=self.pos, place=Element(variable))

    def set(self, variable: Variable, value: Expr) -> Stmt:
        """The statement that gives a scalar variable a value of its type."""
        place = Element(variable)
        return self.run(Assign(type=variable.type, pos=self.pos, place=place, value=value))

    def hidden(self, value: Expr) -> tuple[Expr, Expr]:
        """The value as an expression to evaluate first, and one that gives it again without its effects."""
        if isinstance(value, Const):
            return value, value
        place = Element(self.new_local("", value.type, names=names_of(value)))
        first = Assign(type=value.type, pos=value.pos, place=place, value=value)
        return first, Load(type=value.type, pos=value.pos, place=place)

    def run(self, value: Expr) -> Stmt:
        """An expression as a statement."""
        return Run(pos=self.pos, value=value)

    def block(self, statements: Iterable[Stmt]) -> Block:
        """Statements in order."""
        return Block(pos=self.pos, body=tuple(statements))

    def when(self, condition: Expr, then: Iterable[Stmt], otherwise: Block | None = None) -> Stmt:
        """Statements for where a condition holds, and others for where it does not."""
        return If(pos=self.pos, condition=condition, then=self.block(then), otherwise=otherwise)

    def loop(
        self, condition: Expr, body: Block, step: Iterable[Stmt] = (), *, test_last: bool = False
    ) -> Stmt:
        """A loop; see ``tree.Loop``."""
        self.loops = True
        after = self.block(steps) if (steps := tuple(step)) else None
        return Loop(pos=self.pos, condition=condition, body=body, step=after, test_last=test_last)

    @staticmethod
    def event(text: str, root: Root, declared: Schema | None, actual: Schema | None) -> Ref:
        """An event as a place."""
        seen = _event_type(declared)
        return Ref(text, root, seen, seen if actual is declared else _event_type(actual))

    def field(self, of: Operand, name: str) -> Operand:
        """The field ``name`` of a record, or ``attrs`` of an event.

        Raises:
            CodeError: it is not a record, or has no such field.
        """
        if isinstance(of, Queue):
            raise self.error(f"'{of.name}' is a queue: write {of.name}[0].{name} or count({of.name})")
        if not isinstance(of, Ref):
            raise self.error(f"'.{name}': only an event or a nested record has fields")
        if name == "attrs" and not of.steps:
            return Attributes("event")
        if of.declared is None:
            raise self.error(
                f"'{of.text}' has no declared schema, so its fields are not known; "
                "only its attributes can be used"
            )
        record = of.declared.held
        if not isinstance(record, Record):
            self.complete(of)
            raise self.error(f"'{of.text}' is {of.declared.text}; it has no field '{name}'")
        schema = record.schema
        if name not in schema:
            names = [f.name for f in schema]
            listed = ", ".join(names[:_MAX_LISTED]) + (", …" if len(names) > _MAX_LISTED else "")
            hint = suggestion(name, names)
            raise self.error(f"'{of.text}' has no field '{name}'{hint}; its fields are {listed}")
        if of.root.kind == "output" and isinstance(of.declared, Maybe):
            raise self.error(f"'{of.text}' is optional; in an output it can only be copied as a whole")
        declared = schema[name]
        actual, default = (
            (declared.type, None) if of.actual is of.declared else self._actual_field(of, declared)
        )
        step = Step(name)
        return Ref(f"{of.text}.{name}", of.root, declared.type, actual, (*of.steps, step), (), default)

    @staticmethod
    def _actual_field(of: Ref, declared: Field) -> tuple[FieldType | None, object]:
        record = _entered(of.actual)
        if not isinstance(record, Record):
            return None, of.default  # inside an optional record or list that the event lacks
        schema, name = record.schema, declared.name
        return (schema[name].type, None) if name in schema else (None, declared.stored_default)

    def complete(self, of: Ref) -> None:
        """Refuses an array or list, or a part of one, where a single element is needed."""
        dimensions = _dimensions(_entered(of.declared))
        if dimensions and of.declared is not None:
            given = len(of.pending)
            raise self.error(
                f"'{of.text}' is {of.declared.text}: expected {_count(dimensions, 'index', 'indexes')}, "
                f"found {given}"
            )

    def as_index(self, expr: Expr) -> Expr:
        """An integer as an index or a port (i64)."""
        if expr.type in ("str", "f32", "f64"):
            raise self.error(f"expected an integer here, found {spelled(expr.type)}", expr.pos)
        return self.convert(expr, "i64")

    def index(self, of: Operand, at: Expr) -> Operand:
        """An index after a place.

        Raises:
            CodeError: there is nothing to index, there are too many indexes, or it is not an integer.
        """
        index = self.as_index(at)
        if isinstance(of, Queue):
            return self.event(f"{of.name}[…]", Root("queue", of.slot, index), of.declared, of.actual)
        if isinstance(of, Slice) and of.variable.shape:
            if len(of.indexes) == len(of.variable.shape):
                found = _count(len(of.indexes), "dimension", "dimensions")
                raise self.error(f"'{of.variable.name}' has {found}; there is one index too many")
            return Slice(of.variable, (*of.indexes, index))
        if not isinstance(of, Ref) or not _dimensions(_entered(of.declared)) or not of.steps:
            name = of.text if isinstance(of, Ref) else of.variable.name if isinstance(of, Slice) else "this"
            raise self.error(f"'{name}' is not an array, list or queue; it cannot be indexed")
        return self._index_field(of, index)

    def _index_field(self, of: Ref, index: Expr) -> Ref:
        kind = _entered(of.declared)
        self._check_output_index(of, kind)
        if of.steps[-1].indexes:
            raise self.error(f"'{of.text}': a list or array within a list cannot be indexed")
        pending = (*of.pending, index)
        text = f"{of.text}[…]"
        if len(pending) < _dimensions(kind):
            return replace(of, text=text, pending=pending)
        assert isinstance(kind, (Array, ListOf))
        actual = _entered(of.actual)
        actual_element = actual.element if isinstance(actual, (Array, ListOf)) else None
        steps = (*of.steps[:-1], Step(of.steps[-1].field, pending))
        return Ref(text, of.root, kind.element, actual_element, steps, (), of.default)

    def _check_output_index(self, of: Ref, kind: FieldType | None) -> None:
        if of.root.kind == "output" and not (isinstance(of.declared, Array) and of.declared.static):
            raise self.error(
                f"'{of.text}' has no fixed size; in an output it can only be copied as a whole from an event"
            )

    def value(self, of: Operand) -> Expr:
        """The value that stands at a place.

        Raises:
            CodeError: the place has no single value.
        """
        if isinstance(of, Expr):
            return of
        if isinstance(of, Slice):
            return Load(type=of.variable.type, pos=self.pos, place=self.element(of))
        if isinstance(of, Queue):
            raise self.error(f"'{of.name}' is a queue: write {of.name}[0].field or count({of.name})")
        if isinstance(of, Attributes):
            raise self.error("attributes are read by attr_ivalue, attr_dvalue or attr_svalue")
        return self._load(of)

    @staticmethod
    def is_value(of: Operand) -> bool:
        """Whether this is a number or a text, or a place that holds one, optional or not."""
        if isinstance(of, Ref):
            return value_type(of.declared) is not None and not of.pending
        return isinstance(of, Expr) or (isinstance(of, Slice) and not of.variable.shape)

    @staticmethod
    def is_decimal(of: Ref) -> bool:
        """True for a decimal of an event that is read as a float."""
        held = _entered(of.declared)
        return isinstance(held, Decimal) and held.precision <= _EXACT_DIGITS and of.root.kind != "output"

    def element(self, of: Slice) -> Element:
        """The element of an array variable that a complete slice is."""
        missing, shape = len(of.variable.shape) - len(of.indexes), len(of.variable.shape)
        if missing:
            raise self.error(
                f"'{of.variable.name}' is an array: expected {_count(shape, 'index', 'indexes')}, "
                f"found {len(of.indexes)}"
            )
        return Element(of.variable, of.indexes)

    def _load(self, of: Ref) -> Expr:
        held = _entered(of.declared)
        if isinstance(held, (Array, ListOf)):
            self.complete(of)
        if isinstance(held, Decimal) and self.is_decimal(of):
            return self._decimal(of, held)
        kind = value_type(of.declared)
        if isinstance(held, Logical) and kind is None:
            raise self.error(
                f"'{of.text}' is {held.text}, which functions do not compute with; it can only be copied, to "
                "a field of the same type"
            )
        if kind is None or of.declared is None:
            what = "an event" if not of.steps else f"a record ({of.declared.text if of.declared else '?'})"
            raise self.error(f"'{of.text}' is {what}, which has no value; name one of its fields")
        if of.actual is None and isinstance(held, Enum) and isinstance(of.default, int):
            # As a name, which is the position where one is wanted.
            return self.const("str", held.load(of.default))
        if of.actual is None:
            return self._default_value(of, kind)
        if of.root.kind == "output" and kind == "str":
            raise self.error(f"'{of.text}': the text of an output can only be set, not read")
        actual = kind if of.actual is of.declared else value_type(of.actual)
        assert actual is not None, "front.py refuses schemas that do not fit"
        loaded = Load(type=actual, pos=self.pos, place=self.path(of))
        return loaded if actual == kind else self.convert(loaded, kind, checked=True)

    def _decimal(self, of: Ref, kind: Decimal) -> Expr:
        """The float64 nearest to a decimal, which has so few digits that it is the nearest of no other."""
        if of.actual is None:
            unscaled = self._default_value(of, "i64")
        else:
            unscaled = Load(type="i64", pos=self.pos, place=self.path(of))
        scale = self.const("f64", 10.0**kind.scale)
        return self.binary("div", self.convert(unscaled, "f64"), scale)

    @staticmethod
    def path(of: Ref) -> Path:
        """The finished path to a place that the event has."""
        assert of.actual is not None
        return Path(of.root, of.steps, of.actual)

    def _default_value(self, of: Ref, kind: str) -> Expr:
        if of.default is None or isinstance(of.default, list):
            return self._never(kind)
        return self.const(kind, of.default)

    def _never(self, kind: str) -> Expr:
        """A value of something that no event has: an INDEX fault for the event that asks for it."""
        if self._void is None:
            self._void = self.new_local("", "i32", (1,))
        outside = (self.const("i64", 1),)
        missing = Load(type="i32", pos=self.pos, place=Element(self._void, outside))
        zero = self.const(kind, ZERO[kind])
        return Select(type=kind, pos=self.pos, condition=self.truth(missing), yes=zero, no=zero)

    def present(self, of: Operand) -> Expr:
        """Whether an optional field has a value (bool); always so for a field that is not optional."""
        if not isinstance(of, Ref) or of.declared is None or of.pending:
            raise self.error("present(...) takes an optional field of an event")
        if of.root.kind == "output":
            raise self.error(f"'{of.text}': whether a field of an output is set cannot be asked")
        if of.actual is None:
            return self.const("bool", of.default is not None)
        if not isinstance(of.actual, Maybe):
            return self.const("bool", True)
        return Present(type="bool", pos=self.pos, path=self.path(of))

    def length(self, of: Operand, axis: int) -> Expr:
        """i64: bytes of a text, elements of a list or of one dimension of an array, or events in a queue."""
        if isinstance(of, Queue):
            return Length(type="i64", pos=self.pos, what=of.slot)
        if isinstance(of, Slice) and not of.indexes:
            return self.const("i64", self._dimension(of.variable.shape, axis, of.variable.name))
        kind = _entered(of.declared) if isinstance(of, Ref) else None
        if not isinstance(of, Ref) or of.pending or not isinstance(kind, (Array, ListOf)):
            raise self.error("length(...) takes a text, an array, a list or a queue")
        if of.root.kind == "output" and not (isinstance(kind, Array) and kind.static):
            raise self.error(f"'{of.text}': the length of an output's field cannot be asked")
        known = self._dimension(kind.shape if isinstance(kind, Array) else (None,), axis, of.text)
        if of.actual is None:
            return self.const("i64", 0)
        if known is not None and not isinstance(of.actual, Maybe):
            return self.const("i64", known)
        return Length(type="i64", pos=self.pos, what=self.path(of), axis=axis)

    def _dimension(self, shape: tuple[int | None, ...], axis: int, name: str) -> int | None:
        if not 0 <= axis < len(shape):
            raise self.error(
                f"'{name}' has {_count(len(shape), 'dimension', 'dimensions')}; there is none {axis}"
            )
        return shape[axis]


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"
