"""What may be written for a field's type, and the field type it means."""

from __future__ import annotations

import keyword
import re
import types as _types
import unicodedata
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Union, get_args, get_origin, runtime_checkable

from evflow.errors import SchemaError
from evflow.outside import shown
from evflow.schema.logical import logical_of, parse_logical, spellings
from evflow.schema.types import (
    BLOB,
    NUMBERS,
    TEXT,
    Array,
    Bytes,
    FieldType,
    ListOf,
    Maybe,
    Record,
    Str,
    boolean,
    f64,
    i64,
)
from evflow.schema.values import describe

if TYPE_CHECKING:
    from evflow.schema.schema import Schema

FieldSpec = Any
"""What may be written for a field's type: a type of ``evflow.schema.types``, ``int``, ``float``, ``bool``,
``str``, ``bytes``, an ``Event`` class or ``Schema``, ``list[X]``, ``X | None``, ``Annotated[…, X]``, the
name of an enclosing record, or a type's canonical text such as ``"i64"``."""

_MAX_NESTING = 64
_MAX_NAME = 255
_MAX_TEXT = 2_000
_PYTHON_TYPES: dict[object, FieldType] = {int: i64, float: f64, bool: boolean, str: TEXT, bytes: BLOB}
_WORDS: dict[str, FieldType] = {**NUMBERS, "str": TEXT, "bytes": BLOB, "int": i64, "float": f64}
_UNSIZED: dict[type, str] = {
    Str: "ev.Str[8]",
    Bytes: "ev.Bytes[8]",
    Array: "ev.Array[ev.f64, 3]",
    list: "list[int]",
}
_RESERVED = frozenset({"attrs", "schema", "to_dict", "to_event"})
_SIZED = re.compile(r"(str|bytes)\[([0-9]{1,6})\]", re.ASCII)
_COMPOUND = re.compile(r"(list|optional|record|array)\((.*)\)", re.DOTALL)
_DIMENSION = re.compile(r"\?|[0-9]{1,11}", re.ASCII)


class Scope:
    """The records that can be named while schemas that may hold each other are made.

    Attributes:
        records: those that are made.
        pending: those whose fields are being resolved, by name, and for whom.
    """

    def __init__(self) -> None:
        self.records: dict[str, Schema] = {}
        self.pending: dict[str, object] = {}

    def knows(self, name: str) -> bool:
        """Whether a record of this name may be referred to."""
        return name in self.records or name in self.pending


@runtime_checkable
class _Nested(Protocol):
    """What can stand for a record in an annotation: a schema, an event class."""

    def as_record(self, where: str, scope: Scope) -> Record: ...


def field_type(spec: FieldSpec, where: str, scope: Scope) -> FieldType:
    """The field type that a user's annotation means.

    Args:
        spec: the annotation; see ``FieldSpec``.
        where: names the field in an error.
        scope: records that may be referred to by name; a record met here is added.

    Raises:
        SchemaError: the annotation stands for no field type.
    """
    if isinstance(spec, FieldType):
        return spec
    spec = getattr(spec, "__forward_arg__", spec)
    if isinstance(spec, str):
        return parse_type(spec, where, scope)
    if isinstance(spec, type) and spec in _PYTHON_TYPES:
        return _PYTHON_TYPES[spec]
    if isinstance(spec, _Nested):
        return spec.as_record(where, scope)
    origin: Any = get_origin(spec)
    parts = get_args(spec)
    if origin is Annotated:
        meant = [part for part in parts[1:] if isinstance(part, FieldType)]
        number = next((part for part in parts[1:] if isinstance(part, int)), None)
        if number is not None and not meant and parts[0] in (str, bytes):
            sized = f"ev.{parts[0].__name__.capitalize()}[{number}]"
            raise SchemaError(
                f"{where}: {shown(spec)} does not say what {number} is; for a capacity write {sized}"
            )
        return meant[0] if meant else field_type(parts[0], where, scope)
    if origin is list and len(parts) == 1:
        return ListOf(field_type(parts[0], where, scope))
    if origin in (Union, _types.UnionType) and len(parts) == 2 and type(None) in parts:
        return _maybe(field_type(parts[parts[0] is type(None)], where, scope), where)
    logical = logical_of(spec) if isinstance(spec, type) else None
    written = _UNSIZED.get(spec) if isinstance(spec, type) else None
    written = written if logical is None else logical.spelling
    hint = f"; write {written}" if written else ""
    raise SchemaError(
        f"{where}: {shown(spec)} is not a field type; expected int, float, bool, str, bytes, one of "
        f"ev.i8 … ev.f64, ev.Str[n], ev.Bytes[n], ev.Array[element, …], {', '.join(spellings())}, "
        f"an Event class, list[…] or … | None{hint}"
    )


def parse_type(text: str, where: str, scope: Scope, depth: int = 0) -> FieldType:
    """The field type that a canonical text, or the name of a record, means.

    Raises:
        SchemaError: the text means none.
    """
    if depth > _MAX_NESTING or len(text) > _MAX_TEXT:
        raise SchemaError(
            f"{where}: type nested deeper than {_MAX_NESTING} or longer than {_MAX_TEXT} letters"
        )
    if text in _WORDS:
        return _WORDS[text]
    if sized := _SIZED.fullmatch(text):
        kind, n = sized.groups()
        return Str(int(n)) if kind == "str" else Bytes(int(n))
    if (logical := parse_logical(text)) is not None:
        return logical
    if compound := _COMPOUND.fullmatch(text):
        kind, inner = compound.groups()
        if kind == "array":
            return _parse_array(inner, text, where)
        if kind != "record":
            part = parse_type(inner, where, scope, depth + 1)
            return ListOf(part) if kind == "list" else _maybe(part, where)
        text = inner
    if scope.knows(text):
        return Record(text, scope.records)
    raise SchemaError(
        f"{where}: type {shown(text)} is not known; expected a type such as 'i64', or the name of this "
        "record or of one that an earlier field holds"
    )


def _parse_array(inner: str, text: str, where: str) -> FieldType:
    element, *shape = inner.split(",")
    if element not in NUMBERS or not all(_DIMENSION.fullmatch(n) for n in shape):
        raise SchemaError(f"{where}: type {shown(text)} cannot be read; expected such as 'array(f64,253,?)'")
    return Array(NUMBERS[element], tuple(None if n == "?" else int(n) for n in shape))


def _maybe(inner: FieldType, where: str) -> FieldType:
    if isinstance(inner, Maybe):
        raise SchemaError(f"{where}: an optional of an optional cannot be told from an optional")
    return Maybe(inner)


def check_name(name: object) -> str:
    """The name of a schema, if it may be one.

    Raises:
        SchemaError: it is not a word.
    """
    if not _is_word(name):
        raise SchemaError(f"schema name {describe(name)}: expected a word of letters, digits and '_'")
    return str(name)


def check_field_name(name: object, schema: str) -> None:
    """Refuses what cannot be the name of a field.

    Raises:
        SchemaError: it is not a word, starts with '_', or is taken.
    """
    if not _is_word(name) or str(name).startswith("_"):
        raise SchemaError(
            f"schema {schema}: field name {shown(name)}: expected a word that does not start with '_'"
        )
    if keyword.iskeyword(str(name)):
        raise SchemaError(f"schema {schema}: field name {shown(name)} is a keyword of Python; choose another")
    if name in _RESERVED:
        raise SchemaError(
            f"schema {schema}: field name {shown(name)} is taken by every event; choose another"
        )


def _is_word(name: object) -> bool:
    # Python reads identifiers in normal form, so that any other spelling could not be read back.
    return (
        isinstance(name, str)
        and len(name) <= _MAX_NAME
        and name.isidentifier()
        and unicodedata.normalize("NFKC", name) == name
    )
