"""What writers and a staging node tell each other, one message a packet; ``docs/staging.md`` has a table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from evflow.errors import StagingError
from evflow.outside import shown
from evflow.staging.model import Block, Variable, expect

VERSION = 2
MOST_BYTES = 1 << 17
"""Bytes of a message."""

LINE = 64
"""Blocks begin at multiples of so many bytes."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    pass


class Hello(_Message, frozen=True, tag=1):
    """A writer begins, or begins again.

    Args:
        last: the newest step that it has announced, -1 if none.
        held: those that it still holds, and announces again now. It announces no other up to ``last``.
        life: a number that the writer chose when it began, and no other has: its steps are known by it.
        keeps: whether its memory has each step unchanged until its fate is told; it drops none.
    """

    version: int
    rank: int
    writers: int
    variables: tuple[Variable, ...]
    last: int
    held: tuple[int, ...]
    # Version 1 had none: such a hello is refused by its version.
    life: int = 0
    keeps: bool = False


class Ready(_Message, frozen=True, tag=2):
    """A step of a writer may be pulled.

    Args:
        blocks: at most one of each variable.
        start: of the first block in the writer's memory; ``layout`` has the others.
        slot: which entry of the memory's table says whether the step is still there; -1 for a step in a file,
            which comes with the message.
        generation: what that entry is as long as it is there.
    """

    step: int
    time: float
    blocks: tuple[Block, ...]
    start: int
    slot: int
    generation: int


class Dropped(_Message, frozen=True, tag=3):
    """A writer has given a step up, and overwrites its bytes."""

    step: int


class Bye(_Message, frozen=True, tag=4):
    """A writer announces no more steps."""


class Fate(_Message, frozen=True, tag=5):
    """What became of a step: the reason why it will not be committed; "" if it is, on the disk, whole."""

    step: int
    reason: str


class Waits(_Message, frozen=True, tag=6):
    """Why the oldest step of a writer waits now."""

    reason: str


class Refused(_Message, frozen=True, tag=7):
    """The staging node ends the connection, for a reason."""

    reason: str


FromWriter = Hello | Ready | Dropped | Bye
ToWriter = Fate | Waits | Refused
_encoder = msgspec.msgpack.Encoder()
_decoder = cache(msgspec.msgpack.Decoder)


def encode(message: FromWriter | ToWriter) -> bytes:
    """The bytes of a message; StagingError if they are too many."""
    data = _encoder.encode(message)
    if len(data) > MOST_BYTES:
        raise StagingError(f"expected a message of at most {MOST_BYTES} bytes, found {len(data)}")
    return data


def decode(data: bytes, kinds: Any) -> Any:
    """The message from another process; StagingError if it is none of ``kinds``, a union of messages."""
    try:
        return _decoder(kinds).decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StagingError(f"expected a message of staging, found {shown(error)}") from None


def check_area(version: int, variables: Sequence[Variable], ours: Sequence[Variable]) -> None:
    """Refuses who speaks another version, or declares other variables."""
    expect(version == VERSION, "version of staging", version, str(VERSION))
    # As bytes: an attribute that is NaN is not equal to itself.
    if len({msgspec.msgpack.encode(one, order="deterministic") for one in (variables, ours)}) > 1:
        found = shown(variables, 400)
        raise StagingError(f"expected the variables {shown(ours, 400)}, found {found}")


def layout(blocks: tuple[Block, ...]) -> tuple[list[int], int]:
    """Where blocks begin behind the start of their step, and how many bytes it takes."""
    starts, size = [], 0
    for block in blocks:
        starts.append(size)
        size += -(-block.nbytes // LINE) * LINE
    return starts, max(size, LINE)
