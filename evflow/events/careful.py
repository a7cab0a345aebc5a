"""The encoder that takes everything allowed and otherwise says exactly what is wrong.

It walks the schema with a stack of its own instead of recursion, so that the depth of an event is limited by
``MAX_DEPTH`` and not by the stack that Python happens to have left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evflow.errors import SchemaError
from evflow.events.numeric import AnyArray, array_of, convert_array
from evflow.schema import REQUIRED, Field, Schema, array_dtype
from evflow.schema.program import NIL, array_head, length_head, packed
from evflow.schema.types import (
    MAX_DEPTH,
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
from evflow.schema.values import Misfit, relaxed, to_bytes, to_number, to_text

_MAX_LENGTH = (1 << 32) - 1
_MAX_SHOWN = 16
_MISSING = object()

# A path to a value is (path of what holds it, name or position); None is the event itself.
_Path = tuple[Any, str | int] | None
_Job = tuple[FieldType, Any, _Path, int]


def encode_careful(schema: Schema, event: object, *, converting: bool = False) -> bytes:
    """One event from an object with the schema's fields as attributes, or from a mapping.

    Args:
        schema: the schema to encode for.
        event: the event.
        converting: takes integral floats for integers, and 0 and 1 for booleans.

    Raises:
        SchemaError: a field is missing or its value does not fit.
    """
    walk = _Walk(Record(schema.name, {schema.name: schema}), event, converting)
    return walk.encode(f"schema {schema.name}: ")


def encode_value(kind: FieldType, value: object) -> bytes:
    """One value of any type in wire form.

    Raises:
        SchemaError: it does not fit.
    """
    return _Walk(kind, value, False).encode("")


class _Walk:
    """The encoding of one value: what is written, and a stack of what is still to be, the next one last."""

    def __init__(self, kind: FieldType, value: object, converting: bool) -> None:
        self._out: list[Any] = []
        self._stack: list[_Job] = [(kind, value, None, 0)]
        self._converting = converting

    def encode(self, place: str) -> bytes:
        path: _Path = None
        try:
            while self._stack:
                kind, value, path, depth = self._stack.pop()
                self._encode(kind, value, path, depth)
        except Misfit as error:
            raise SchemaError(f"{place}{_place(path)}{error}") from None
        return b"".join(self._out)

    def _encode(self, kind: FieldType, value: Any, path: _Path, depth: int) -> None:
        if isinstance(kind, Record):
            if isinstance(value, type) and isinstance(getattr(value, "schema", None), Schema):
                raise Misfit(f"an event, made with {value.__name__}(…)", value)
            if depth >= MAX_DEPTH:
                raise Misfit(f"at most {MAX_DEPTH} records within each other", value)
            schema = kind.schema
            self._out.append(schema.header)
            jobs = [
                (f.type, _member(schema, f, value), (path, f.name), depth + 1) for f in schema.wire_fields
            ]
            self._stack.extend(reversed(jobs))
        elif isinstance(kind, Maybe):
            held = kind.element
            if value is None or (isinstance(held, Logical) and held.is_missing(value)):
                self._out.append(bytes([NIL]))
            else:
                self._stack.append((held, value, path, depth))
        elif isinstance(kind, ListOf):
            items = _items(kind, value)
            self._out.append(length_head(kind, len(items)))
            self._stack.extend(
                (kind.element, items[i], (path, i), depth) for i in range(len(items) - 1, -1, -1)
            )
        elif isinstance(kind, Array):
            elements = array_elements(kind, value)
            self._out += (array_head(kind, elements.shape), elements.data)
        else:
            if self._converting and isinstance(kind, Number):
                value = relaxed(kind, value)
            self._out.append(encode_scalar(kind, value))


def _place(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    if len(steps) > _MAX_SHOWN:
        steps[_MAX_SHOWN // 2 : -_MAX_SHOWN // 2] = [" … "]
    return f"field {''.join(reversed(steps)).removeprefix('.')}: " if steps else ""


def _items(kind: ListOf, value: Any) -> Sequence[Any]:
    if isinstance(value, np.ndarray) and value.ndim:
        value = list(value)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview)):
        raise Misfit(f"a list ({kind.text})", value)
    if len(value) > _MAX_LENGTH:
        raise Misfit(f"a list of at most {_MAX_LENGTH} elements", len(value))
    return value


def _member(schema: Schema, field: Field, value: Any) -> Any:
    if isinstance(value, Mapping):
        found = value.get(field.name, _MISSING)
    elif isinstance(value, np.void) and value.dtype.names is not None:
        found = value[field.name] if field.name in value.dtype.names else _MISSING
    else:
        found = getattr(value, field.name, _MISSING)
    if found is not _MISSING:
        return found
    if field.default is not REQUIRED:
        return field.default
    names = ", ".join(f.name for f in schema.fields)
    raise Misfit(f"a {schema.name} with field {field.name}, which has no default (fields: {names})", value)


def encode_scalar(kind: FieldType, value: Any) -> bytes:
    """A number, text or bytes in wire form.

    Raises:
        Misfit: the value does not fit.
    """
    if isinstance(kind, Logical):
        value = kind.store(value)
    if isinstance(kind, Number):
        return packed(kind, to_number(kind, value))
    if isinstance(kind, (Str, Text)):
        return packed(kind, to_text(kind, value))
    if isinstance(kind, (Bytes, Blob)):
        return packed(kind, to_bytes(kind, value))
    raise Misfit(f"no value of type {kind!r}", value)


def array_elements(kind: Array, value: Any) -> AnyArray:
    """A value as the elements of an array: little-endian, C-contiguous, of the type and shape of ``kind``.

    Raises:
        Misfit: it is not an array of numbers, has another shape, or an element does not fit.
    """
    array = value if isinstance(value, np.ndarray) else _from_sequence(kind, value)
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise Misfit(f"an array of which nothing is masked ({kind.text})", array)
    array = np.asarray(array)
    if not array.size and array.ndim < len(kind.shape):
        # A list without elements does not say what dimensions they would have.
        array = array.reshape(*array.shape, *(n or 0 for n in kind.shape[array.ndim :]))
    if not kind.takes(array.shape):
        wanted = " × ".join("any" if n is None else str(n) for n in kind.shape)
        raise Misfit(f"an array of {wanted} elements ({kind.text})", array.shape)
    if kind.data_offset - Array.HEAD + kind.item_size * array.size > _MAX_LENGTH:
        raise Misfit(f"an array of at most {_MAX_LENGTH} bytes", array.shape)
    if max(array.shape, default=0) > _MAX_LENGTH:
        raise Misfit(f"an array of at most {_MAX_LENGTH} elements along a dimension", array.shape)
    converted = convert_array(kind.element, array)
    return np.ascontiguousarray(converted, array_dtype(kind)).reshape(array.shape)


def _from_sequence(kind: Array, value: Any) -> AnyArray:
    if hasattr(value, "__array__"):
        return np.asarray(value)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview)):
        raise Misfit(f"an array ({kind.text})", value)
    return array_of(value)
