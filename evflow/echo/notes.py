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
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from evflow.echo.record import MOST_NAME
from evflow.errors import LinkError
from evflow.net.link.messages import MISREAD, Numbered

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
Number = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=MOST_NAME)]
Key = Annotated[str, Meta(min_length=1, max_length=3 * MOST_NAME)]
Reason = Annotated[str, Meta(min_length=1, max_length=2_000)]

Version = tuple[Number, Number]
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

    process: Name
    contact: Annotated[str, Meta(max_length=_MOST_CONTACT)]
    incarnation: Number
    number: Number
    state: Annotated[int, Meta(ge=LEFT, le=SUBSCRIBED)]

    @property
    def version(self) -> Version:
        """What says which of two is newer."""
        return self.incarnation, self.number


class Find(Numbered, tag=1):
    """Asks for a channel by name or key."""

    name: Key


class Here(Numbered, tag=2):
    """The answer to ``Find``."""

    name: Key
    key: Key


class Absent(Numbered, tag=3):
    """The other answer; also to a ``State`` that asks for a channel by its key."""

    about: Key
    reason: Reason


class Refused(Numbered, tag=5):
    """The process cannot have a derived channel."""

    key: Key
    reason: Reason


class Known(NamedTuple):
    """All that is known of a channel.

    Attributes:
        entries: each with the milliseconds since its process was heard.
        morphs: as plain data.
    """

    entries: Annotated[list[tuple[Entry, Number]], Meta(max_length=MOST_ENTRIES)]
    morphs: Annotated[list[Any], Meta(max_length=_MOST_MORPHS)]


class State(Numbered, tag=4):
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

    key: Key
    want: bool
    own: Entry | None
    applied: Version
    digest: Annotated[bytes, Meta(min_length=16, max_length=16)]
    children: Annotated[list[Key], Meta(max_length=MOST_ENTRIES)]
    record: list[Any] | None
    known: Known | None


Message = Find | Here | Absent | State | Refused

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Annotated[list[Message], Meta(max_length=_MOST_MESSAGES)])


def pack(messages: Iterable[Message]) -> Iterator[bytes]:
    """Messages as the bodies of as few notes as their sizes allow."""
    body: list[Any] = []
    size = 0
    for message in messages:
        packed = _encode(message)
        # What follows a Here stays with it.
        if len(body) >= _MOST_MESSAGES - 1 or (body and size + len(packed) > _MOST_BYTES // 8):
            yield _encode(body)
            body, size = [], 0
        body.append(msgspec.Raw(packed))
        size += len(packed)
    if body:
        yield _encode(body)


def unpack(body: bytes | memoryview) -> list[Message]:
    """The messages that a note from outside carries.

    Raises:
        LinkError: it carries none.
    """
    if len(body) > _MOST_BYTES:
        raise LinkError(f"a note of channels: expected at most {_MOST_BYTES} bytes, found {len(body)}")
    try:
        messages: list[Message] = _decoder.decode(body)
    except MISREAD as error:
        raise LinkError(f"a note of channels: {error}") from None
    return messages
