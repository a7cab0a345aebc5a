"""What a channel is, as plain data that travels: its name, its schemas, how its bridges treat events, and for
a derived channel the function that makes its events from those of another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from evflow.codgen.front import source_of
from evflow.engine.fit import best_fit
from evflow.errors import CodeError, GraphError, LinkError, SchemaError
from evflow.graph.morph import Morph
from evflow.net.link.messages import MISREAD
from evflow.net.link.waiting import POLICIES
from evflow.net.node.contact import Contact
from evflow.outside import from_json, shown
from evflow.schema import Schema
from evflow.stone import Compiled, Stone
from evflow.stones.filter import Filter
from evflow.stones.transform import Transform

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
_AS_ARRAY = {"array_like": True, "forbid_unknown_fields": True, "frozen": True, "dict": True}


class Derivation(Struct, **_AS_ARRAY):
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

    def __post_init__(self) -> None:
        _expect(0 < len(self.parent) <= 3 * MOST_NAME, "parent", self.parent)
        _expect(self.kind in _KINDS, "kind", self.kind, _KINDS)
        _expect(len(self.code) <= MOST_TEXT, "code", self.code)
        _expect(0 < self.fuel <= _MOST_FUEL, "fuel", self.fuel)
        _expect((self.output is not None) == (self.kind == "transform"), "output", self.output)

    @classmethod
    def of(cls, parent: str, stone: Stone) -> Derivation:
        """What a filter or transform stone does, as data.

        Raises:
            GraphError: the stone is neither.
            CodeError: the source of its Python function cannot be read.
        """
        if not isinstance(stone, Filter | Transform) or stone.kind not in _KINDS:
            raise GraphError(
                f"a channel is derived with the code of a filter, ev.Filter(…) or ev.Transform(…), "
                f"found {stone!r}"
            )
        code, output = source_of(stone.code), getattr(stone, "output", None)
        return cls(parent, stone.kind, code, stone.input, output, stone.fuel)

    def stone(self, name: str) -> Compiled:
        """The stone that does it."""
        if self.output is None:
            return Filter(self.code, input=self.input, fuel=self.fuel, name=name)
        return Transform(self.code, output=self.output, input=self.input, fuel=self.fuel, name=name)


class Record(Struct, **_AS_ARRAY):
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
    derivation: Derivation | None = None

    def __post_init__(self) -> None:
        _name("name of a channel", self.name)
        _name("name of a process", self.creator)
        _expect(_TOKEN.fullmatch(self.token) is not None, "token", self.token)
        _expect(len(self.schemas) <= _MOST_SCHEMAS, "schemas", self.schemas)
        _expect(self.policy in POLICIES, "policy", self.policy, POLICIES)
        _expect(self.delivery in DELIVERIES, "delivery", self.delivery, DELIVERIES)
        _expect(type(self.limit) is int and _LIMITS[0] <= self.limit <= _LIMITS[1], "limit", self.limit)

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
        data: list[Any] = msgspec.to_builtins(self, enc_hook=_text)
        return data

    @classmethod
    def unpacked(cls, data: Any) -> Record:
        """The record that data from outside are.

        Raises:
            LinkError: they are not a record; says which part is wrong.
        """
        try:
            return msgspec.convert(data, cls, dec_hook=lambda kind, text: _schema(text))
        except MISREAD as error:
            raise LinkError(f"a channel: {error}") from None


class ChannelContact(NamedTuple):
    """Where a channel can be had, as one text: ``tcp://10.0.0.1:7000/desk/trades``.

    Made by ``parse``; ``str`` gives the text.

    Attributes:
        address: the contact of a process that takes part in it.
        process: that process's name; with keys nobody else may answer there.
        channel: the channel's name, or its key.
    """

    address: str
    process: str
    channel: str

    @classmethod
    def parse(cls, text: object) -> ChannelContact:
        """The contact that a text says.

        Raises:
            LinkError: it says none.
        """
        right = "expected a text such as 'tcp://10.0.0.1:7000/desk/trades', as channel.contact gives it"
        if not isinstance(text, str):
            raise LinkError(f"contact of a channel {shown(text, 300)}: {right}")
        address, _, channel = text.rpartition("/")
        address, _, process = address.rpartition("/")
        if not address or not process or not channel:
            raise LinkError(f"contact of a channel {shown(text, 300)}: {right}")
        try:
            Contact.parse(address)
        except LinkError as error:
            raise LinkError(f"contact of a channel {shown(text, 300)}: {error}; {right}") from None
        return cls(address, unquote(process), unquote(channel))

    def __str__(self) -> str:
        return f"{self.address}/{quote(self.process, safe='')}/{quote(self.channel, safe='@')}"


def packed_morph(morph: Morph) -> list[str]:
    """A morph as plain data."""
    return [_text(morph.new), _text(morph.old), morph.code]


def morph_from(data: Any) -> Morph:
    """The morph that data from outside are, compiled once to see whether it can be.

    Raises:
        LinkError: they are not a morph.
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


def _text(schema: Schema) -> str:
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
