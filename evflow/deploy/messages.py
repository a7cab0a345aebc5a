"""What controllers say to each other, in notes of the topic ``deploy``.

A message is a msgpack array: its number, then its fields. Of a ``Piece`` the last field, which is megabytes,
lies behind the array, so that it is not copied: there are a byte that msgpack has no use for, four bytes of
the array's length (big-endian), the array, and the part. Any message may be lost, come twice, late or in
another order; who needs an answer says it again.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import astuple

from evflow.deploy.record import Identity, Name, Record
from evflow.deploy.register import Ballot as Ballot
from evflow.deploy.register import Number
from evflow.errors import DeployError
from evflow.net.link.messages import MISREAD, MOST_NOTE, Numbered
from evflow.outside import MOST_VALUES, Malformed, from_msgpack, shown

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
_TEXT = 1 << 16
_REASON = 4096
_MOST_STATES = 10_000


class Decision(NamedTuple):
    """What is to be decided: which record is a version of a deployment."""

    deployment: Name
    birth: Identity
    version: Number


class _OfBallot(Numbered):
    """What the proposer of a ballot says, or is told."""

    at: Decision
    ballot: Ballot


class Prepare(_OfBallot, tag=1):
    """Promise this ballot; and with a record, see whether you can do your part. Repeated while its proposer
    lives.

    ``base`` is the version before, which has been decided; ``lost`` are nodes whose snapshots will not come;
    ``left`` is how many milliseconds more its proposer tries at most.
    """

    base: Record | None
    record: Record | None
    lost: Annotated[list[Name], Meta(max_length=_MOST_STATES)]
    left: Number = 0


class Promise(_OfBallot, tag=2):
    """No lesser ballot will be accepted here; what was accepted here so far, if anything."""

    accepted_ballot: Ballot | None
    accepted: Record | None


class Outbid(_OfBallot, tag=3):
    """A greater ballot was promised here."""

    promised: Ballot


class Able(_OfBallot, tag=17):
    """The node can do its part, and has done of it all that can be done while events flow."""


class Close(_OfBallot, tag=18):
    """All nodes are able, and most promised their votes: get ready."""


class Ready(_OfBallot, tag=4):
    """The node is ready for the change, and stays so until it hears what was decided."""


class Busy(_OfBallot, tag=5):
    """The node is getting ready; what it waits for."""

    reason: Annotated[str, Meta(max_length=_REASON)]


class Quiet(_OfBallot, tag=15):
    """Nothing is under way at the node of what leads to the change; others may still send to it."""


class Settle(_OfBallot, tag=16):
    """All nodes are quiet: from now on be as you are until it is known what was decided."""


class Unable(_OfBallot, tag=6):
    """The node will not get ready; why."""

    reason: Annotated[str, Meta(max_length=_REASON)]


class Accept(_OfBallot, tag=7):
    """Accept this record, unless a greater ballot was promised."""

    record: Record


class Accepted(_OfBallot, tag=8):
    """The record of this ballot is accepted here."""


class Chosen(Numbered, tag=9):
    """This record was decided."""

    record: Record


class Applied(Numbered, tag=10):
    """The node is at this version."""

    at: Decision


class Cancel(_OfBallot, tag=11):
    """The record of this ballot will never be decided. Said by its proposer, who has not said ``Accept``."""


class State(Numbered, tag=12):
    """The versions that a node is at, of deployments that it shares with the other; 0 for none."""

    versions: Annotated[list[Decision], Meta(max_length=_MOST_STATES)]


class Fetch(Numbered, tag=13):
    """Send the piece of a stone's snapshot that begins at ``offset``."""

    at: Decision
    change: Identity
    stone: Annotated[str, Meta(min_length=1, max_length=_TEXT)]
    offset: Number


class Piece(Numbered, tag=14):
    """A piece of a stone's snapshot of ``total`` bytes, whose ``digest`` no other has; ``part`` is bytes, or
    a view of the message that came."""

    at: Decision
    change: Identity
    stone: Annotated[str, Meta(min_length=1, max_length=_TEXT)]
    offset: Number
    total: Annotated[int, Meta(ge=0, le=MOST_SNAPSHOT)]
    digest: Annotated[bytes, Meta(min_length=16, max_length=16)]
    part: Any


Message = (
    Prepare | Promise | Outbid | Ready | Busy | Unable | Accept | Accepted | Chosen | Applied | Cancel | State
    | Fetch | Piece | Quiet | Settle | Able | Close
)  # fmt: skip

Answer = Promise | Outbid | Able | Ready | Busy | Quiet | Unable | Accepted
"""What is said to the proposer of a ballot."""


MESSAGES: dict[int, type[Any]] = {kind.__struct_config__.tag: kind for kind in get_args(Message)}
"""Number → the message."""


_encode = msgspec.msgpack.Encoder().encode


def packed(value: Any) -> bytes:
    """Plain data, records and messages as bytes.

    Raises:
        DeployError: something in a graph is not plain data, or there is too much.
    """
    try:
        data = _encode(value)
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
        *fields, part = astuple(message)
        head = packed([Piece.__struct_config__.tag, *fields])
        return b"".join([_APART, len(head).to_bytes(_LENGTH, "big"), head, part])
    return packed(message)


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
        DeployError: they are not a message.
    """
    if len(data) > _MOST_BYTES:
        raise DeployError(f"a message: expected at most {_MOST_BYTES} bytes, found {len(data)}")
    try:
        fields = _fields(memoryview(data))
    except Malformed as error:
        raise DeployError(f"a message: {error}") from None
    try:
        # Records have checks of their own.
        known = [_record(f) if type(f) is dict else f for f in fields] if type(fields) is list else fields
        message: Message = msgspec.convert(known, Message)
    except MISREAD as error:
        raise DeployError(f"a message: {error}") from None
    if not _agrees(message):
        raise DeployError(f"message {type(message).__name__}: its fields do not fit each other")
    return message


def _record(data: dict[str, Any]) -> Record:
    record = Record.from_data(data)
    if not (record.change and record.birth):
        raise DeployError("a record: expected the change that made it, found none")
    return record


def _agrees(message: Message) -> bool:
    """True if the fields of a message fit each other."""
    ballots = [getattr(message, name, None) for name in ("ballot", "accepted_ballot")]
    if not all(ballot is None or ballot.is_of_somebody for ballot in ballots):
        return False
    match message:
        case Outbid(promised=promised):
            return promised.is_of_somebody or not (promised.node or promised.change)
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
            if type(message.part) is not memoryview:
                return False
            length = min(PIECE, message.total - message.offset)
            return message.offset % PIECE == 0 and 0 <= length == len(message.part)
        case _:
            return True


def _is(record: Record, at: Decision, step: int = 0) -> bool:
    return (record.deployment, record.birth, record.version) == (at.deployment, at.birth, at.version + step)
