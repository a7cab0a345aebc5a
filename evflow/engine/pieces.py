"""The pieces that a snapshot is made of, written and read: events, statics, counts, attributes.

Written are four bytes of length (big-endian), a msgpack map of that length, and behind it the bytes of all
events, which are megabytes: so they are not copied, neither when they are written nor when they are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar

import msgpack
import numpy as np

from evflow.errors import FlowError, SchemaError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.outside import Malformed, from_msgpack, shown
from evflow.schema import Schema
from evflow.stone import Held

__all__ = ["PieceReader", "PieceWriter", "are_numbers", "sound"]

_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_Piece = tuple[str, EventBatch, _Numbers | None]

T = TypeVar("T")

_LENGTH = 4

_END = 1 << 62
"""Numbers, counts and positions are below this."""


def are_numbers(found: object, count: int) -> bool:
    """Whether something is the ``numbers`` of ``count`` held events: int64 that increase from 0 or more."""
    if not isinstance(found, np.ndarray) or found.dtype != np.int64 or found.shape != (count,):
        return False
    return not count or (found[0] >= 0 and found[-1] < _END and bool((found[1:] > found[:-1]).all()))


def sound(attributes: Mapping[str, object]) -> dict[str, int | float | str]:
    """Of what anyone has set as attributes of a stone that which are attributes."""
    kept: dict[str, int | float | str] = {}
    for name, value in attributes.items():
        plain: Any = value.item() if isinstance(value, np.generic) else value
        if isinstance(name, str) and _is_attribute(name) and _is_attribute(plain):
            kept[name] = plain
    return kept


def _is_attribute(value: object) -> bool:
    if isinstance(value, str):
        return _is_utf8(value)
    return isinstance(value, float) or (isinstance(value, int) and -(1 << 63) <= value < 1 << 63)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class PieceWriter:
    """Writes a snapshot.

    Attributes:
        descriptions: of the schemas of the events written so far; events name theirs by its place.
    """

    def __init__(self) -> None:
        self.descriptions: list[dict[str, Any]] = []
        self._places: dict[str, int] = {}
        self._events: list[memoryview] = []
        self._size = 0

    def parts(self, content: dict[str, Any]) -> list[bytes | memoryview]:
        """A snapshot of a map that msgpack takes, and of the events that were written; it lies in parts."""
        told = msgpack.packb(content)
        return [len(told).to_bytes(_LENGTH, "big"), told, *self._events]

    def events(self, pieces: Iterable[_Piece]) -> list[list[Any]]:
        """Events as rows ``[input, schema, count, start, length, attributes, numbers]`` of the map."""
        return [self._row(input, batch.compact(), numbers) for input, batch, numbers in pieces if len(batch)]

    def _row(self, input: str, batch: EventBatch, numbers: _Numbers | None) -> list[Any]:
        attributes = None if batch.attributes is None else batch.attributes.to_lists()
        told = None if numbers is None else numbers.astype("<i8", copy=False).data
        start, data = self._size, batch.data.data
        self._events.append(data)
        self._size += len(data)
        return [input, self._place(batch.schema), len(batch), start, len(data), attributes, told]

    def _place(self, schema: Schema) -> int:
        place = self._places.get(schema.fingerprint)
        if place is None:
            place = self._places[schema.fingerprint] = len(self.descriptions)
            self.descriptions.append(schema.description)
        return place


class PieceReader:
    """Reads what may be malformed.

    Args:
        what: what it is, for errors.
        data: what ``PieceWriter.parts`` gave, joined.
        version: what stands as its "version".

    Raises:
        FlowError: it is none of that version; each method raises it too, for what it reads.
    """

    def __init__(self, what: str, data: bytes | memoryview, version: int) -> None:
        self._what = what
        whole = memoryview(data).toreadonly()
        start = _LENGTH + int.from_bytes(whole[:_LENGTH], "big")
        try:
            content = from_msgpack(whole[_LENGTH:start])
        except Malformed as error:
            raise FlowError(f"{what}: {error}") from None
        if not isinstance(content, dict) or content.get("version") != version:
            raise FlowError(f"{what}: expected a map of version {version}")
        self._content: dict[Any, Any] = content
        self._events = whole[start:]
        self._schemas: list[Schema] | None = None

    def has(self, key: str) -> bool:
        """Whether there is a value other than None."""
        return self._content.get(key) is not None

    def value(self, key: str, kind: type[T]) -> T:
        """A value of a type."""
        value = self._content.get(key)
        if type(value) is not kind:
            self._refuse(key, kind.__name__, value)
        return value

    def integer(self, key: str) -> int:
        """A number from 0 on."""
        value = self.value(key, int)
        if not 0 <= value < _END:
            self._refuse(key, "a number from 0 on", value)
        return value

    def seconds(self, key: str) -> float:
        """Seconds from 0 on."""
        value = self.value(key, float)
        if not 0 <= value < math.inf:
            self._refuse(key, "seconds", value)
        return value

    def counts(self) -> list[int]:
        """Events in, out, dropped and given up."""
        counts = self.value("counts", list)
        if len(counts) != 4 or not all(type(n) is int and 0 <= n < _END for n in counts):
            self._refuse("counts", "four numbers from 0 on", counts)
        return counts

    def state(self) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
        """The statics of a function."""
        return np.frombuffer(self.value("state", bytes), np.uint8) if self.has("state") else None

    def attributes(self) -> dict[str, int | float | str]:
        """The attributes of a stone."""
        attributes = self.value("attributes", dict)
        found = sound(attributes)
        if len(found) != len(attributes):
            self._refuse("attributes", "integers, floats and texts by name", attributes)
        return found

    def events(self, key: str) -> list[Held]:
        """Rows that ``PieceWriter.events`` made."""
        rows = self.value(key, list)
        try:
            return [self._held(key, row) for row in rows]
        except SchemaError as error:
            raise FlowError(f"{self._what}: {key}: {error}") from None

    def _held(self, key: str, row: object) -> Held:
        match row:
            case [str(input), int(place), int(count), int(start), int(length), attributes, numbers]:
                schemas = self._known_schemas()
                if not 0 <= place < len(schemas) or not 0 < count < _END:
                    self._refuse(key, "the place of a schema and a count of events", [place, count])
                if start < 0 or length < 0 or start + length > len(self._events):
                    self._refuse(key, f"a part of {len(self._events)} bytes", [start, length])
                batch = EventBatch.from_bytes(schemas[place], self._events[start : start + length], count)
                if attributes is not None:
                    batch = batch.with_attributes(self._columns(key, attributes, count))
                return Held(input, batch, self._numbers(key, numbers, count))
        self._refuse(key, "[input, schema, count, start, length, attributes, numbers]", row)

    def _known_schemas(self) -> list[Schema]:
        if self._schemas is None:
            self._schemas = [Schema.from_description(d) for d in self.value("schemas", list)]
        return self._schemas

    def _columns(self, key: str, attributes: object, count: int) -> Attributes:
        if not isinstance(attributes, dict):
            self._refuse(key, "attributes, lists by name", attributes)
        for name, values in attributes.items():
            if type(name) is not str or type(values) is not list or len(values) != count:
                self._refuse(key, f"attributes, lists of {count} values by name", {name: values})
        return Attributes.from_lists(attributes)

    def _numbers(self, key: str, data: object, count: int) -> _Numbers | None:
        if data is None:
            return None
        if type(data) is not bytes or len(data) != 8 * count:
            self._refuse(key, f"{8 * count} bytes of numbers", data)
        numbers = np.frombuffer(data, "<i8").astype(np.int64, copy=False)
        if not are_numbers(numbers, count):
            self._refuse(key, "numbers that increase", numbers[:8].tolist())
        return numbers

    def _refuse(self, key: str, expected: str, found: object) -> NoReturn:
        raise FlowError(f"{self._what}: {key}: expected {expected}, found {shown(found)}")
