"""How staging nodes and the root of other processes reach each other, without sockets.

Either may die at any moment, and a link may lose what is on it. All that a node and the root tell each other
belongs to a *session*, in which they count: whoever misses a number ends the session. A new one begins with
nothing, and the node tells of all steps that are not decided; there is no other way to recover.
"""

from __future__ import annotations

import math
import secrets
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from evflow.errors import StagingError
from evflow.outside import shown
from evflow.schema import Schema
from evflow.schema.types import Array, i64, u8
from evflow.staging.area import Announced, Decided, FromRoot, Root, Settings, StagingNode, Wanted
from evflow.staging.gathering import Part
from evflow.staging.messages import VERSION, check_area, decode
from evflow.staging.model import Block, Variable, by_name, check_blocks, check_life, expect
from evflow.staging.schedulers import Hold
from evflow.staging.stores.direct import Bytes, aligned

TOLD = Schema(
    "staged", {"node": str, "session": i64, "number": i64, "head": bytes, "values": Array(u8, (None,))}
)
"""What a staging node and the root tell each other: ``head`` is a message as msgpack, ``values`` are bytes of
blocks."""

BEAT = 0.5
"""Seconds between two signs of life of a node."""

QUIET = 0.1
"""Seconds between two reasons that are told: each wakes a thread of every application."""

NODE = "node"
"""What a staging node is called where it is the only one, and by itself."""

SILENCE = 5.0
"""Seconds without a sign of life after which the other is taken for gone."""

_NOTHING: Bytes = np.empty(0, np.uint8)


class Here(Struct, frozen=True, array_like=True, tag=5):
    """Node to root, in no session: a sign of life. The root begins a session for each new number ``life``;
    ``why`` the oldest step waits at the node."""

    life: int
    why: str
    writers: int
    ranks: tuple[int, ...]
    variables: tuple[Variable, ...]
    version: int = 1


class Offered(Struct, frozen=True, array_like=True, tag=6):
    """Node to root: its part of a step is complete; as of ``Part``, with rank, life and blocks of each writer
    in the order of ranks."""

    step: int
    times: tuple[float, ...]
    blocks: tuple[tuple[int, int, tuple[Block, ...]], ...]
    missing: tuple[int, ...]


class Piece(Struct, frozen=True, array_like=True, tag=7):
    """Node to root: the next bytes of a part that is wanted, block after block."""

    step: int


class Alive(Struct, frozen=True, array_like=True, tag=8):
    """Root to node, the answer to a sign of life: the session, why the oldest step waits at the root, and
    whether that is for the node itself."""

    life: int
    why: str
    own: bool = False


Up = Here | Announced | Offered | Piece
Down = Alive | FromRoot


class Sent(NamedTuple):
    """One message on its way."""

    session: int
    number: int
    head: bytes
    values: Bytes = _NOTHING


@dataclass
class _Session:
    """One side of a session; ``number`` is 0 where there is none. Messages are counted from 1."""

    number: int = 0
    outbox: deque[Sent] = field(default_factory=deque)
    sent: int = 0
    taken: int = 0

    def begin(self, number: int) -> None:
        self.number, self.sent, self.taken = number, 0, 0
        self.outbox.clear()

    def say(self, message: Any, values: Bytes = _NOTHING, counted: bool = True) -> None:
        self.sent += counted
        head = msgspec.msgpack.encode(message)
        self.outbox.append(Sent(self.number, self.sent, head, values))

    def lacks(self, sent: Sent) -> bool:
        """Whether one of the messages counted before a sign of life is missing."""
        return bool(self.number) and sent.session == self.number and sent.number > self.taken

    def take(self, sent: Sent) -> bool | None:
        """Whether a message is the next; None if one before it is missing."""
        if not self.number or sent.session != self.number or sent.number <= self.taken:
            return False
        self.taken += 1
        return True if sent.number == self.taken else None


class Uplink:
    """The way of a staging node to its root; ``outbox`` has what is to be sent.

    Args:
        node: the node.
        settings: of the area.
        ranks: of the node's writers.
    """

    def __init__(self, node: StagingNode, settings: Settings, ranks: range) -> None:
        self._node, self._piece = node, settings.piece
        self._life, self._session = secrets.randbits(62), _Session()
        self._here = Here(0, "", settings.writers, tuple(ranks), tuple(settings.variables), VERSION)
        self._due, self._told, self._heard, self._alive = 0.0, "", -1.0, Alive(0, "")
        self.outbox = self._session.outbox

    def receive(self, sent: Sent, now: float) -> None:
        """Takes what the root says. StagingError if it makes no sense."""
        message = decode(sent.head, Down)
        if isinstance(message, Alive):
            if message.life != self._life:
                return
            self._heard, self._alive = now, message
            if sent.session != self._session.number:
                self._session.begin(sent.session)
                if sent.session:
                    self._node.connected()
            elif self._session.lacks(sent):
                self.end()
            return
        fits = self._session.take(sent)
        if fits is None:
            self.end()
        elif fits and (part := self._node.hear(message, now)):
            for values in self._pieces(part):
                self._session.say(Piece(part.step), values)

    def end(self) -> None:
        """Ends the session; another begins."""
        self._life, self._due = secrets.randbits(62), 0.0
        self._session.begin(0)

    def _pieces(self, part: Part) -> Iterator[Bytes]:
        for blocks in part.data.values():
            for data in blocks:
                for start in range(0, len(data), self._piece):
                    yield data[start : start + self._piece]

    def turn(self, now: float, own: str) -> Hold | None:
        """Says what there is to be said; ``own`` is why the oldest step waits at the node. Why the root does
        not decide; None if the node waits for nothing."""
        # What still waits to be sent is a sign of life, too.
        due = now >= self._due or (own != self._told and now >= self._due - BEAT + QUIET)
        if due and not self.outbox:
            self._due, self._told = now + BEAT, own
            here = msgspec.structs.replace(self._here, life=self._life, why=own)
            self._session.say(here, counted=False)
        while self._session.number and self._node.up:
            found, told = self._node.up.popleft(), None
            if isinstance(found, Part):
                blocks = tuple((rank, found.lives[rank], own) for rank, own in found.blocks.items())
                told = Offered(found.step, tuple(found.times), blocks, found.missing)
            self._session.say(told or found)
        if not self._node.waits:
            return None
        if self._heard < 0:
            return Hold("the root has not been reached yet")
        if now > self._heard + SILENCE:
            return Hold(f"the root has not answered for {SILENCE:g} s")
        return Hold(self._alive.why, child=NODE if self._alive.own else None)


@dataclass
class _Node:
    """A staging node, as the root knows it: what of its parts has come, with how many bytes are filled."""

    ranks: range
    life: int = 0
    heard: float = 0.0
    why: str = ""
    refused: str = ""
    session: _Session = field(default_factory=_Session)
    coming: dict[int, tuple[Part, Bytes, int]] = field(default_factory=dict)
    offers: dict[int, Part] = field(default_factory=dict)


class Downlinks:
    """The ways of a root to its staging nodes.

    Args:
        root: the root.
        settings: of the area.
        nodes: name of a staging node → the ranks of its writers.
    """

    def __init__(self, root: Root, settings: Settings, nodes: Mapping[str, range]) -> None:
        self._root, self._settings = root, settings
        self._variables = by_name(settings.variables)
        self._open = {name for name, variable in self._variables.items() if variable.open}
        self._nodes = {name: _Node(ranks) for name, ranks in nodes.items()}
        self._hold: Hold | None = None
        self.why = ""

    def receive(self, name: str, sent: Sent, now: float) -> None:
        """Takes what a node says. StagingError if it makes no sense: then its session has ended."""
        node = self._nodes.get(name)
        if node is None:
            raise StagingError(f"staging node {shown(name)}: expected one of {', '.join(self._nodes)}")
        message = None
        try:
            message = decode(sent.head, Up)
            if isinstance(message, Here):
                if node.session.lacks(sent):
                    self._end(name, node, now)
                self._here(name, node, message, now)
            elif (fits := node.session.take(sent)) is None:
                self._end(name, node, now)
            elif fits:
                node.heard = now
                self._take(name, node, message, sent.values, now)
        except StagingError as error:
            self._end(name, node, now)
            node.refused = f"the root refuses {name}: {error}"
            if isinstance(message, Here):
                node.session.say(Alive(message.life, node.refused), counted=False)
            raise

    def _here(self, name: str, node: _Node, message: Here, now: float) -> None:
        check_area(message.version, message.variables, self._settings.variables)
        if message.ranks != tuple(node.ranks) or message.writers != self._settings.writers:
            found = f"{shown(message.ranks)} of {message.writers}"
            raise StagingError(f"expected the ranks {node.ranks} of {self._settings.writers}, found {found}")
        node.heard, node.why = now, message.why
        if message.life != node.life:
            self._end(name, node, now)
            node.life = message.life
            node.session.begin(secrets.randbits(62) | 1)
            self._root.joined(name, now)
        self._alive(name, node)

    def _alive(self, name: str, node: _Node) -> None:
        own = self._hold is not None and self._hold.child == name
        node.session.say(Alive(node.life, node.refused or self.why, own and not node.refused), counted=False)

    def _end(self, name: str, node: _Node, now: float) -> None:
        if node.life:
            node.life = 0
            node.session.begin(0)
            node.coming.clear()
            node.offers.clear()
            self._root.lost(name, now)

    def _take(self, name: str, node: _Node, message: Any, values: Bytes, now: float) -> None:
        if isinstance(message, Offered):
            part = self._checked(node, message)
            node.offers[message.step] = part
            self._root.receive(name, part, now)
        elif isinstance(message, Announced):
            expect(0 <= message.step < 1 << 62, "step", message.step, "0 or more")
            self._root.receive(name, message, now)
        else:
            self._fill(name, node, message.step, values)

    def _checked(self, node: _Node, offered: Offered) -> Part:
        """The part that a node offers, its rows settled once more: the root relies on where they stand."""
        step, ranks = offered.step, [rank for rank, _, _ in offered.blocks]
        fits = 0 <= step < 1 << 62 and all(map(math.isfinite, offered.times))
        expect(fits and bool(offered.times) == bool(ranks), "step", (step, offered.times), "with its times")
        fits = sorted([*ranks, *offered.missing]) == list(node.ranks) and ranks == sorted(ranks)
        expect(fits, f"step {step}: ranks", ranks, f"each of {node.ranks} once, in order")
        whole, most = Part(step, set(offered.times), missing=offered.missing), self._settings.memory
        for rank, life, given in offered.blocks:
            check_life(f"step {step} of rank {rank}", life)
            blocks = tuple(block.unsettled() if block.variable in self._open else block for block in given)
            check_blocks(f"rank {rank}", self._variables, blocks)
            rows = {block.variable: block.shape[0] for block in blocks if block.variable in self._open}
            part = Part(step, set(), {rank: blocks}, {}, rows, lives={rank: life})
            what = f"step {step} of rank {rank}: bytes"
            expect(part.nbytes <= most, what, part.nbytes, f"at most {most}, the memory of the root")
            whole.append(part)
        return whole

    def _fill(self, name: str, node: _Node, step: int, values: Bytes) -> None:
        part, data, filled = node.coming.get(step, (None, _NOTHING, 0))
        if part is None:
            # It has been decided meanwhile.
            return
        expect(len(values) <= len(data) - filled, f"step {step}: bytes", len(values), "those of the blocks")
        data[filled : filled + len(values)] = values
        filled += len(values)
        node.coming[step] = (part, data, filled)
        if filled == len(data):
            del node.coming[step]
            node.refused = ""
            self._root.arrived(name, part)

    def turn(self, hold: Hold | None, now: float) -> Iterator[tuple[str, Sent]]:
        """Lets the root speak; gives what is to be sent, and to which node. ``hold`` is why the oldest step
        waits at the root; ``why`` has the reason of the node that it waits for, too."""
        for name, node in self._nodes.items():
            if now > node.heard + SILENCE:
                self._end(name, node, now)
        root = self._root
        while root.outbox:
            name, message = root.outbox.popleft()
            node = self._nodes[name]
            if not node.life:
                continue
            if isinstance(message, Wanted) and not self._prepare(name, node, message.step):
                node.refused = f"the root has no memory for step {message.step} of {name}"
                self._end(name, node, now)
                continue
            if isinstance(message, Decided):
                node.coming.pop(message.step, None)
                node.offers.pop(message.step, None)
            node.session.say(message)
        self._hold, before, self.why = hold, self.why, hold.reason if hold else ""
        if hold is not None and isinstance(hold.child, str) and self._nodes[hold.child].why:
            self.why = f"{hold.child}: {self._nodes[hold.child].why}"
        for name, node in self._nodes.items():
            if self.why != before and node.life:
                self._alive(name, node)
            while node.session.outbox:
                yield name, node.session.outbox.popleft()

    def _prepare(self, name: str, node: _Node, step: int) -> bool:
        """Makes room for the bytes of a part. False if there is no memory: the node offers it again."""
        part = node.offers.pop(step)
        try:
            data = aligned(part.nbytes)
        except MemoryError:
            return False
        start = 0
        for rank, blocks in part.blocks.items():
            part.data[rank] = []
            for block in blocks:
                part.data[rank].append(data[start : start + block.nbytes])
                start += block.nbytes
        node.coming[step] = (part, data, 0)
        if not len(data):
            del node.coming[step]
            self._root.arrived(name, part)
        return True
