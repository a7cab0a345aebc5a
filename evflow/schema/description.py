"""A schema as plain data: the description that travels, and the fingerprint made of it.

``{"name": …, "fields": [[name, type, default?], …], "records": {name: [[…], …], …}, "origin": …}``: types in
their canonical text, ``records`` only where the schema holds any besides itself, ``origin`` only where it has
one. A default is JSON's null, true, false, integer, string or [], and ``{"f64": "<16 hex digits>"}`` for a
float (its bits, since every language prints floats in its own way), ``{"hex": …}`` for bytes, or ``{"stored":
…}`` for what a value of a logical type is kept as: an integer or bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from evflow.errors import SchemaError
from evflow.outside import shown
from evflow.schema.specs import check_name
from evflow.schema.types import FieldType, ListOf, Maybe, Record
from evflow.schema.values import describe as show

if TYPE_CHECKING:
    from evflow.schema.schema import Schema

_MAX_RECORDS = 1_000
_F64 = struct.Struct(">d")


@dataclass(frozen=True, slots=True)
class StoredDefault:
    """The default of a field of a logical type, as it is kept."""

    value: Any


class Row(NamedTuple):
    """One field of a description; ``default`` is a tuple of no or one value."""

    name: str
    type: str
    default: tuple[Any, ...]


def describe(schema: Schema) -> dict[str, Any]:
    """The description of a schema."""
    records = held_records(schema)
    records.pop(schema.name, None)
    described: dict[str, Any] = {"name": schema.name, "fields": _describe_fields(schema)}
    if records:
        described["records"] = {name: _describe_fields(records[name]) for name in sorted(records)}
    if schema.origin:
        described["origin"] = schema.origin
    return described


def fingerprint(description: Mapping[str, Any]) -> str:
    """128-bit BLAKE2b, in hexadecimal, of the description as JSON: keys sorted, no spaces, UTF-8."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read(description: object) -> tuple[str, dict[str, list[Row]], str]:
    """The name of the schema that a description from outside is of, the rows of it and of its records, and
    its origin.

    Raises:
        SchemaError: the description is malformed.
    """
    if not isinstance(description, Mapping) or not isinstance(description.get("fields"), list):
        raise SchemaError(
            f"schema description: expected an object with 'name' and 'fields', found {show(description)}"
        )
    name = check_name(description.get("name"))
    records = description.get("records", {})
    if not isinstance(records, Mapping) or len(records) > _MAX_RECORDS:
        raise SchemaError(
            f"schema description: 'records': expected an object of at most {_MAX_RECORDS} records"
        )
    if name in records:
        raise SchemaError(f"schema description: record {name} is the schema itself")
    named = {check_name(key): _read_rows(key, rows) for key, rows in records.items()}
    origin = description.get("origin", "")
    if not isinstance(origin, str):
        raise SchemaError(f"schema description: 'origin': expected a text, found {show(origin)}")
    return name, {**named, name: _read_rows(name, description["fields"])}, origin


def held_record(kind: FieldType) -> tuple[Record | None, bool]:
    """The record that a type holds, if it does, and whether every value of the type has one."""
    direct = True
    while isinstance(kind, (ListOf, Maybe)):
        kind, direct = kind.element, False
    return (kind, direct) if isinstance(kind, Record) else (None, False)


def held_records(schema: Schema) -> dict[str, Schema]:
    """Every record that a schema holds, at any depth, by name; itself too if it holds itself.

    Raises:
        SchemaError: two different ones have one name, or there are too many.
    """
    found: dict[str, Schema] = {}
    waiting = [schema]
    while waiting:
        for field in waiting.pop().fields:
            record, _ = held_record(field.type)
            if record is None:
                continue
            inner = record.schema
            known = schema if inner.name == schema.name else found.get(inner.name)
            if known is not None and known is not inner and not _alike(known, inner):
                raise SchemaError(
                    f"schema {schema.name}: two different records are named {inner.name}; rename one"
                )
            if inner.name not in found:
                found[inner.name] = inner
                waiting.append(inner)
        if len(found) > _MAX_RECORDS:
            raise SchemaError(f"schema {schema.name}: expected at most {_MAX_RECORDS} records within it")
    return found


def _alike(one: Schema, other: Schema) -> bool:
    # Of records within records only the names are compared here; they are themselves compared by name.
    return _describe_fields(one) == _describe_fields(other)


def _describe_fields(schema: Schema) -> list[list[Any]]:
    return [
        [f.name, f.type.text, *([] if f.required else [_write_default(f.default, f.stored_default)])]
        for f in schema.fields
    ]


def _write_default(value: Any, stored: Any) -> Any:
    if stored is not value:
        return {"stored": _write_default(stored, stored)}
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, float):
        return {"f64": _F64.pack(value if value == value else math.nan).hex()}
    return value


def _read_rows(record: str, rows: object) -> list[Row]:
    if not isinstance(rows, list):
        raise SchemaError(
            f"schema description: record {shown(record)}: expected a list of fields, found {show(rows)}"
        )
    read: dict[str, Row] = {}
    for row in rows:
        match row:
            case [str(name), str(text), *default] if len(default) <= 1:
                if name in read:
                    raise SchemaError(
                        f"schema description: record {record}: field {shown(name)} stands there twice"
                    )
                read[name] = Row(name, text, tuple(_read_default(value) for value in default))
            case _:
                raise SchemaError(
                    f"schema description: record {record}: expected [name, type] or [name, type, default], "
                    f"found {show(row)}"
                )
    return list(read.values())


def _read_default(value: Any) -> Any:
    try:
        match value:
            case {"stored": (int() | {"hex": str()}) as inner, **rest} if not rest:
                return StoredDefault(_read_default(inner))
            case {"hex": str(text), **rest} if not rest:
                return bytes.fromhex(text)
            case {"f64": str(text), **rest} if not rest:
                return _F64.unpack(bytes.fromhex(text))[0]
    except (ValueError, struct.error):
        raise SchemaError(f"schema description: default {show(value)} cannot be read") from None
    return value
