"""The messages of the link protocol: what two nodes say to each other, and how that is bytes.

A message is a msgpack array: its number, then its fields. ``Data`` is followed by a second part, the bytes of
the events, unless these lie in shared memory, and ``Note`` by what it says. ``docs/wire-protocol.md`` says
what each means, byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack

from evflow.errors import LinkError

__all__ = [
    "ENDED",
    "MESSAGES",
    "MOST_HEADER",
    "MOST_NOTE",
    "MOST_PATH",
    "MOST_TOPIC",
    "VERSION",
    "Accept",
    "Ack",
    "Bye",
    "Close",
    "Data",
    "Held",
    "Hello",
    "Message",
    "Note",
    "Open",
    "Ping",
    "Pong",
    "Refuse",
    "Reject",
    "Released",
    "Reset",
    "Retry",
    "SchemaText",
    "Sent",
    "Share",
    "Shared",
    "Welcome",
    "pack",
    "unpack",
]

ENDED = 2
"""The ``delivery`` of a bridge that has ended: nothing new comes, and it keeps what the receiver holds."""

VERSION = 1
"""The version of the protocol that ``Hello`` and ``Welcome`` name."""

MOST_HEADER = 64 << 20
"""Bytes that the first part of a message may have."""

MOST_PATH = 64
"""Numbers that a path may have."""

MOST_NOTE = 8 << 20
"""Bytes that a note may have."""

MOST_TOPIC = 255
"""Characters that its topic may have."""

_MOST = (1 << 63) - 1
_TEXT = 1 << 20
_NAME = 4096
_SMALL = 1024


class Hello(NamedTuple):
    """The first message of who opened the connection."""

    version: int
    node: str
    incarnation: bytes
    contact: str


class Welcome(NamedTuple):
    """The answer to ``Hello``: the session begins."""

    version: int
    node: str
    incarnation: bytes
    contact: str


class Refuse(NamedTuple):
    """The other answer to ``Hello``: there will be no session."""

    reason: str


class Reset(NamedTuple):
    """There is no session on this connection (any more); say ``Hello``."""

    reason: str


class Ping(NamedTuple):
    """Is anybody there? Also what the round trip is measured with."""

    number: int


class Pong(NamedTuple):
    """The answer to ``Ping``, with its number."""

    number: int


class Open(NamedTuple):
    """A bridge wants to send to a stone; its frames will carry the channel's number. Those up to ``gone``
    will not come (again): they are safe, or lost where nothing is kept. ``delivery`` is 0 for at most once, 1
    for at least once, and ``ENDED`` where the bridge has ended and only keeps what was sent."""

    channel: int
    bridge: str
    stone: str
    input: str
    stream: bytes
    delivery: int
    gone: int


class Accept(NamedTuple):
    """The channel is open: send on from behind frame ``received``, at first ``credit`` bytes."""

    channel: int
    received: int
    credit: int


class Reject(NamedTuple):
    """The channel stays closed, or is closed from now on: what was sent and is not safe must go elsewhere."""

    channel: int
    reason: str


class SchemaText(NamedTuple):
    """The description of a schema, as JSON, before the first frame of the session that refers to it."""

    number: int
    description: str


class Data(NamedTuple):
    """A frame of events.

    ``place`` is where their bytes are: they themselves, if few; None if they follow as a part of their own;
    in
    shared memory:
    block number, offset, length.
    """

    channel: int
    sequence: int
    schema: int
    events: int
    route: bytes
    path: list[int]
    attributes: list[Any] | None
    place: bytes | list[int] | None


class Ack(NamedTuple):
    """Frames up to ``safe`` may be forgotten, those up to ``consumed`` were taken in; ``credit`` bytes may
    have been sent in all since ``Accept``."""

    channel: int
    safe: int
    consumed: int
    credit: int


class Held(NamedTuple):
    """Frames up to ``sequence`` were handled as far as stones let them: what is left of them waits in the
    memory of some stone, so they must still be kept. It comes before the ``Ack`` of the same moment."""

    channel: int
    sequence: int


class Share(NamedTuple):
    """A file of shared memory into which this side will put large frames."""

    name: str
    size: int
    nonce: bytes


class Shared(NamedTuple):
    """Whether the other side could open the file of ``Share``."""

    opened: bool


class Released(NamedTuple):
    """Blocks of shared memory that are no longer used."""

    blocks: list[int]


class Close(NamedTuple):
    """No frame will come in this channel any more."""

    channel: int


class Bye(NamedTuple):
    """The session ends orderly."""

    reason: str


class Note(NamedTuple):
    """A few words besides the events, once and one way; the bytes that follow are what they mean."""

    topic: str


class Retry(NamedTuple):
    """The stone of a channel that was rejected is there now: it may be opened again."""

    channel: int


class Sent(NamedTuple):
    """Frames up to ``sequence`` were sent before the channel was opened this time. A receiver that has lost
    its memory, or stands in for another, may get what it led to a second time."""

    channel: int
    sequence: int


Message = (
    Hello | Welcome | Refuse | Reset | Ping | Pong | Open | Accept | Reject | SchemaText | Data | Ack
    | Share | Shared | Released | Close | Bye | Held | Note | Retry | Sent
)  # fmt: skip


def _number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _text(value: object) -> bool:
    return type(value) is str and len(value) <= _TEXT


def _name(value: object) -> bool:
    return type(value) is str and len(value) <= _NAME


def _identity(value: object) -> bool:
    return type(value) is bytes and len(value) == 16


def _numbers(value: object) -> bool:
    return type(value) is list and all(map(_number, value))


def _path(value: object) -> bool:
    return type(value) is list and len(value) <= MOST_PATH and all(map(_number, value))


def _route(value: object) -> bool:
    return type(value) is bytes and len(value) in (0, 16)


def _list_or_nil(value: object) -> bool:
    return value is None or type(value) is list


def _place(value: object) -> bool:
    return (
        value is None
        or type(value) is bytes
        or (type(value) is list and len(value) == 3 and all(map(_number, value)))
    )


def _flag(value: object) -> bool:
    return type(value) is bool


_GREETING = (_number, _name, _identity, _name)

MESSAGES: dict[int, tuple[Callable[..., Message], tuple[Callable[[object], bool], ...]]] = {
    1: (Hello, _GREETING),
    2: (Welcome, _GREETING),
    3: (Refuse, (_name,)),
    4: (Reset, (_name,)),
    5: (Ping, (_number,)),
    6: (Pong, (_number,)),
    7: (Open, (_number, _name, _name, _name, _identity, _number, _number)),
    8: (Accept, (_number, _number, _number)),
    9: (Reject, (_number, _name)),
    10: (SchemaText, (_number, _text)),
    11: (Data, (_number, _number, _number, _number, _route, _path, _list_or_nil, _place)),
    12: (Ack, (_number, _number, _number, _number)),
    13: (Share, (_name, _number, _identity)),
    14: (Shared, (_flag,)),
    15: (Released, (_numbers,)),
    16: (Close, (_number,)),
    17: (Bye, (_name,)),
    18: (Held, (_number, _number)),
    19: (Note, (_name,)),
    20: (Retry, (_number,)),
    21: (Sent, (_number, _number)),
}
"""Number → the message, and for each field whether a value is one."""

_NUMBERS = {kind: number for number, (kind, _) in MESSAGES.items()}


def pack(message: Message) -> bytes:
    """A message as bytes."""
    packed: bytes = msgpack.packb((_NUMBERS[type(message)], *message))
    return packed


def _skip(data: Any) -> None:
    """Walks over a value without making it; raises what msgpack does if it is not whole."""
    unpacker = msgpack.Unpacker(max_buffer_size=MOST_HEADER)
    unpacker.feed(data)
    unpacker.skip()


def unpack(data: Any) -> Message:
    """The message that bytes from outside are.

    Raises:
        LinkError: they are none.
    """
    if len(data) > MOST_HEADER:
        raise LinkError(f"a message: expected at most {MOST_HEADER} bytes, found {len(data)}")
    try:
        if len(data) > _SMALL:
            # Nested arrays that claim more elements than there are bytes would be given their memory.
            _skip(data)
        fields = msgpack.unpackb(data, max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise LinkError(f"a message of {len(data)} bytes: expected msgpack, found {error!r:.100}") from None
    if type(fields) is not list or not fields or type(fields[0]) is not int or fields[0] not in MESSAGES:
        raise LinkError(f"a message: expected an array that begins with 1 to 21, found {fields!r:.100}")
    kind, checks = MESSAGES[fields.pop(0)]
    name = getattr(kind, "__name__", "")
    if len(fields) != len(checks):
        raise LinkError(f"message {name}: expected {len(checks)} fields, found {len(fields)}")
    for check, value in zip(checks, fields, strict=True):
        if not check(value):
            raise LinkError(f"message {name}: field {fields.index(value) + 1} cannot be {value!r:.100}")
    return kind(*fields)
