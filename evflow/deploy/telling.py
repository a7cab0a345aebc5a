"""Dead letters as the answer to who asks for them: no more at once than fits into a note."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgpack

from evflow.events.fields import as_json, has_fields
from evflow.outside import MOST_VALUES, shown

if TYPE_CHECKING:
    from evflow.engine.letters import DeadLetter

MOST_LETTERS = 10_000
"""Dead letters that are asked for at once."""

MOST_AGAIN = 1_000
"""Dead letters that are given to their stones again at once."""

_ROOM = 1.0
"""Seconds that one waits for room at its stone: the thread that does it has to answer others."""

_MOST_EVENT = 256 << 10
_MOST_RECORD = 1000
_MOST_TRACE = 4000


def told(letters: Sequence[DeadLetter], limit: int) -> list[dict[str, Any]]:
    """The newest letters that fit into one answer, oldest first; at least one, if there are any.

    An event of more than 256 KiB has in place of its largest fields texts that tell their sizes.
    """
    found: list[dict[str, Any]] = []
    # Each value takes a byte or more, so there are not too many values either.
    room = MOST_VALUES - 1000
    for letter in reversed(letters):
        one = {
            "stone": letter.stone, "reason": letter.reason, "event": fields_of(letter.event),
            "number": letter.number, **_error(letter.error),
        }  # fmt: skip
        room -= _size(one)
        if len(found) >= limit or (found and room < 0):
            break
        found.append(one)
    return found[::-1]


def resubmitted(letters: Iterable[DeadLetter], numbers: Iterable[int]) -> list[int]:
    """Gives letters to their stones again, in the order of ``numbers``.

    Args:
        letters: those that there are.
        numbers: which of them.

    Returns:
        The numbers of those that are not there.

    Raises:
        FlowError: a stone is full, or is gone; its letter and those behind it are still there.
    """
    there = {letter.number: letter for letter in letters}
    gone = []
    for number in numbers:
        letter = there.pop(number, None)
        if letter is None:
            gone.append(number)
        else:
            letter.resubmit(_ROOM)
    return gone


def _error(error: BaseException | None) -> dict[str, str]:
    """The class of an exception, what it says, and the end of its traceback, which says most."""
    if error is None:
        return {}
    trace = "".join(traceback.format_exception(error))
    first = error.args[0] if error.args else ""
    text = first if isinstance(first, str) else shown(first, _MOST_RECORD)
    return {"kind": type(error).__name__, "text": text[:_MOST_RECORD], "trace": trace[-_MOST_TRACE:]}


def fields_of(event: Any) -> dict[str, Any]:
    """An event's fields as msgpack has them; of more than 256 KiB see ``told``."""
    names = [field.name for field in event.schema.fields]
    fields = {name: _plain(getattr(event, name), _MOST_EVENT) for name in names}
    if _size(fields) <= _MOST_EVENT:
        return fields
    share = _MOST_EVENT // len(names)
    return {
        name: value if _size(value) <= share else _large(getattr(event, name))
        for name, value in fields.items()
    }


def _plain(value: Any, most: int) -> Any:
    value = as_json(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if getattr(value, "nbytes", 0) > most or (hasattr(value, "__len__") and len(value) > most):
        return _large(value)
    if isinstance(value, str | bytes):
        return value
    if has_fields(value):
        return {name: _plain(one, most) for name, one in value.to_dict().items()}
    if isinstance(value, dict):
        return {name: _plain(one, most) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [_plain(one, most) for one in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return shown(value, _MOST_RECORD)


def _large(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes, too many to show"
    if isinstance(value, str):
        return f"{len(value)} characters, too many to show"
    return f"{getattr(value, 'size', None) or len(value)} values, too many to show"


def _size(value: Any) -> int:
    return len(msgpack.packb(value, unicode_errors="replace"))
