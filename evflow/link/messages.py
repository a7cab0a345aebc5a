"""The messages of the link protocol: what two nodes say to each other, and how that is bytes.

A message is a msgpack array: its number, then its fields. ``Data`` is followed by a second part, the bytes of
the events, unless these lie in shared memory, and ``Note`` by what it says. ``docs/wire-protocol.md`` says
what each means, byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import msgpack

from evflow.errors import LinkError
from evflow.outside import Malformed, check_depth, from_msgpack, shown

__all__ = [
    "ENDED",
    "MESSAGES",
    "MOST_BLOCKS",
    "MOST_COLUMNS",
    "MOST_DATA",
    "MOST_GREETING",
    "MOST_HEADER",
    "MOST_NOTE",
    "MOST_PATH",
    "MOST_TEXT",
    "MOST_TEXTS",
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
    "kind_of",
    "pack",
    "unpack",
]

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

MOST_COLUMNS = 1_000
"""The attributes that the events of one frame may have."""

MOST_TEXTS = 1 << 20
"""The texts that the attributes of one frame may have, as each of them is an object: a column that all events
share has one, others have one for each event."""

MOST_BLOCKS = 4_096
"""Blocks that one ``Released`` may name."""

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
_TEXT = f"{{0}}.__class__ is str and len({{0}}) <= {MOST_TEXT}"
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

_MOST: dict[type[Any], int] = {Data: MOST_DATA, SchemaText: MOST_HEADER + 4 * MOST_TEXT}
_HEAD = 16
_ATTRIBUTES = Data._fields.index("attributes")
_DEPTH = 3  # [[name, kind, present, [value, …]], …]
_LISTS = {
    _NUMBERS: (MOST_BLOCKS,),
    _PATH: (MOST_PATH,),
    _LIST_OR_NIL: (MOST_COLUMNS, 4, MOST_TEXTS),
    _PLACE: (3,),
}
"""By check: how many values a list may have, then how many a list in it, and so on."""

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


def unpack(data: Any) -> Message:
    """The message that bytes from outside are.

    Raises:
        LinkError: they are not a message, or more than its kind may have.
    """
    size = len(data)
    try:
        if size <= _SMALL:
            fields = msgpack.unpackb(data, max_map_len=0, max_ext_len=0)
        elif size <= MOST_GREETING:
            fields = from_msgpack(data, maps=False)
        else:
            fields = _read_large(data)
    except (ValueError, IndexError, msgpack.UnpackException, RecursionError) as error:
        raise LinkError(f"a message of {size} bytes: expected msgpack, found {shown(error)}") from None
    if type(fields) is not list or not fields or type(fields[0]) is not int or fields[0] not in MESSAGES:
        raise LinkError(f"a message: expected an array that begins with 1 to 23, found {shown(fields)}")
    number = fields.pop(0)
    kind, checks = MESSAGES[number]
    if len(fields) != len(checks):
        raise LinkError(f"message {kind.__name__}: expected {len(checks)} fields, found {len(fields)}")
    if not _CHECKERS[number](*fields):
        wrong = next(at for at, value in enumerate(fields) if not _checker(checks[at])(value))
        raise LinkError(f"message {kind.__name__}: field {wrong + 1} cannot be {shown(fields[wrong])}")
    if kind is Data and fields[_ATTRIBUTES] is not None:
        _check_attributes(fields[_ATTRIBUTES])
    message: Message = tuple.__new__(kind, fields)
    return message


def _check_attributes(attributes: list[Any]) -> None:
    try:
        check_depth(attributes, _DEPTH)
    except Malformed as error:
        raise LinkError(f"message Data: attributes: {error}") from None


def kind_of(data: Any) -> type[Any] | None:
    """What message bytes from outside claim to be, of which only the first few are read; None if they are
    not a message."""
    head = _flat(_HEAD)
    head.feed(data[:_HEAD])
    try:
        head.read_array_header()
        kind, _ = MESSAGES.get(head.unpack(), (None, ()))
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
    return kind


def _flat(size: int) -> msgpack.Unpacker:
    """Reads so many bytes value by value, and refuses lists and maps before anything of them is made."""
    return msgpack.Unpacker(
        max_buffer_size=size,
        max_array_len=0,
        max_map_len=0,
        max_ext_len=0,
        list_hook=_refuse,
        object_hook=_refuse,
        ext_hook=_refuse,
    )


def _refuse(*value: object) -> NoReturn:
    raise ValueError("a list, map or extension where none may be")


def _read_large(data: Any) -> list[Any]:
    """The number and the fields of a large message, in which lists are only where its kind has some."""
    kind = kind_of(data)
    if kind is None:
        raise LinkError(f"a message of {len(data)} bytes: expected an array that begins with 1 to 23")
    most = _MOST.get(kind, MOST_HEADER)
    if len(data) > most:
        raise LinkError(f"message {kind.__name__}: expected at most {most} bytes, found {len(data)}")
    values = _Values(data)
    count, number = values.begin()
    checks = MESSAGES[number][1]
    if count != 1 + len(checks):
        raise LinkError(f"message {kind.__name__}: expected {len(checks)} fields, found {count - 1}")
    fields = [number, *(values.next(_LISTS.get(check, ())) for check in checks)]
    if not values.ended:
        raise ValueError("more than one value")
    return fields


class _Values:
    """The values of a large message, one after the other; what is too much is refused before it is made.

    Args:
        data: the bytes of the message.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self._unpacker = _flat(len(data))
        self._unpacker.feed(data)
        self._left = MOST_TEXTS + MOST_BLOCKS

    def begin(self) -> tuple[int, int]:
        """How many values the message has, and the first of them."""
        return self._unpacker.read_array_header(), self._unpacker.unpack()

    @property
    def ended(self) -> bool:
        """Whether there is nothing more."""
        return bool(self._unpacker.tell() == len(self._data))

    def next(self, lengths: tuple[int, ...]) -> Any:
        """The next value; a list has at most ``lengths[0]`` values, those in it ``lengths[1]``, and so on."""
        values = self._unpacker
        marker = self._data[values.tell()]
        if not (0x90 <= marker <= 0x9F or 0xDC <= marker <= 0xDD):
            return values.unpack()
        count = values.read_array_header()
        if not lengths or count > lengths[0]:
            raise ValueError(f"a list of {count} values, expected {lengths[0] if lengths else 'no list'}")
        if len(lengths) > 1:
            return [self.next(lengths[1:]) for _ in range(count)]
        self._left -= count
        if self._left < 0:
            raise ValueError(f"lists of more than {MOST_TEXTS} values together")
        found = list(islice(values, count))
        if len(found) < count:
            raise ValueError(f"a list of {count} values, expected {len(found)}")
        return found
