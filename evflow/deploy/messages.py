"""What stewards say to each other, in notes of the topic ``deploy``.

A message is a msgpack array: its number, then its fields. Of a ``Piece`` the last field, which is megabytes,
lies behind the array, so that it is not copied: there are a byte that msgpack has no use for, four bytes of
the array's length (big-endian), the array, and the part. Any message may be lost, come twice, late or in
another order; who needs an answer says it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack

from evflow.deploy.record import Record, is_identity
from evflow.errors import DeployError
from evflow.link.messages import MOST_NOTE
from evflow.outside import MOST_VALUES, Malformed, from_msgpack, shown

__all__ = [
    "MESSAGES",
    "MOST_RECORD",
    "MOST_SNAPSHOT",
    "NOBODY",
    "PIECE",
    "TOPIC",
    "Able",
    "Accept",
    "Accepted",
    "Answer",
    "Applied",
    "Ballot",
    "Busy",
    "Cancel",
    "Chosen",
    "Close",
    "Decision",
    "Fetch",
    "Message",
    "Outbid",
    "Piece",
    "Prepare",
    "Promise",
    "Quiet",
    "Ready",
    "Settle",
    "State",
    "Unable",
    "check_size",
    "pack",
    "packed",
    "unpack",
]

TOPIC = "deploy"
"""The topic of the notes."""

PIECE = 2 << 20
"""Bytes of a snapshot that one message carries."""

MOST_SNAPSHOT = 512 << 20
"""Bytes that the snapshot of one stone may have."""

MOST_RECORD = 6 << 20
"""Bytes that a record may have."""

_MOST_RECORD_VALUES = MOST_VALUES // 2
"""Values that a record may have, as a note may carry two records."""

_APART = b"\xc1"
_LENGTH = 4
_MOST_BYTES = 24 << 20
_MOST = (1 << 62) - 1
_NAME = 255
_TEXT = 1 << 16
_REASON = 4096
_MOST_STATES = 10_000


class Decision(NamedTuple):
    """What is to be decided: which record is a version of a deployment."""

    deployment: str
    birth: str
    version: int


class Ballot(NamedTuple):
    """One try to have something decided; of two the greater one counts.

    ``change`` is the identity of the try, and of the change if that comes about.
    """

    number: int
    node: str
    change: str

    def above(self) -> Ballot:
        """The least ballot that is greater and nobody's."""
        return Ballot(self.number + 1, "", "")


NOBODY = Ballot(0, "", "")
"""Less than every ballot."""


class Prepare(NamedTuple):
    """Promise this ballot; and with a record, see whether you can do your part. Repeated while its proposer
    lives.

    ``base`` is the version before, which has been decided; ``lost`` are nodes whose snapshots will not come;
    ``left`` is how many milliseconds more its proposer tries at most.
    """

    at: Decision
    ballot: Ballot
    base: Record | None
    record: Record | None
    lost: list[str]
    left: int = 0


class Promise(NamedTuple):
    """No lesser ballot will be accepted here; what was accepted here so far, if anything."""

    at: Decision
    ballot: Ballot
    accepted_ballot: Ballot | None
    accepted: Record | None


class Outbid(NamedTuple):
    """A greater ballot was promised here."""

    at: Decision
    ballot: Ballot
    promised: Ballot


class Able(NamedTuple):
    """The node can do its part, and has done of it all that can be done while events flow."""

    at: Decision
    ballot: Ballot


class Close(NamedTuple):
    """All nodes are able, and most promised their votes: get ready."""

    at: Decision
    ballot: Ballot


class Ready(NamedTuple):
    """The node is ready for the change, and stays so until it hears what was decided."""

    at: Decision
    ballot: Ballot


class Busy(NamedTuple):
    """The node is getting ready; what it waits for."""

    at: Decision
    ballot: Ballot
    reason: str


class Quiet(NamedTuple):
    """Nothing is under way at the node of what leads to the change; others may still send to it."""

    at: Decision
    ballot: Ballot


class Settle(NamedTuple):
    """All nodes are quiet: from now on be as you are until it is known what was decided."""

    at: Decision
    ballot: Ballot


class Unable(NamedTuple):
    """The node will not get ready; why."""

    at: Decision
    ballot: Ballot
    reason: str


class Accept(NamedTuple):
    """Accept this record, unless a greater ballot was promised."""

    at: Decision
    ballot: Ballot
    record: Record


class Accepted(NamedTuple):
    """The record of this ballot is accepted here."""

    at: Decision
    ballot: Ballot


class Chosen(NamedTuple):
    """This record was decided."""

    record: Record


class Applied(NamedTuple):
    """The node is at this version."""

    at: Decision


class Cancel(NamedTuple):
    """The record of this ballot will never be decided. Said by its proposer, who has not said ``Accept``."""

    at: Decision
    ballot: Ballot


class State(NamedTuple):
    """The versions that a node is at, of deployments that it shares with the other; 0 for none."""

    versions: list[Decision]


class Fetch(NamedTuple):
    """Send the piece of a stone's snapshot that begins at ``offset``."""

    at: Decision
    change: str
    stone: str
    offset: int


class Piece(NamedTuple):
    """A piece of a stone's snapshot of ``total`` bytes, whose ``digest`` (16 bytes) no other has."""

    at: Decision
    change: str
    stone: str
    offset: int
    total: int
    digest: bytes
    part: bytes | memoryview


Message = (
    Prepare | Promise | Outbid | Ready | Busy | Unable | Accept | Accepted | Chosen | Applied | Cancel | State
    | Fetch | Piece | Quiet | Settle | Able | Close
)  # fmt: skip

Answer = Promise | Outbid | Able | Ready | Busy | Quiet | Unable | Accepted
"""What is said to the proposer of a ballot."""


def _checked(good: bool, value: object) -> Any:
    if not good:
        raise ValueError(value)
    return value


def _number(value: Any) -> int:
    return int(_checked(type(value) is int and 0 <= value <= _MOST, value))


def _name(value: Any) -> str:
    return str(_checked(type(value) is str and 0 < len(value) <= _NAME, value))


def _reason(value: Any) -> str:
    return str(_checked(type(value) is str and len(value) <= _REASON, value))


def _stone(value: Any) -> str:
    return str(_checked(type(value) is str and 0 < len(value) <= _TEXT, value))


def _identity(value: Any) -> str:
    return str(_checked(is_identity(value), value))


def _part(value: Any) -> memoryview:
    return memoryview(_checked(type(value) is memoryview and len(value) <= PIECE, value))


def _digest(value: Any) -> bytes:
    return bytes(_checked(type(value) is bytes and len(value) == 16, value))


def _total(value: Any) -> int:
    return int(_checked(_number(value) <= MOST_SNAPSHOT, value))


def _names(value: Any) -> list[str]:
    _checked(type(value) is list and len(value) <= _MOST_STATES, value)
    return [_name(each) for each in value]


def _decision(value: Any) -> Decision:
    _checked(type(value) is list and len(value) == 3, value)
    return Decision(_name(value[0]), _identity(value[1]), _number(value[2]))


def _decisions(value: Any) -> list[Decision]:
    _checked(type(value) is list and len(value) <= _MOST_STATES, value)
    return [_decision(each) for each in value]


def _ballot(value: Any) -> Ballot:
    """A ballot of somebody."""
    _checked(type(value) is list and len(value) == 3, value)
    return Ballot(_number(value[0]), _name(value[1]), _identity(value[2]))


def _promised(value: Any) -> Ballot:
    """A ballot, of somebody or nobody."""
    if type(value) is list and len(value) == 3 and value[1:] == ["", ""]:
        return Ballot(_number(value[0]), "", "")
    return _ballot(value)


def _ballot_or_nil(value: Any) -> Ballot | None:
    return None if value is None else _ballot(value)


def _record(value: Any) -> Record:
    record = Record.from_data(value)
    _checked(bool(record.change and record.birth), "a record without its change")
    return record


def _record_or_nil(value: Any) -> Record | None:
    return None if value is None else _record(value)


_TO = (_decision, _ballot)
_OF = (_decision, _identity, _stone, _number)

MESSAGES: dict[int, tuple[Callable[..., Message], tuple[Callable[[Any], Any], ...]]] = {
    1: (Prepare, (*_TO, _record_or_nil, _record_or_nil, _names, _number)),
    2: (Promise, (*_TO, _ballot_or_nil, _record_or_nil)),
    3: (Outbid, (*_TO, _promised)),
    4: (Ready, _TO),
    5: (Busy, (*_TO, _reason)),
    6: (Unable, (*_TO, _reason)),
    7: (Accept, (*_TO, _record)),
    8: (Accepted, _TO),
    9: (Chosen, (_record,)),
    10: (Applied, (_decision,)),
    11: (Cancel, _TO),
    12: (State, (_decisions,)),
    13: (Fetch, _OF),
    14: (Piece, (*_OF, _total, _digest, _part)),
    15: (Quiet, _TO),
    16: (Settle, _TO),
    17: (Able, _TO),
    18: (Close, _TO),
}
"""Number → the message, and for each field what makes it of plain data."""

_NUMBERS = {kind: number for number, (kind, _) in MESSAGES.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.data()
    raise TypeError(f"{type(value).__name__} is no plain data")


def packed(value: Any) -> bytes:
    """Plain data and records as bytes.

    Raises:
        DeployError: something in a graph is not plain data, or there is too much.
    """
    try:
        data = bytes(msgpack.packb(value, default=_plain))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DeployError(f"expected plain data such as JSON can hold, found {shown(error, 200)}") from None
    if len(data) > _MOST_BYTES:
        raise DeployError(f"a message: expected at most {_MOST_BYTES} bytes, found {len(data)}")
    return data


def pack(message: Message) -> bytes:
    """A message as bytes.

    Raises:
        DeployError: it is too large.
    """
    if isinstance(message, Piece):
        head = packed((_NUMBERS[Piece], *message[:-1]))
        return b"".join([_APART, len(head).to_bytes(_LENGTH, "big"), head, message.part])
    return packed((_NUMBERS[type(message)], *message))


def check_size(record: Record) -> None:
    """Refuses a record that no message can carry.

    Raises:
        DeployError: it is too large, or something in its graph is not plain data.
    """
    data = packed(record)
    size = len(data)
    if size > MOST_RECORD:
        raise DeployError(
            f"deployment {record.deployment}: its graph and hosts are {size} bytes; expected at most "
            f"{MOST_RECORD}"
        )
    try:
        if size > _MOST_RECORD_VALUES:
            from_msgpack(data, values=_MOST_RECORD_VALUES)
    except Malformed as error:
        raise DeployError(f"deployment {record.deployment}: its graph and hosts: {error}") from None


def _fields(data: memoryview) -> Any:
    """What is said to be the number and the fields of a message."""
    if data[:1] != _APART:
        # A message that goes in several notes may have three records.
        return from_msgpack(data, values=MOST_VALUES if len(data) <= MOST_NOTE else 3 * MOST_VALUES)
    start = len(_APART) + _LENGTH
    end = start + int.from_bytes(data[len(_APART) : start], "big")
    fields = from_msgpack(data[start:end], values=MOST_VALUES)
    return [*fields, data[end:]] if type(fields) is list else fields


def unpack(data: bytes | memoryview) -> Message:
    """The message that bytes from outside are; the part of a ``Piece`` is a view of them.

    Raises:
        DeployError: they are none.
    """
    if len(data) > _MOST_BYTES:
        raise DeployError(f"a message: expected at most {_MOST_BYTES} bytes, found {len(data)}")
    try:
        fields = _fields(memoryview(data))
    except Malformed as error:
        raise DeployError(f"a message: {error}") from None
    if type(fields) is not list or not fields or type(fields[0]) is not int or fields[0] not in MESSAGES:
        raise DeployError(
            f"a message: expected an array that begins with 1 to {len(MESSAGES)}, found {shown(fields)}"
        )
    kind, makers = MESSAGES[fields.pop(0)]
    name = getattr(kind, "__name__", "")
    if len(fields) != len(makers):
        raise DeployError(f"message {name}: expected {len(makers)} fields, found {len(fields)}")
    try:
        message = kind(*(make(value) for make, value in zip(makers, fields, strict=True)))
    except ValueError as error:
        raise DeployError(f"message {name}: a field cannot be {shown(error.args[0])}") from None
    if not _agrees(message):
        raise DeployError(f"message {name}: its records are of other versions than it says")
    return message


def _agrees(message: Message) -> bool:
    """Whether the fields of a message fit each other."""
    match message:
        case Prepare(at, _, base, record):
            first = at.version == 1
            before = base is None if first else base is not None and _is(base, at, -1)
            empty = first and record is not None and record.graph is None
            return before and not empty and (record is None or _is(record, at))
        case Promise(at, _, ballot, accepted):
            return (ballot is None) == (accepted is None) and (accepted is None or _is(accepted, at))
        case Accept(at, _, record):
            return _is(record, at)
        case Piece():
            length = min(PIECE, message.total - message.offset)
            return message.offset % PIECE == 0 and 0 <= length == len(message.part)
        case _:
            return True


def _is(record: Record, at: Decision, step: int = 0) -> bool:
    return (record.deployment, record.birth, record.version) == (at.deployment, at.birth, at.version + step)
