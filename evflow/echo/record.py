"""What a channel is, as plain data that travels: its name, its schemas, how its bridges treat events, and for
a derived channel the function that makes its events from those of another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from evflow.engine.fit import best_fit
from evflow.errors import CodeError, GraphError, LinkError, SchemaError
from evflow.kinds import stone_class
from evflow.link.waiting import POLICIES
from evflow.morph import Morph
from evflow.outside import from_json, shown
from evflow.schema import Schema
from evflow.stone import Compiled, Stone

__all__ = ["DELIVERIES", "MOST_NAME", "MOST_TEXT", "Derivation", "Record", "morph_from", "packed_morph"]

DELIVERIES = ("at_least_once", "at_most_once")

MOST_NAME = 255
"""Characters of the name of a channel or a process."""

MOST_TEXT = 64 << 10
"""Characters of a function, or of the description of a schema."""

_MOST_SCHEMAS = 64
_MOST_FUEL = 10_000_000
_LIMITS = (1 << 16, 1 << 40)
_TOKEN = re.compile(r"[0-9a-f]{8}")
_KINDS = ("filter", "transform")


@dataclass(frozen=True)
class Derivation:
    """How a channel's events are made from those of another.

    Attributes:
        parent: the key of the other channel.
        kind: "filter" or "transform".
        code: the function's source.
        input: the least schema that it needs; None for that of the parent.
        output: what a transform makes; None for a filter.
        fuel: what one event may spend; a unit pays for a short turn of a loop.
    """

    parent: str
    kind: str
    code: str
    input: Schema | None
    output: Schema | None
    fuel: int

    @classmethod
    def of(cls, parent: str, stone: Stone) -> Derivation:
        """What a filter or transform stone does, as data.

        Raises:
            GraphError: the stone is neither.
            CodeError: the source of its Python function cannot be read.
        """
        if stone.kind not in _KINDS:
            raise GraphError(
                f"a channel is derived with the code of a filter, ev.Filter(…) or ev.Transform(…), "
                f"found {stone!r}"
            )
        settings = stone.settings()
        output = settings.get("output")
        return cls(
            parent,
            stone.kind,
            settings["code"],
            next(iter(stone.inputs.values())),
            None if output is None else Schema.from_description(output),
            settings["fuel"],
        )

    def stone(self, name: str) -> Compiled:
        """The stone that does it."""
        settings = {
            "code": self.code,
            "input": None if self.input is None else self.input.description,
            "fuel": self.fuel,
        }
        if self.output is not None:
            settings["output"] = self.output.description
        stone = stone_class(self.kind).from_settings(settings)
        assert isinstance(stone, Compiled)
        stone.name = name
        return stone


@dataclass(frozen=True)
class Record:
    """What a channel is; it never changes.

    Attributes:
        name: the channel's name, for people.
        creator: the process that made it.
        token: eight hexadecimal digits, to tell it from others that its creator gave the same name.
        schemas: what its events are; none for any.
        policy, delivery, limit: as ``Bridge`` has them.
        derivation: where its events come from; None if only from publishers.
    """

    name: str
    creator: str
    token: str
    schemas: tuple[Schema, ...] = ()
    policy: str = "drop oldest"
    delivery: str = "at_least_once"
    limit: int = 64 << 20
    derivation: Derivation | None = field(default=None)

    @cached_property
    def key(self) -> str:
        """What it is known by among processes."""
        return f"{self.name}@{self.creator}#{self.token}"

    @property
    def parent(self) -> str:
        """The key of the channel that it is derived from; "" if it is not."""
        return "" if self.derivation is None else self.derivation.parent

    def check(self, parent: Record, morphs: Sequence[Morph]) -> None:
        """Compiles the function of a derived channel for what its parent carries.

        Raises:
            CodeError: the function is wrong; carries line and column.
            SchemaError: the parent's events do not fit it.
            LinkError: it is said to make other events than it does.
        """
        derivation = self.derivation
        assert derivation is not None
        stone = derivation.stone(f"{self.name} {derivation.kind}")
        try:
            _compile(stone, derivation.input, parent.schemas, morphs)
        except CodeError as error:
            raise error.within(f"channel {self.name!r}, derived from {parent.name!r}") from None
        made = parent.schemas if derivation.output is None else (derivation.output,)
        if made != self.schemas:
            raise LinkError(
                f"channel {self.name!r}: its {derivation.kind} makes other events than it carries"
            )

    def packed(self) -> list[Any]:
        """It as plain data."""
        made: list[Any] | None = None
        if (d := self.derivation) is not None:
            made = [d.parent, d.kind, d.code, _text(d.input), _text(d.output), d.fuel]
        texts = [_text(schema) for schema in self.schemas]
        return [self.name, self.creator, self.token, texts, self.policy, self.delivery, self.limit, made]

    @classmethod
    def unpacked(cls, data: Any) -> Record:
        """The record that data from outside are.

        Raises:
            LinkError: they are none; says which part is wrong.
        """
        if type(data) is not list or len(data) != 8:
            raise LinkError(f"a channel: expected an array of 8 values, found {shown(data)}")
        name, creator, token, schemas, policy, delivery, limit, made = data
        _name("name of a channel", name)
        _name("name of a process", creator)
        _expect(type(token) is str and bool(_TOKEN.fullmatch(token)), "token", token)
        _expect(type(schemas) is list and len(schemas) <= _MOST_SCHEMAS, "schemas", schemas)
        _expect(type(policy) is str and policy in POLICIES, "policy", policy, POLICIES)
        _expect(type(delivery) is str and delivery in DELIVERIES, "delivery", delivery, DELIVERIES)
        _expect(type(limit) is int and _LIMITS[0] <= limit <= _LIMITS[1], "limit", limit)
        known = tuple(_schema(text) for text in schemas)
        return cls(name, creator, token, known, policy, delivery, limit, _derivation(made))


def packed_morph(morph: Morph) -> list[str]:
    """A morph as plain data."""
    return [str(_text(morph.new)), str(_text(morph.old)), morph.code]


def morph_from(data: Any) -> Morph:
    """The morph that data from outside are, compiled once to see whether it can be.

    Raises:
        LinkError: they are none.
    """
    if type(data) is not list or len(data) != 3:
        raise LinkError(f"a morph: expected an array of 3 texts, found {shown(data)}")
    code = data[2]
    _expect(type(code) is str and len(code) <= MOST_TEXT, "code", code)
    morph = Morph(_schema(data[0]), _schema(data[1]), code)
    try:
        morph.function(morph.new)
    except (CodeError, SchemaError) as error:
        raise LinkError(f"a morph from {morph.new.name} to {morph.old.name}: {error}") from error
    return morph


def _compile(
    stone: Compiled, declared: Schema | None, arriving: tuple[Schema, ...], morphs: Sequence[Morph]
) -> None:
    if declared is None:
        for schema in arriving or (None,):
            stone.function(schema, schema)
        return
    stone.function(declared, declared)
    for schema in arriving:
        best_fit(schema, {"input": (declared,)}, morphs)


def _derivation(made: Any) -> Derivation | None:
    if made is None:
        return None
    if type(made) is not list or len(made) != 6:
        raise LinkError(f"a derived channel: expected an array of 6 values, found {shown(made)}")
    parent, kind, code, input, output, fuel = made
    _expect(type(parent) is str and 0 < len(parent) <= 3 * MOST_NAME, "parent", parent)
    _expect(type(kind) is str and kind in _KINDS, "kind", kind, _KINDS)
    _expect(type(code) is str and len(code) <= MOST_TEXT, "code", code)
    _expect(type(fuel) is int and 0 < fuel <= _MOST_FUEL, "fuel", fuel)
    _expect((output is not None) == (kind == "transform"), "output", output)
    known = [None if text is None else _schema(text) for text in (input, output)]
    return Derivation(parent, kind, code, known[0], known[1], fuel)


def _text(schema: Schema | None) -> str | None:
    if schema is None:
        return None
    return json.dumps(schema.description, separators=(",", ":"), ensure_ascii=False)


def _schema(text: Any) -> Schema:
    _expect(type(text) is str and len(text) <= MOST_TEXT, "schema", text)
    try:
        return Schema.from_description(from_json(text))
    except (SchemaError, ValueError, RecursionError) as error:
        raise LinkError(f"the schema of a channel: {error}") from error


def _name(what: str, value: Any) -> None:
    if type(value) is not str or not 0 < len(value) <= MOST_NAME or not value.isprintable():
        raise LinkError(
            f"the {what}: expected a text of 1 to {MOST_NAME} printable characters, found {shown(value)}"
        )


def _expect(right: bool, what: str, value: Any, choice: Iterable[str] = ()) -> None:
    if not right:
        wanted = f"; expected one of {', '.join(choice)}" if choice else ""
        raise LinkError(f"a channel's {what} cannot be {shown(value)}{wanted}")
