"""Columns of text and of bytes as pieces of bytes, where possible without a Python step for each row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from evflow.events.gather import ByteArray, Offsets, Ragged, starts_of
from evflow.events.numeric import AnyArray
from evflow.schema.types import Blob, Bytes, Str, Text
from evflow.schema.values import Misfit, stored_each, to_bytes, to_text


def text_pieces(kind: Str | Text, values: AnyArray | Ragged | Sequence[Any]) -> Ragged:
    """A column of text as pieces of UTF-8, checked.

    Args:
        kind: the type they are for.
        values: an array of dtype ``S`` (UTF-8), ``U``, ``T`` or object, a sequence of str, or pieces of
            UTF-8.

    Raises:
        Misfit: a value is not text, not UTF-8, too long, or ends with NUL; carries its row.
    """
    if not isinstance(values, Ragged) and not len(values):
        values = []  # numpy makes numbers of no values
    if isinstance(values, np.ndarray) and (values.ndim != 1 or values.dtype.kind not in "OSTU"):
        raise Misfit(f"a column of text ({kind.text})", values.dtype if values.ndim == 1 else values.shape)
    if isinstance(values, Ragged):
        check_utf8(values)
        pieces = values
    elif isinstance(values, np.ndarray) and values.dtype.kind == "S":
        pieces = _from_matrix(values, _characters(values, np.uint8))
        check_utf8(pieces)
    elif isinstance(values, np.ndarray) and values.dtype.kind == "U" and _is_ascii(values):
        pieces = _from_matrix(values, _characters(values, np.uint32))
    else:
        listed: list[Any] = values.tolist() if isinstance(values, np.ndarray) else list(values)
        pieces = _from_strings(kind, listed)
    if isinstance(kind, Str):
        _check_capacity(kind, pieces)
    return pieces


def _fitting_text(kind: Str, length: int) -> str:
    return f"text of at most {kind.capacity} bytes of UTF-8, not {length}"


def _characters(values: AnyArray, unit: Any) -> AnyArray:
    """The characters of a column of ``S`` or ``U``, one row each."""
    width = values.dtype.itemsize // np.dtype(unit).itemsize
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    return native.view(unit).reshape(len(values), width) if width else np.zeros((len(values), 0), unit)


def _is_ascii(values: AnyArray) -> bool:
    return not values.size or not values.dtype.itemsize or int(_characters(values, np.uint32).max()) < 0x80


def _from_matrix(values: AnyArray, characters: AnyArray) -> Ragged:
    lengths = np.strings.str_len(values).astype(np.int64)
    inside = np.arange(characters.shape[1]) < lengths[:, None]
    return Ragged(lengths, characters[inside].astype(np.uint8, copy=False))


def _from_strings(kind: Str | Text, values: list[Any]) -> Ragged:
    # One NUL between the texts tells them apart, unless there are NULs in them.
    try:
        encoded = "\0".join(values).encode()
    except (TypeError, UnicodeEncodeError):
        return Ragged.of(stored_each(partial(to_text, kind), values))
    content = np.frombuffer(encoded, np.uint8)
    inside = content != 0
    separators = np.flatnonzero(~inside)
    if len(separators) != max(len(values) - 1, 0):
        return Ragged.of(stored_each(partial(to_text, kind), values))
    if not values:
        return Ragged.of([])
    edges = np.concatenate(([-1], separators, [len(content)]))
    return Ragged(np.diff(edges) - 1, content[inside])


def _check_capacity(kind: Str, pieces: Ragged) -> None:
    if not len(pieces.lengths):
        return
    too_long = pieces.lengths > kind.capacity
    if too_long.any():
        row = int(np.argmax(too_long))
        found = _piece(pieces, row)
        raise Misfit(_fitting_text(kind, len(found)), _shown(found), row)
    ends = np.cumsum(pieces.lengths) - 1
    ends_with_nul = (pieces.lengths > 0) & (np.append(pieces.data, 1)[np.maximum(ends, 0)] == 0)
    if ends_with_nul.any():
        row = int(np.argmax(ends_with_nul))
        raise Misfit(
            f"text that does not end with NUL, since NUL is the padding of {kind.text}",
            _piece(pieces, row),
            row,
        )


def check_utf8(pieces: Ragged) -> None:
    """Refuses pieces of which one is not valid UTF-8.

    Raises:
        Misfit: carries the row of the first that is not.
    """
    if not len(pieces.data) or int(pieces.data.max()) < 0x80:
        return
    offsets = starts_of(pieces.lengths)
    if not _continues(pieces.data, offsets):
        try:
            pieces.data.tobytes().decode()
        except UnicodeDecodeError as error:
            row = int(np.searchsorted(offsets, error.start, "right")) - 1
        else:
            return
    else:
        # Where a piece starts within a character, the character before is cut off or the whole is none.
        row = _first_bad(pieces, offsets)
    raise Misfit("text in UTF-8", _piece(pieces, row), row)


def _continues(data: ByteArray, offsets: Offsets) -> bool:
    starts = offsets[:-1][np.diff(offsets) > 0]
    return bool((data[starts] & 0xC0 == 0x80).any())


def _first_bad(pieces: Ragged, offsets: Offsets) -> int:
    content = pieces.data.tobytes()
    for row, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        try:
            content[start:end].decode()
        except UnicodeDecodeError:
            return row
    raise AssertionError("a piece that starts within a character decoded")


def bytes_pieces(kind: Bytes | Blob, values: AnyArray | Ragged | Sequence[Any]) -> Ragged:
    """A column of bytes as pieces, checked.

    Args:
        kind: the type they are for.
        values: an array of dtype ``S`` (which has no trailing zeros), ``V`` or object, a sequence of
            bytes, or pieces.

    Raises:
        Misfit: a value is not bytes or too long; carries its row.
    """
    if not isinstance(values, Ragged) and not len(values):
        values = []  # numpy makes numbers of no values
    if isinstance(values, np.ndarray) and (values.ndim != 1 or values.dtype.kind not in "SVO"):
        raise Misfit(f"a column of bytes ({kind.text})", values.dtype)
    if isinstance(values, Ragged):
        pieces = values
    else:
        return Ragged.of(stored_each(partial(to_bytes, kind), values))
    if isinstance(kind, Bytes) and len(pieces.lengths) and int(pieces.lengths.max()) > kind.capacity:
        row = int(np.argmax(pieces.lengths > kind.capacity))
        raise Misfit(f"at most {kind.capacity} bytes", _piece(pieces, row), row)
    return pieces


def _piece(pieces: Ragged, row: int) -> bytes:
    start = int(pieces.lengths[:row].sum())
    return pieces.data[start : start + int(pieces.lengths[row])].tobytes()


def _shown(text: bytes) -> str:
    return text.decode(errors="replace")
