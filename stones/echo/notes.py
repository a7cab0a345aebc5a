"""What the processes of channels say to each other: notes of topic "echo", msgpack arrays, each field
checked.

Find    which channel do you have of that name, or that key?
Here    this one (and a ``State`` of it follows in the same note)
Absent  there is none
Refused I cannot have what is derived there
State   what I am in a channel, up to which of your entries my stones are linked, and a digest of all that I
        know of it; all of that itself where yours may be another
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgpack

from evflow.errors import LinkError
from evflow.outside import MOST_VALUES, Malformed, from_msgpack, shown
from evflow.stones.echo.record import MOST_NAME

__all__ = [
    "LEFT",
    "OPEN",
    "SUBSCRIBED",
    "TOPIC",
    "Absent",
    "Entry",
    "Find",
    "Here",
    "Known",
    "Message",
    "Refused",
    "State",
    "Version",
    "pack",
    "unpack",
]

TOPIC = "echo"
"""The topic of these notes."""

LEFT, OPEN, SUBSCRIBED = range(3)
"""What a process is in a channel."""

MOST_ENTRIES = 1_000
"""Processes that a channel may have, and channels that may be derived from one."""

_MOST_MORPHS = 64
_MOST_MESSAGES = 256
_MOST_BYTES = 1 << 20
_MOST_CONTACT = 512
_MOST_KEY = 3 * MOST_NAME
_MOST_REASON = 2_000
_MOST = (1 << 53) - 1

Version = tuple[int, int]
"""An incarnation of a process, and a number that grows with each of its changes."""


class Entry(NamedTuple):
    """What a process is in a channel; of two of one process the one with the greater version holds.

    Attributes:
        process: its name.
        contact: where it can be dialled; "" if it cannot.
        incarnation: greater with each start of the process.
        number: greater with each of its changes.
        state: ``LEFT``, ``OPEN`` or ``SUBSCRIBED``.
    """

    process: str
    contact: str
    incarnation: int
    number: int
    state: int

    @property
    def version(self) -> Version:
        """What says which of two is newer."""
        return self.incarnation, self.number


class Find(NamedTuple):
    """Asks for a channel by name or key."""

    name: str


class Here(NamedTuple):
    """The answer to ``Find``."""

    name: str
    key: str


class Absent(NamedTuple):
    """The other answer; also to a ``State`` that asks for a channel by its key."""

    about: str
    reason: str


class Refused(NamedTuple):
    """The process cannot have a derived channel."""

    key: str
    reason: str


class Known(NamedTuple):
    """All that is known of a channel.

    Attributes:
        entries: each with the milliseconds since its process was heard.
        morphs: as plain data.
    """

    entries: list[tuple[Entry, int]]
    morphs: list[Any]


class State(NamedTuple):
    """What a process is in a channel, and knows of it.

    Attributes:
        key: the channel.
        want: whether an answer is wanted.
        own: the sender's entry; None if it is not in the channel.
        applied: the version of the receiver's entry that the sender's stones are linked by; (0, 0) if none.
        digest: 16 bytes that tell whether two know the same.
        children: the keys of the channels derived from it that the sender has.
        record: what the channel is, where the receiver may not know; plain data.
        known: all that the sender knows; None where the receiver seems to know the same.
    """

    key: str
    want: bool
    own: Entry | None
    applied: Version
    digest: bytes
    children: list[str]
    record: list[Any] | None
    known: Known | None


Message = Find | Here | Absent | State | Refused

_NUMBERS: dict[type, int] = {Find: 1, Here: 2, Absent: 3, State: 4, Refused: 5}


def pack(messages: Iterable[Message]) -> Iterator[bytes]:
    """Messages as the bodies of as few notes as their sizes allow."""
    body, count = b"", 0
    for message in messages:
        packed: bytes = msgpack.packb([_NUMBERS[type(message)], *message])
        # What follows a Here stays with it.
        if count >= _MOST_MESSAGES - 1 or (body and len(body) + len(packed) > _MOST_BYTES // 8):
            yield _headed(count) + body
            body, count = b"", 0
        body, count = body + packed, count + 1
    if count:
        yield _headed(count) + body


def _headed(count: int) -> bytes:
    header: bytes = msgpack.Packer().pack_array_header(count)
    return header


def unpack(body: bytes | memoryview) -> list[Message]:
    """The messages that a note from outside carries.

    Raises:
        LinkError: it carries none.
    """
    try:
        rows = from_msgpack(body, _MOST_BYTES, maps=False, values=MOST_VALUES)
    except Malformed as error:
        raise LinkError(f"a note of channels: {error}") from None
    if type(rows) is not list or len(rows) > _MOST_MESSAGES:
        raise LinkError(f"a note of channels: expected an array of messages, found {shown(rows)}")
    return [_message(row) for row in rows]


def _message(row: Any) -> Message:
    if type(row) is not list or not row or type(row[0]) is not int:
        raise LinkError(f"a note of channels: expected a message, found {shown(row)}")
    number, *fields = row
    if number == 1 and len(fields) == 1:
        return Find(_text(fields[0], _MOST_KEY))
    if number == 2 and len(fields) == 2:
        return Here(_text(fields[0], _MOST_KEY), _text(fields[1], _MOST_KEY))
    if number == 3 and len(fields) == 2:
        return Absent(_text(fields[0], _MOST_KEY), _text(fields[1], _MOST_REASON))
    if number == 5 and len(fields) == 2:
        return Refused(_text(fields[0], _MOST_KEY), _text(fields[1], _MOST_REASON))
    if number == 4 and len(fields) == 8:
        return _state(fields)
    raise LinkError(f"a note of channels: message {number} of {len(fields)} fields is not known")


def _state(fields: list[Any]) -> State:
    key, want, own, applied, digest, children, record, known = fields
    if type(want) is not bool or type(digest) is not bytes or len(digest) != 16:
        raise LinkError(
            f"a state: expected a flag and a digest of 16 bytes, found {shown(want, 20)}, {shown(digest, 60)}"
        )
    if record is not None and type(record) is not list:
        raise LinkError(f"a state: expected a record, found {shown(record)}")
    if type(applied) is not list or len(applied) != 2:
        raise LinkError(f"a state: expected a version, found {shown(applied)}")
    if type(children) is not list or len(children) > MOST_ENTRIES:
        raise LinkError(f"a state: expected at most {MOST_ENTRIES} channels, found {shown(children)}")
    return State(
        _text(key, _MOST_KEY),
        want,
        None if own is None else _entry(own),
        (_number(applied[0]), _number(applied[1])),
        digest,
        [_text(child, _MOST_KEY) for child in children],
        record,
        None if known is None else _known(known),
    )


def _known(value: Any) -> Known:
    if type(value) is not list or len(value) != 2 or any(type(part) is not list for part in value):
        raise LinkError(f"a state: expected entries and morphs, found {shown(value)}")
    entries, morphs = value
    if len(entries) > MOST_ENTRIES or len(morphs) > _MOST_MORPHS:
        raise LinkError(
            f"a state: expected at most {MOST_ENTRIES} entries and {_MOST_MORPHS} morphs, found "
            f"{len(entries)} and {len(morphs)}"
        )
    if any(type(row) is not list or len(row) != 2 for row in entries):
        raise LinkError(f"a state: expected entries with ages, found {shown(entries)}")
    return Known([(_entry(row[0]), _number(row[1])) for row in entries], morphs)


def _entry(row: Any) -> Entry:
    if type(row) is not list or len(row) != 5 or row[4] not in (LEFT, OPEN, SUBSCRIBED):
        raise LinkError(f"an entry: expected an array of 5 values, found {shown(row)}")
    contact = row[1] if row[1] == "" else _text(row[1], _MOST_CONTACT)
    return Entry(_text(row[0], MOST_NAME), contact, _number(row[2]), _number(row[3]), int(row[4]))


def _text(value: Any, most: int) -> str:
    if type(value) is not str or not 0 < len(value) <= most:
        raise LinkError(
            f"a note of channels: expected a text of 1 to {most} characters, found {shown(value)}"
        )
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise LinkError(f"a note of channels: expected a number of 0 to {_MOST}, found {shown(value)}")
    return value
