"""Schemas: the named, ordered, typed fields of an event, and where each field stands on the wire."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from evflow.errors import SchemaError
from evflow.schema.description import (
    Row,
    StoredDefault,
    describe,
    fingerprint,
    held_record,
    held_records,
    read,
)
from evflow.schema.program import cell
from evflow.schema.specs import FieldSpec, Scope, check_field_name, check_name, field_type
from evflow.schema.types import (
    MAX_WIDTH,
    Bytes,
    FieldType,
    ListOf,
    Logical,
    Maybe,
    Record,
)
from evflow.schema.values import Misfit, to_scalar
from evflow.schema.values import describe as show

MAX_FIELDS = 65_535
"""The greatest number of fields of a schema, those of nested records of fixed width included."""

_MAX_NESTING = 64


class _Required:
    """The default of a field that has none."""

    def __repr__(self) -> str:
        return "required"

    def __reduce__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""Stands as the default of a field that has none."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a schema.

    Attributes:
        name: the field's name.
        type: its type.
        index: position in declared order.
        wire_index: position in the msgpack array: fields of fixed width first.
        offset: bytes from the start of the event to the field's first byte, marker included;
            None for a field of variable width.
        default: the value that stands in where an event lacks the field, or ``REQUIRED``.
    """

    name: str
    type: FieldType
    index: int
    wire_index: int
    offset: int | None
    default: Any = REQUIRED

    @property
    def required(self) -> bool:
        """Whether the field has no default."""
        return self.default is REQUIRED

    @property
    def stored_default(self) -> Any:
        """The default as it is kept: of a logical type not the value, but the number or bytes."""
        held = self.type.held
        if not isinstance(held, Logical) or self.default is REQUIRED or self.default is None:
            return self.default
        return held.store(self.default)


class Schema:
    """The named, ordered and typed fields of an event.

    Calling a schema makes an event of it: ``trade(price=80.0, size=5)``.

    Args:
        name: the schema's name, a word.
        fields: name → type, in order; see ``FieldSpec``.
        defaults: name → value for fields that may be missing.
        origin: what fields were before they became events, where their types do not tell, as who made the
            schema writes it: types of columns of a DataFrame. Schemas of different origins are different.

    Attributes:
        name: the schema's name.
        origin: see above; "" for none.
        fields: the fields in declared order.
        wire_fields: the fields in wire order: those of fixed width, then the others.
        header: the bytes of the msgpack array header that every event starts with.
        fixed_width: bytes of the header and all fields of fixed width.
        width: bytes of an event, or None if it has fields of variable width.
        leaves: values in the fixed part, those of nested records included.
        made: what other modules made of this schema once (encoder, view class, …), by their own keys.

    Raises:
        SchemaError: a name or a type is not allowed; the message names the field.

    Example:
        >>> from evflow import Schema, f64
        >>> trade = Schema("trade", {"price": f64, "size": int})
        >>> trade.width
        19
    """

    def __init__(
        self,
        name: str,
        fields: Mapping[str, FieldSpec],
        defaults: Mapping[str, Any] | None = None,
        *,
        origin: str = "",
        _scope: Scope | None = None,
    ) -> None:
        scope = Scope() if _scope is None else _scope
        self.name = check_name(name)
        if not isinstance(origin, str):
            raise SchemaError(f"schema {name}: expected origin as a text, found {show(origin)}")
        self.origin = origin
        for what, given in (("fields", fields), ("defaults", defaults or {})):
            if not isinstance(given, Mapping):
                raise SchemaError(f"schema {name}: expected {what} as a mapping by name, found {show(given)}")
        self.made: dict[Any, Any] = {}
        for key in fields:
            check_field_name(key, name)
        scope.pending.setdefault(name, self)
        self._lay_out(
            {key: field_type(spec, f"{name}.{key}", scope) for key, spec in fields.items()}, defaults or {}
        )
        del scope.pending[name]
        scope.records[name] = self
        if not scope.pending:
            _check_records(self)

    def _lay_out(self, types: Mapping[str, FieldType], defaults: Mapping[str, Any]) -> None:
        fixed = [key for key, kind in types.items() if kind.width is not None]
        wire_order = fixed + [key for key, kind in types.items() if kind.width is None]
        wire_index = {key: i for i, key in enumerate(wire_order)}
        self.header = _array_header(self.name, len(types))
        offsets: dict[str, int] = {}
        at = len(self.header)
        self.leaves = 0
        for key in fixed:
            kind = types[key]
            offsets[key] = at
            at += kind.width or 0
            self.leaves += kind.schema.leaves if isinstance(kind, Record) else 1
        if at > MAX_WIDTH or self.leaves > MAX_FIELDS:
            raise SchemaError(
                f"schema {self.name}: fixed part of {at} bytes and {self.leaves} values: "
                f"expected at most {MAX_WIDTH} bytes and {MAX_FIELDS} values"
            )
        self.fixed_width = at
        self.width = at if len(fixed) == len(types) else None
        for key in defaults:
            if key not in types:
                raise SchemaError(f"schema {self.name}: default for {key!r}, which is not a field")
        self.fields = tuple(
            Field(key, kind, i, wire_index[key], offsets.get(key), _default(self.name, key, kind, defaults))
            for i, (key, kind) in enumerate(types.items())
        )
        self.wire_fields = tuple(sorted(self.fields, key=lambda f: f.wire_index))
        self._by_name = {f.name: f for f in self.fields}

    def __getitem__(self, name: str) -> Field:
        try:
            return self._by_name[name]
        except KeyError:
            raise SchemaError(
                f"schema {self.name} has no field {name!r}; its fields are {', '.join(self._by_name)}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Schema) and self.fingerprint == other.fingerprint)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Schema({self.name}: {', '.join(f'{f.name} {f.type.text}' for f in self.fields)})"

    def __reduce__(self) -> Any:
        return Schema.from_description, (self.description,)

    def __call__(self, /, **fields: Any) -> Any:
        """An event of this schema: an object with the fields as attributes."""
        return self.event(**fields)

    def event(self, /, **fields: Any) -> Any:
        """An event of this schema: an object with the fields as attributes.

        Args:
            fields: field name → value; fields left out take their defaults.

        Raises:
            SchemaError: a field without default is missing, or a name is not a field.
        """
        # An event knows its schema; a schema finds events only when it is asked for one.
        return importlib.import_module("evflow.events.event").make_event(self, fields)

    def as_record(self, where: str, scope: Scope) -> Record:
        """This schema as the type of a field of another, whose later fields may refer to it by name.

        Args:
            where: the field, for messages.
            scope: the records that the other schema knows by name.
        """
        scope.records.setdefault(self.name, self)
        return Record(self.name, {self.name: self})

    @cached_property
    def recursive(self) -> bool:
        """Whether events can hold records within themselves without limit."""
        return bool(_find_cycle(self, (), set(), direct_only=False))

    @cached_property
    def description(self) -> dict[str, Any]:
        """The schema as plain data (JSON), as a bridge sends it; ``from_description`` reads it."""
        return describe(self)

    @cached_property
    def fingerprint(self) -> str:
        """128-bit BLAKE2b, in hexadecimal, of the description as canonical JSON."""
        return fingerprint(self.description)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The fixed part as a numpy structured type: each value at its offset, markers as padding.

        Numbers are big-endian; ``bool`` is its marker byte (0xc3 for True); ``Str`` is ``S``; ``Bytes`` is
        its padded bytes (``S``) with a field ``name + "#"`` for the length; times are ``>M8[ns]`` and
        ``>m8[ns]``, other logical types what they are kept as; static arrays are little-endian with their
        shape; nested records are structured types themselves.
        """
        members = [m for f in self.fields if f.offset is not None for m in _members(f.name, f.type, f.offset)]
        names, formats, offsets = map(list, zip(*members, strict=True)) if members else ([], [], [])
        return np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": self.fixed_width}
        )

    @classmethod
    def of(cls, spec: Any) -> Schema:
        """The schema that something has or is.

        Args:
            spec: a schema, an event or an ``Event`` class.

        Raises:
            SchemaError: ``spec`` is none of them.
        """
        found = spec if isinstance(spec, Schema) else getattr(spec, "schema", None)
        if not isinstance(found, Schema):
            raise SchemaError(f"expected a Schema, an Event class or an event, found {show(spec)}")
        return found

    @classmethod
    def from_description(cls, description: object) -> Schema:
        """The schema that a description from outside stands for.

        Args:
            description: plain data, as ``Schema.description`` gives it.

        Raises:
            SchemaError: the description is malformed.
        """
        name, records, origin = read(description)
        return _build(name, records, Scope(), origin)


_REFERENCE = re.compile(r"record\(([^()]*)\)")


def _build(name: str, records: Mapping[str, list[Row]], scope: Scope, origin: str = "") -> Schema:
    """The schema of one record of a description, those that it holds first."""
    if len(scope.pending) > _MAX_NESTING:
        raise SchemaError(f"schema description: records nested deeper than {_MAX_NESTING}")
    rows = records[name]
    scope.pending[name] = rows
    for row in rows:
        for part in _REFERENCE.findall(row.type):
            if part in records and not scope.knows(part):
                _build(part, records, scope)
    return Schema(
        name,
        {row.name: row.type for row in rows},
        {row.name: row.default[0] for row in rows if row.default},
        origin=origin,
        _scope=scope,
    )


def _array_header(schema: str, n: int) -> bytes:
    if not 1 <= n <= MAX_FIELDS:
        raise SchemaError(f"schema {schema}: {n} fields: expected 1 to {MAX_FIELDS}")
    return bytes([0x90 | n]) if n < 16 else b"\xdc" + n.to_bytes(2, "big")


def _members(name: str, kind: FieldType, at: int) -> Iterator[tuple[str, Any, int]]:
    """The members of the structured type that hold a field: name, format, offset."""
    behind, dtype = cell(kind)
    if isinstance(kind, Logical) and kind.plain:
        dtype = kind.load_column(np.empty(0, dtype)).dtype
    yield name, dtype, at + behind
    if isinstance(kind, Bytes):
        yield name + "#", "<u2", at + behind - 2


def _default(schema: str, name: str, kind: FieldType, defaults: Mapping[str, Any]) -> Any:
    value = defaults.get(name, REQUIRED)
    if value is REQUIRED or (value is None and isinstance(kind, Maybe)):
        return value
    if isinstance(value, list) and not value and isinstance(kind, ListOf):
        return []
    held = kind.held
    try:
        if isinstance(value, StoredDefault) and isinstance(held, Logical):
            return to_scalar(held, held.load(to_scalar(held.stored, value.value)))
        return to_scalar(held, value)
    except Misfit:
        raise SchemaError(
            f"schema {schema}: default of field {name}: {show(value)} does not fit {kind.text}; "
            "expected a number, text, bytes, None or [] that does"
        ) from None


def _check_records(schema: Schema) -> None:
    """Refuses a record that always holds itself, two records of one name, and records nested too deeply."""
    held_records(schema)
    _find_cycle(schema, (), set(), direct_only=False)
    if cycle := _find_cycle(schema, (), set(), direct_only=True):
        raise SchemaError(
            f"schema {schema.name} always holds itself ({' → '.join(cycle)}); "
            "make one of these fields a list or optional"
        )


def _find_cycle(
    schema: Schema, path: tuple[str, ...], done: set[str], *, direct_only: bool
) -> tuple[str, ...]:
    """The names of records that hold each other in a circle; empty if there are none."""
    if schema.name in path:
        return (*path[path.index(schema.name) :], schema.name)
    if len(path) > _MAX_NESTING:
        raise SchemaError(f"schema {path[0]}: records nested deeper than {_MAX_NESTING}")
    if schema.name not in done:
        done.add(schema.name)
        for field in schema.fields:
            record, direct = held_record(field.type)
            if record is None or (direct_only and not direct):
                continue
            if cycle := _find_cycle(record.schema, (*path, schema.name), done, direct_only=direct_only):
                return cycle
    return ()
