"""What comes from outside (a peer, a file, a snapshot), unpacked and shown within bounds.

A few bytes of msgpack or JSON can claim much memory, or nest more deeply than Python recurses. So nothing is
given memory before all of it is there, what is unpacked has a bounded depth, and an error shows the beginning
of a value without making the rest.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

MOST_DEPTH = 100
"""Lists and maps that may stand within each other."""

MOST_VALUES = 1 << 20
"""Values that a note may have: an empty list has one byte there, and some sixty in memory."""

_SMALL = 1024
_MOST_BYTES = (1 << 31) - 1
_LONG_INT = 4096
_HOLDS = (list, dict)
# Deeper than that nobody reads, and a generator within a generator takes of Python's stack.
_MOST_SHOWN_DEPTH = 20


class Malformed(ValueError):
    """Bytes or text from outside are not what they should be. The message is short."""


def from_msgpack(
    data: Any,
    most: int = _MOST_BYTES,
    *,
    maps: bool = True,
    depth: int = MOST_DEPTH,
    values: int | None = None,
) -> Any:
    """The one value that bytes from outside are: nil, flags, numbers, texts, bytes, lists and maps of them.

    Args:
        data: bytes, or what exports them.
        most: bytes that are accepted.
        maps: whether there may be maps, whose keys are texts or bytes.
        depth: lists and maps that may stand within each other.
        values: how many values there may be in all lists and maps together; None for any number.

    Raises:
        Malformed: the bytes or values are too many, or not exactly one such value.
    """
    # Found when it is needed: importing evflow loads numpy and nothing else.
    msgpack = importlib.import_module("msgpack")
    size = len(data)
    if size > most:
        raise Malformed(f"expected at most {most} bytes, found {size}")
    try:
        if size > _SMALL:
            # Nested lists that claim more elements than there are bytes would be given their memory.
            walker = msgpack.Unpacker(max_buffer_size=size)
            walker.feed(data)
            walker.skip()
        settings: dict[str, Any] = {"max_map_len": size if maps else 0, "max_ext_len": 0}
        # Each value has a byte at least.
        if values is not None and size > values:
            count = _Count(values)
            settings |= {"max_array_len": values, "list_hook": count, "object_hook": count}
            settings["max_map_len"] = values if maps else 0
        value = msgpack.unpackb(data, **settings)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise Malformed(f"expected msgpack, found {shown(error)} in {size} bytes") from None
    check_depth(value, depth)
    return value


class _Count:
    """Counts lists, maps and the values in them, as they are made.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def __call__(self, holder: Any) -> Any:
        self._left -= 1 + len(holder) * (2 if holder.__class__ is dict else 1)
        if self._left < 0:
            raise ValueError(f"more than {self._most} values")
        return holder


def from_json(text: str | bytes) -> Any:
    """The value that a text from outside is as JSON.

    Raises:
        Malformed: the text is not JSON, or is nested more than ``MOST_DEPTH`` deep.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"expected JSON, found {shown(text, 60)}: {shown(str(error), 200)[1:-1]}") from None
    check_depth(value, MOST_DEPTH)
    return value


def check_depth(value: object, most: int) -> None:
    """Refuses a value with more than ``most`` lists or maps within each other.

    Raises:
        Malformed: it has more.
    """
    level: list[Any] = [value] if value.__class__ in _HOLDS else []
    for _ in range(most):
        if not level:
            return
        level = [
            held
            for holder in level
            for held in (holder.values() if holder.__class__ is dict else holder)
            if held.__class__ in _HOLDS
        ]
    if level:
        raise Malformed(f"expected at most {most} lists or maps within each other, found more")


def shown_path(path: Path) -> str:
    """A path for a message: as it is, or quoted where characters of it cannot be printed."""
    return str(path) if str(path).isprintable() else repr(str(path))


def shown(value: object, most: int = 100) -> str:
    """The first characters of what ``repr`` gives for a value, and "…" where there are more. No more of it is
    made, however large, long or deeply nested the value is.

    Args:
        value: plain data, an event, an exception, or an object with a short ``repr``.
        most: characters.

    Example:
        >>> shown([[0] * 1_000_000], 10)
        '[[0, 0, 0,…'
    """
    made, size = [], 0
    try:
        for piece in _pieces(value, most + 1, _MOST_SHOWN_DEPTH):
            made.append(piece)
            size += len(piece)
            if size > most:
                return "".join(made)[:most] + "…"
    except (Exception, SystemExit) as error:  # noqa: BLE001  the repr of a class may raise anything
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return "".join(made)


def _pieces(value: Any, most: int, depth: int) -> Iterator[str]:
    """What ``repr`` gives, piece by piece; of a long text the first ``most`` characters."""
    if isinstance(value, (str, bytes, bytearray)):
        yield repr(value[:most])
    elif isinstance(value, int) and value.bit_length() > _LONG_INT:
        # Python refuses to write a longer one in decimal.
        yield hex(value)[:most]
    elif isinstance(value, UnicodeError):
        # Its arguments hold all that was to be read.
        yield f"{type(value).__name__}({str(value)!r})"
    elif isinstance(value, BaseException):
        yield from _listed(f"{type(value).__name__}(", (("", one) for one in value.args), ")", most, depth)
    elif isinstance(value, dict):
        named = ((f"{shown(key, most)}: ", held) for key, held in value.items())
        yield from _listed("{", named, "}", most, depth)
    elif isinstance(value, tuple):
        behind = ",)" if len(value) == 1 else ")"
        yield from _listed("(", (("", one) for one in value), behind, most, depth)
    elif hasattr(type(value), "_shown") and not isinstance(value, type):
        name, fields = value._shown()
        yield from _listed(f"{name}(", ((f"{key}=", held) for key, held in fields), ")", most, depth)
    elif isinstance(value, Sequence) and not isinstance(value, (memoryview, range)):
        yield from _listed("[", (("", one) for one in value), "]", most, depth)
    else:
        # A table of polars, for instance, is drawn in many lines.
        first, broken, _ = repr(value).partition("\n")
        yield f"{first}…" if broken else first


def _listed(
    before: str, held: Iterable[tuple[str, Any]], behind: str, most: int, depth: int
) -> Iterator[str]:
    """Values between brackets, each behind what names it."""
    yield before
    if depth == 0:
        yield "…"
        held = ()
    for place, (name, value) in enumerate(held):
        yield f", {name}" if place else name
        yield from _pieces(value, most, depth - 1)
    yield behind
