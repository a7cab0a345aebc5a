"""The messages of the link protocol: what two nodes say to each other, and how that is bytes.

A message is a msgpack array: its number, then its fields. ``Data`` is followed by a second part, the bytes of
the events, unless these lie in shared memory, and ``Note`` by what it says. ``docs/wire-protocol.md`` says
what each means, byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
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
    "Joined",
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
    "Shortcut",
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
    in shared memory: block number, offset, length.
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


class Shortcut(NamedTuple):
    """A socket of the system at which this side listens for the other, if that runs on the same host."""

    name: str
    token: bytes


class Joined(NamedTuple):
    """Whether the other side has connected to the socket of ``Shortcut``."""

    opened: bool


Message = (
    Hello | Welcome | Refuse | Reset | Ping | Pong | Open | Accept | Reject | SchemaText | Data | Ack
    | Share | Shared | Released | Close | Bye | Held | Note | Retry | Sent | Shortcut | Joined
)  # fmt: skip


# What a value may be, as an expression of it: one function checks all fields of a message. Of a whole number
# from 0 to 2^63 - 1 nothing is left beyond 63 bits, not even a sign.
_NUMBER = "{0}.__class__ is int and not {0} >> 63"
_TEXT = f"{{0}}.__class__ is str and len({{0}}) <= {1 << 20}"
_NAME = "{0}.__class__ is str and len({0}) <= 4096"
_IDENTITY = "{0}.__class__ is bytes and len({0}) == 16"
_NUMBERS = f"{{0}}.__class__ is list and (not {{0}} or all({_NUMBER.format('one')} for one in {{0}}))"
_PATH = f"{_NUMBERS} and len({{0}}) <= {MOST_PATH}"
_ROUTE = "{0}.__class__ is bytes and len({0}) in (0, 16)"
_LIST_OR_NIL = "({0} is None or {0}.__class__ is list)"
_PLACE = f"({{0}} is None or {{0}}.__class__ is bytes or ({_NUMBERS} and len({{0}}) == 3))"
_FLAG = "{0}.__class__ is bool"
_GREETING = (_NUMBER, _NAME, _IDENTITY, _NAME)

MESSAGES: dict[int, tuple[type[Any], tuple[str, ...]]] = {
    1: (Hello, _GREETING),
    2: (Welcome, _GREETING),
    3: (Refuse, (_NAME,)),
    4: (Reset, (_NAME,)),
    5: (Ping, (_NUMBER,)),
    6: (Pong, (_NUMBER,)),
    7: (Open, (_NUMBER, _NAME, _NAME, _NAME, _IDENTITY, _NUMBER, _NUMBER)),
    8: (Accept, (_NUMBER, _NUMBER, _NUMBER)),
    9: (Reject, (_NUMBER, _NAME)),
    10: (SchemaText, (_NUMBER, _TEXT)),
    11: (Data, (_NUMBER, _NUMBER, _NUMBER, _NUMBER, _ROUTE, _PATH, _LIST_OR_NIL, _PLACE)),
    12: (Ack, (_NUMBER, _NUMBER, _NUMBER, _NUMBER)),
    13: (Share, (_NAME, _NUMBER, _IDENTITY)),
    14: (Shared, (_FLAG,)),
    15: (Released, (_NUMBERS,)),
    16: (Close, (_NUMBER,)),
    17: (Bye, (_NAME,)),
    18: (Held, (_NUMBER, _NUMBER)),
    19: (Note, (_NAME,)),
    20: (Retry, (_NUMBER,)),
    21: (Sent, (_NUMBER, _NUMBER)),
    22: (Shortcut, (_NAME, _IDENTITY)),
    23: (Joined, (_FLAG,)),
}
"""Number → the message, and for each field what its value may be, as an expression of ``{0}``."""

_NUMBER_OF = {kind: number for number, (kind, _) in MESSAGES.items()}


@cache
def _checker(*checks: str) -> Callable[..., bool]:
    """A function that says whether its arguments are what they may be."""
    names = [f"field{number}" for number in range(len(checks))]
    text = " and ".join(check.format(name) for check, name in zip(checks, names, strict=True))
    made: Callable[..., bool] = eval(f"lambda {', '.join(names)}: {text}")
    return made


_CHECKERS = {number: _checker(*checks) for number, (_, checks) in MESSAGES.items()}


def pack(message: Message) -> bytes:
    """A message as bytes."""
    packed: bytes = msgpack.packb((_NUMBER_OF[type(message)], *message))
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
        raise LinkError(f"a message: expected an array that begins with 1 to 23, found {fields!r:.100}")
    number = fields.pop(0)
    kind, checks = MESSAGES[number]
    if len(fields) != len(checks):
        raise LinkError(f"message {kind.__name__}: expected {len(checks)} fields, found {len(fields)}")
    if not _CHECKERS[number](*fields):
        wrong = next(at for at, value in enumerate(fields) if not _checker(checks[at])(value))
        raise LinkError(f"message {kind.__name__}: field {wrong + 1} cannot be {fields[wrong]!r:.100}")
    message: Message = tuple.__new__(kind, fields)
    return message
