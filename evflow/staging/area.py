"""The staging area without sockets: staging nodes, which pull from writers, and the root, which has steps
committed.

A staging node is told what its writers say, and the root what the nodes say; what either has for others is in
its outbox. The root alone decides what becomes of a step, so that all writers hear the same of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from evflow.errors import StagingError
from evflow.outside import shown
from evflow.staging.gathering import Gathering, Part
from evflow.staging.messages import VERSION, Bye, Dropped, Fate, FromWriter, Hello, Ready, ToWriter, Waits
from evflow.staging.model import Variable, alike, by_name, check_blocks, expect, trouble_with
from evflow.staging.pulling import Piece, Pulling
from evflow.staging.schedulers import Hold, Kind
from evflow.staging.sending import MOST_STEPS

MOST_HELD = 1 << 16
"""Steps of a writer that may wait at a staging node."""

Incomplete = Literal["drop", "fill"]


class Settings(Struct, frozen=True):
    """Settings of a staging area, as ``Stage`` describes them."""

    variables: list[Variable]
    writers: int
    scheduler: Kind
    piece: int
    memory: int
    incomplete: Incomplete
    patience: float
    live: dict[str, tuple[int, ...]] = {}


class Announced(NamedTuple):
    """Node to root: one of the node's writers has announced a step."""

    step: int


class Opened(NamedTuple):
    """Root to node: the node is to put its part of a step together."""

    step: int


class Decided(NamedTuple):
    """Root to node: a step is committed, without the ranks ``missing``, or will not be, for a ``reason``."""

    step: int
    reason: str
    missing: tuple[int, ...] = ()


class StagingNode:
    """Pulls from the writers of some ranks; ``done`` as of ``Root``. The outbox has messages to writers, with
    their ranks, and ``up`` what the root is to know: ``Announced``, and a ``Part`` once it is complete."""

    def __init__(self, settings: Settings, ranks: Sequence[int], done: Mapping[int, tuple[int, ...]]) -> None:
        self._variables, self._writers = by_name(settings.variables), settings.writers
        self.pulling = Pulling(settings.scheduler, settings.piece, settings.memory)
        self.gathering = Gathering({rank: (rank,) for rank in ranks}, settings.patience)
        self._done, self._live = dict(done), settings.live
        self._ranks = frozenset(ranks)
        self.outbox: deque[tuple[int, ToWriter]] = deque()
        self.up: deque[Announced | Part] = deque()
        # Steps that the root has the part of, and has not decided.
        self._given: set[int] = set()
        # What each connected writer waits to hear of, and what it was told last.
        self._asking: dict[int, set[int]] = {}
        self._told: dict[int, str] = {}
        # Steps that writers told of with their hello: only these may have been committed with their bytes.
        self._again: dict[int, frozenset[int]] = {}

    # --- writers

    def hello(self, hello: Hello, now: float) -> None:
        """A writer is connected; StagingError if it is refused."""
        rank, ours = hello.rank, tuple(self._variables.values())
        expect(hello.version == VERSION, "version of staging", hello.version, str(VERSION))
        if rank not in self._ranks or hello.writers != self._writers:
            expected = f"expected a rank of {shown(sorted(self._ranks))} of {self._writers}"
            raise StagingError(f"rank {rank} of {hello.writers}: {expected}")
        if not alike(hello.variables, ours):
            found = shown(hello.variables, 400)
            raise StagingError(f"expected the variables {shown(ours, 400)}, found {found}")
        expect(len(hello.held) <= MOST_HELD, "steps held:", len(hello.held), f"at most {MOST_HELD}")
        pulled = {step for step, other in self.pulling.transfers if other == rank}
        held = [step for step in {*hello.held, *pulled} if step not in self._given]
        self.gathering.joined(rank, hello.last, held, now)
        self._asking[rank] = set(hello.held)
        self._again[rank] = frozenset(hello.held)
        self._told.pop(rank, None)
        self.up.extend(Announced(step) for step in sorted(held))

    def receive(self, rank: int, message: FromWriter, source: Any, now: float) -> None:
        """Takes what a connected writer says after its ``Hello``; ``source`` has the bytes of a ``Ready``.
        StagingError if it makes no sense: the connection should end."""
        if isinstance(message, Ready):
            self._ready(rank, message, source, now)
        elif isinstance(message, Dropped):
            self._asking[rank].discard(message.step)
            if self.pulling.drop(message.step, rank):
                self.gathering.withdrawn(rank, message.step)
        elif isinstance(message, Bye):
            self.gathering.left(rank)
        else:
            raise StagingError(f"rank {rank}: a second hello")

    def _ready(self, rank: int, ready: Ready, source: Any, now: float) -> None:
        step, most = ready.step, self.pulling.memory
        places = 0 <= step < 1 << 62 and 0 <= ready.start < 1 << 62 and -1 <= ready.slot <= MOST_STEPS
        expect(places and math.isfinite(ready.time), f"rank {rank}:", ready, "a step that may be")
        held = len(self._asking[rank])
        expect(held < MOST_HELD, f"rank {rank}: steps held:", held, f"fewer than {MOST_HELD}")
        check_blocks(f"rank {rank}", self._variables, ready.blocks)
        for block in ready.blocks:
            shape = self._live.get(block.variable, block.shape)
            what = f"rank {rank}: block of {block.variable}: shape"
            expect(block.shape == shape, what, block.shape, f"{shape}, as the stage hands it on")
        size = sum(block.nbytes for block in ready.blocks)
        what = f"step {step} of rank {rank}: bytes"
        expect(size <= most, what, size, f"at most {most}, the memory of the stage")
        self.gathering.passed(rank, step)
        if step in self._done and step not in self._again[rank] and rank not in self._done[step]:
            why = f"step {step} was in the store before rank {rank} announced it"
            self.outbox.append((rank, Fate(step, why)))
            return
        self._asking[rank].add(step)
        if step not in self._given and not self.gathering.has(rank, step):
            self.gathering.announced(rank, step, now)
            self.up.append(Announced(step))
            self.pulling.offer(rank, ready, source, now)

    def lost(self, rank: int, now: float) -> None:
        """The connection to a writer has ended; what it has announced is pulled all the same."""
        self.gathering.lost(rank, now)
        # Nobody is disturbed any more.
        self.pulling.phases.pop(rank, None)
        for step in self._asking.pop(rank, ()):
            if (step, rank) not in self.pulling.transfers:
                self.gathering.withdrawn(rank, step)

    # --- bytes

    def next(self, now: float) -> Piece | Hold | None:
        """What to pull next; see ``Pulling.next``."""
        behind = [(rank, last) for rank, last in self.gathering.behind if isinstance(rank, int)]
        return self.pulling.next(behind, now)

    def moved(self, piece: Piece, valid: bool) -> None:
        """A piece has been pulled, or was not ``valid`` any more: the writer has dropped the step."""
        transfer, was_there = piece.transfer, not piece.transfer.cancelled
        if self.pulling.moved(piece, valid):
            part = Part.of(transfer.rank, transfer.ready, self._variables, transfer.data)
            self.gathering.arrived(transfer.rank, part)
        elif was_there and transfer.cancelled:
            self.gathering.withdrawn(transfer.rank, transfer.step)

    # --- the root

    def gather(self, now: float) -> Hold | None:
        """Puts parts for the root into ``up``. Why the oldest one is not complete; None if none is open."""
        while isinstance(found := self.gathering.next(now), Part):
            self._given.add(found.step)
            self.gathering.close(found.step)
            self.up.append(found)
        return found

    def opened(self, step: int, now: float) -> None:
        """The root wants the node's part of a step."""
        if step not in self._given:
            self.gathering.opened(step, now)

    def decided(self, decision: Decided) -> None:
        """The root has decided on a step; the writers that hold it hear of it."""
        step = decision.step
        if not decision.reason:
            self._done[step] = decision.missing
        self._given.discard(step)
        self.gathering.close(step)
        self.pulling.release(step)
        for rank in [rank for rank, asked in self._asking.items() if step in asked]:
            self._asking[rank].discard(step)
            late = f"step {step} was committed without the part of rank {rank}, which came too late"
            self.outbox.append((rank, Fate(step, late if rank in decision.missing else decision.reason)))

    def tell(self, why: str) -> None:
        """Tells each connected writer that holds steps why they wait, if that has changed."""
        for rank, asked in self._asking.items():
            if asked and self._told.get(rank) != why:
                self._told[rank] = why
                self.outbox.append((rank, Waits(why)))


class Root:
    """Decides what becomes of steps; the outbox has what nodes are to know, with their names.

    Args:
        settings: of the area.
        nodes: name of a staging node → the ranks of its writers, in the order in which rows of open variables
            stand.
        done: step → ranks that are missing in it, of the steps that are committed already.
    """

    def __init__(
        self, settings: Settings, nodes: Mapping[str, Sequence[int]], done: Mapping[int, tuple[int, ...]]
    ) -> None:
        self._variables, self._incomplete = by_name(settings.variables), settings.incomplete
        self.gathering = Gathering({node: nodes[node] for node in nodes}, settings.patience)
        self._nodes, self._done = list(nodes), dict(done)
        self._newest = max(self._done, default=-1)
        self.outbox: deque[tuple[str, Opened | Decided]] = deque()
        self.committing: Part | None = None

    def joined(self, node: str, now: float) -> None:
        """A staging node is connected, and knows nothing."""
        self.gathering.joined(node, -1, (), now)
        steps = sorted(self.gathering.open)
        self.outbox.extend((node, Opened(step)) for step in steps if not self.gathering.has(node, step))

    def lost(self, node: str, now: float) -> None:
        """The connection to a node has ended."""
        self.gathering.lost(node, now, offers=False)

    def receive(self, node: str, message: Announced | Part, now: float) -> None:
        """Takes what a node says."""
        step = message.step
        if step in self._done:
            self.outbox.append((node, Decided(step, "", self._done[step])))
        elif step < self._newest:
            late = f"step {step} came after step {self._newest} was committed"
            self.outbox.append((node, Decided(step, late)))
        elif isinstance(message, Part):
            self.gathering.opened(step, now)
            self.gathering.arrived(node, message)
        elif step not in self.gathering.open:
            self.gathering.opened(step, now)
            self.outbox.extend((other, Opened(step)) for other in self._nodes)

    def next(self, now: float) -> Part | Hold | None:
        """A whole step to commit, after which ``committed`` has to follow; why there is none; None if no
        step is known."""
        if self.committing is not None:
            return Hold(f"step {self.committing.step} is being written")
        while isinstance(found := self.gathering.next(now), Part):
            reason = self._trouble(found)
            if not reason:
                self.committing = found
                return found
            self._decide(Decided(found.step, reason))
        return found

    def _trouble(self, part: Part) -> str:
        """Why a step may not be committed; "" if it may."""
        fills = self._incomplete == "fill" and bool(part.blocks)
        what = f"step {part.step} is not committed: "
        if part.missing and not fills:
            return f"{what}it lacks the part of rank {_listed(part.missing)}"
        if len(part.times) > 1:
            return f"{what}its writers give it the times {_listed(sorted(part.times))}"
        sizes: dict[str, tuple[int, str]] = {}
        for name, variable in self._variables.items():
            blocks = {rank: block for rank, block, _ in part.of_variable(name)}
            if variable.open:
                dimension, rows = variable.dimensions[0], part.rows.get(name, 0)
                size, first = sizes.setdefault(dimension, (rows, name))
                if size != rows:
                    both = f"{size} ({first}) and {rows} ({name})"
                    return f"{what}{dimension}: expected one size, found {both}"
            if found := trouble_with(variable, blocks, gaps=fills):
                return what + found
        return ""

    def committed(self) -> None:
        """What was to be committed is on the disk."""
        part, self.committing = self.committing, None
        if part is not None:
            self._done[part.step] = part.missing
            self._newest = part.step
            self._decide(Decided(part.step, "", part.missing))

    def _decide(self, decision: Decided) -> None:
        self.gathering.close(decision.step)
        self.outbox.extend((node, decision) for node in self._nodes)


def _listed(values: Sequence[float]) -> str:
    """The first of some numbers: a reason has to fit into a message."""
    more = f" and {len(values) - 10} more" if len(values) > 10 else ""
    return ", ".join(map(repr, values[:10])) + more
