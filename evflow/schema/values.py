"""One value checked against the type of a field.

A number that is stored equals the number that was given, except that a float stored in a narrower float is
rounded: a finite number never becomes infinite, an integer never loses digits in a float, a float is not an
integer.
"""

from __future__ import annotations

import math
import operator
import struct
from typing import Any

import numpy as np

from evflow.schema.misfit import Misfit, describe, stored_each
from evflow.schema.types import Blob, Bytes, FieldType, Logical, Number, Str, Text

__all__ = [
    "Misfit",
    "describe",
    "expected",
    "relaxed",
    "stored_each",
    "to_bytes",
    "to_number",
    "to_scalar",
    "to_text",
]

_MAX_LENGTH = (1 << 32) - 1
_F32 = struct.Struct(">f")


def expected(number: Number) -> str:
    """What a field of this type takes, in words."""
    if number.kind == "b":
        return "True or False (bool)"
    if number.kind == "f":
        return f"a float ({number.name})"
    low, high = number.bounds
    return f"an integer from {low} to {high} ({number.name})"


def to_scalar(kind: FieldType, value: Any) -> Any:
    """The value as a field of ``kind``, which is neither array, list, optional nor record, holds it.

    Raises:
        Misfit: it does not fit.
    """
    if isinstance(kind, Logical):
        return kind.load(kind.store(value))
    if isinstance(kind, Number):
        return to_number(kind, value)
    if isinstance(kind, (Str, Text)):
        return to_text(kind, value).decode()
    if isinstance(kind, (Bytes, Blob)):
        return to_bytes(kind, value)
    raise Misfit(f"no single value for {kind.text}", value)


def to_number(number: Number, value: Any) -> bool | int | float:
    """The value as a Python bool, int or float.

    Raises:
        Misfit: it is of the wrong kind, out of range, or an integer that the float type cannot hold exactly.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value) if number.kind == "b" else float(value) if number.kind == "f" else int(value)
    if number.kind == "b":
        raise Misfit(expected(number), value)
    if number.kind == "f":
        return _to_float(number, value)
    if isinstance(value, (float, np.floating)):
        raise Misfit(expected(number) + "; write int(…) or round(…) if that is meant", value)
    whole = _to_index(number, value)
    low, high = number.bounds
    if not low <= whole <= high:
        raise Misfit(expected(number), value)
    return whole


def relaxed(number: Number, value: Any) -> Any:
    """The value as an integer or boolean if it is an integral float, or 0 or 1, where such is expected."""
    if isinstance(value, (int, float)) and number.kind != "f" and value == value:
        if number.kind == "b":
            return bool(value) if value in (0, 1) else value
        return int(value) if isinstance(value, float) and value.is_integer() else value
    return value


def _to_index(number: Number, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise Misfit(expected(number), value) from None


def _to_float(number: Number, value: Any) -> float:
    exact = None
    try:
        if isinstance(value, (float, np.floating)):
            result = float(value)
            if math.isinf(result) and not np.isinf(value):
                raise OverflowError
        else:
            exact = _to_index(number, value)
            result = float(exact)
        if number.size == 4:
            result = _F32.unpack(_F32.pack(result))[0]
    except OverflowError:
        raise Misfit(f"a number within the range of {number.name}", value) from None
    if exact is not None and int(result) != exact:
        raise Misfit(f"an integer that {number.name} holds exactly", value)
    return result


def to_text(kind: Str | Text, value: Any) -> bytes:
    """The UTF-8 of a text, unpadded.

    Raises:
        Misfit: it is not a text, has lone surrogates, is too long or ends with NUL.
    """
    if not isinstance(value, str):
        raise Misfit(f"text ({kind.text})", value)
    try:
        encoded = str.encode(value)
    except UnicodeEncodeError:
        raise Misfit("text that UTF-8 can express, without lone surrogates", value) from None
    if isinstance(kind, Str):
        if len(encoded) > kind.capacity:
            raise Misfit(f"text of at most {kind.capacity} bytes of UTF-8, not {len(encoded)}", value)
        if encoded.endswith(b"\0"):
            raise Misfit(f"text that does not end with NUL, since NUL is the padding of {kind.text}", value)
    elif len(encoded) > _MAX_LENGTH:
        raise Misfit(f"text of at most {_MAX_LENGTH} bytes", len(encoded))
    return encoded


def to_bytes(kind: Bytes | Blob, value: Any) -> bytes:
    """The value as bytes, unpadded.

    Raises:
        Misfit: it is not bytes, a bytearray or a memoryview, or is too long.
    """
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise Misfit(f"bytes ({kind.text})", value)
    result = bytes(value)
    limit = kind.capacity if isinstance(kind, Bytes) else _MAX_LENGTH
    if len(result) > limit:
        raise Misfit(f"at most {limit} bytes, not {len(result)}", value)
    return result
