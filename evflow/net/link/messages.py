"""The messages of the link protocol: what two nodes say to each other, and how that is bytes.

A message is a msgpack array: its number, then its fields. ``Data`` is followed by a second part, the bytes of
the events, unless these lie in shared memory, and ``Note`` by what it says. ``docs/wire-protocol.md`` says
what each means, byte by byte.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta, Raw, Struct

from evflow.codgen.express import Head
from evflow.errors import LinkError

ENDED = 2
"""The ``delivery`` of a bridge that has ended: nothing new comes, and it keeps what the receiver holds."""

VERSION = 1
"""The version of the protocol that ``Hello`` and ``Welcome`` name."""

MOST_DATA = 64 << 20
"""Bytes that the header of ``Data`` may have, most of them attributes."""

MOST_HEADER = 64 << 10
"""Bytes that any other header may have; that of ``SchemaText`` has the text beside them."""

MOST_GREETING = 8 << 10
"""Bytes that a header may have before there is a session."""

MOST_TEXT = 1 << 20
"""Characters of a schema's description."""

MOST_TEXTS = 1 << 20
"""The texts that the attributes of one frame may have, as each of them is an object: a column that all events
share has one, others have one for each event."""

MOST_BLOCKS = 4_096
"""Blocks that one ``Released`` may name."""

ROUTE = 16
"""Bytes of a route."""

MOST_PATH = 64
"""Numbers that a path may have."""

NIL = Raw(b"\xc0")
"""The ``attributes`` of a frame whose events have none."""

MOST_NOTE = 8 << 20
"""Bytes that a note may have."""

MOST_TOPIC = 255
"""Characters that its topic may have."""


Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Name = Annotated[str, Meta(max_length=4096)]
Identity = Annotated[bytes, Meta(min_length=16, max_length=16)]


MISREAD = (msgspec.MsgspecError, ValueError, RecursionError)
"""What reading bytes from outside as values of a type raises."""


class Numbered(Struct, array_like=True, forbid_unknown_fields=True):
    """A message as a msgpack array: its number (``tag``), then its fields, checked when it is read."""


class Hello(Numbered, tag=1):
    """The first message of who opened the connection."""

    version: Number
    node: Name
    incarnation: Identity
    contact: Name


class Welcome(Numbered, tag=2):
    """The answer to ``Hello``: the session begins."""

    version: Number
    node: Name
    incarnation: Identity
    contact: Name


class Refuse(Numbered, tag=3):
    """The other answer to ``Hello``: there will be no session."""

    reason: Name


class Reset(Numbered, tag=4):
    """There is no session on this connection (any more); say ``Hello``."""

    reason: Name


class Ping(Numbered, tag=5):
    """Is anybody there? Also what the round trip is measured with."""

    number: Number


class Pong(Numbered, tag=6):
    """The answer to ``Ping``, with its number."""

    number: Number


class Open(Numbered, tag=7):
    """A bridge wants to send to a stone; its frames will carry the channel's number. Those up to ``gone``
    will not come (again): they are safe, or lost where nothing is kept. ``delivery`` is 0 for at most once, 1
    for at least once, and ``ENDED`` where the bridge has ended and only keeps what was sent."""

    channel: Number
    bridge: Name
    stone: Name
    input: Name
    stream: Identity
    delivery: Number
    gone: Number


class Accept(Numbered, tag=8):
    """The channel is open: send on from behind frame ``received``, at first ``credit`` bytes."""

    channel: Number
    received: Number
    credit: Number


class Reject(Numbered, tag=9):
    """The channel stays closed, or is closed from now on: what was sent and is not safe must go elsewhere."""

    channel: Number
    reason: Name


class SchemaText(Numbered, tag=10):
    """The description of a schema, as JSON, before the first frame of the session that refers to it."""

    number: Number
    description: Annotated[str, Meta(max_length=MOST_TEXT)]


class Data(Numbered, tag=11):
    """A frame of events.

    ``place`` is where their bytes are: they themselves, if few; None if they follow as a part of their own;
    in shared memory: block number, offset, length.
    """

    channel: Number
    sequence: Number
    schema: Number
    events: Number
    route: bytes
    path: Annotated[list[Number], Meta(max_length=MOST_PATH)]
    attributes: Raw
    place: bytes | Annotated[list[Number], Meta(min_length=3, max_length=3)] | None


class Ack(Numbered, tag=12):
    """Frames up to ``safe`` may be forgotten, those up to ``consumed`` were taken in; ``credit`` bytes may
    have been sent in all since ``Accept``."""

    channel: Number
    safe: Number
    consumed: Number
    credit: Number


class Held(Numbered, tag=18):
    """Frames up to ``sequence`` were handled as far as stones let them: what is left of them waits in the
    memory of some stone, so they must still be kept. It comes before the ``Ack`` of the same moment."""

    channel: Number
    sequence: Number


class Share(Numbered, tag=13):
    """A file of shared memory into which this side will put large frames."""

    name: Name
    size: Number
    nonce: Identity


class Shared(Numbered, tag=14):
    """Whether the other side could open the file of ``Share``."""

    opened: bool


class Released(Numbered, tag=15):
    """Blocks of shared memory that are no longer used."""

    blocks: Annotated[list[Number], Meta(max_length=MOST_BLOCKS)]


class Close(Numbered, tag=16):
    """No frame will come in this channel any more."""

    channel: Number


class Bye(Numbered, tag=17):
    """The session ends orderly."""

    reason: Name


class Note(Numbered, tag=19):
    """A few words besides the events, once and one way; the bytes that follow are what they mean."""

    topic: Name


class Retry(Numbered, tag=20):
    """The stone of a channel that was rejected is there now: it may be opened again."""

    channel: Number


class Sent(Numbered, tag=21):
    """Frames up to ``sequence`` were sent before the channel was opened this time. A receiver that has lost
    its memory, or stands in for another, may get what it led to a second time."""

    channel: Number
    sequence: Number


class Shortcut(Numbered, tag=22):
    """A socket of the system at which this side listens for the other, if that runs on the same host."""

    name: Name
    token: Identity


class Joined(Numbered, tag=23):
    """Whether the other side has connected to the socket of ``Shortcut``."""

    opened: bool


Message = (
    Hello | Welcome | Refuse | Reset | Ping | Pong | Open | Accept | Reject | SchemaText | Data | Ack
    | Share | Shared | Released | Close | Bye | Held | Note | Retry | Sent | Shortcut | Joined
)  # fmt: skip

MESSAGES: dict[int, type[Any]] = {kind.__struct_config__.tag: kind for kind in get_args(Message)}
"""Number → the message."""

_MOST: dict[type[Any], int] = {Data: MOST_DATA, SchemaText: MOST_HEADER + 4 * MOST_TEXT}

pack = msgspec.msgpack.Encoder().encode
"""A message as bytes."""

_LARGE_NUMBER, _LARGE_COUNT, _LARGE_SIZE = (1 << 63) - 1, (1 << 32) - 1, (1 << 16) - 1
"""Numbers that take as many bytes as any that is put in their place."""


@lru_cache(64)
def data_head(before: bytes, channel: int, schema: int) -> Head:
    """What comes before the events of a frame that has no attributes, and whose provenance is its own.

    Args:
        before: what comes before the message itself.
        channel: the channel's number.
        schema: the schema's number.
    """
    whole = pack(Data(channel, _LARGE_NUMBER, schema, _LARGE_COUNT, b"", [], NIL, bytes(_LARGE_SIZE)))
    data = before + whole[:-_LARGE_SIZE]
    # Neither channel nor schema is as large a number.
    events = data.rindex(_LARGE_COUNT.to_bytes(4, "big"))
    return Head(data, data.index(_LARGE_NUMBER.to_bytes(8, "big"), len(before)), events, len(data) - 2)


_decoder = msgspec.msgpack.Decoder(Message)


def unpack(data: Any) -> Message:
    """The message that bytes from outside are.

    Args:
        data: bytes, or what exports them; the attributes of ``Data`` are a view of them.

    Raises:
        LinkError: they are not a message, or more than its kind may have.
    """
    size = len(data)
    if (
        size > MOST_HEADER
        and (kind := kind_of(data)) is not None
        and size > (most := _MOST.get(kind, MOST_HEADER))
    ):
        raise LinkError(f"message {kind.__name__}: expected at most {most} bytes, found {size}")
    try:
        message: Message = _decoder.decode(data)
        # The class itself would be asked by a function of Python.
        if message.__class__ is Data and message.route and len(message.route) != ROUTE:
            raise ValueError(f"expected a route of 0 or {ROUTE} bytes, found {len(message.route)}")
        return message
    except MISREAD as error:
        kind = kind_of(data)
        of = f"a message of {size} bytes" if kind is None else f"message {kind.__name__}"
        raise LinkError(f"{of}: {error}") from None


def kind_of(data: Any) -> type[Any] | None:
    """What message bytes from outside claim to be, of which only the first few are read; None if they are
    not a message."""
    head = bytes(data[:6])
    # An array of up to 15, of up to 2^16 - 1, or of more values.
    number = {0xDC: 3, 0xDD: 5}.get(head[0], 1 if head[0] >> 4 == 9 else 6) if head else 6
    return MESSAGES.get(head[number]) if number < len(head) else None
