"""The staging area without sockets: staging nodes, which pull from writers, and the root, which has steps
committed.

A staging node is told what its writers say, and the root what the nodes say; what either has for others is in
its outbox. The root alone decides what becomes of a step, so that all writers hear the same of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from evflow.errors import StagingError
from evflow.outside import shown
from evflow.staging.gathering import Gathering, Part
from evflow.staging.messages import Bye, Dropped, Fate, FromWriter, Hello, Ready, ToWriter, Waits, check_area
from evflow.staging.model import Variable, by_name, check_blocks, check_life, expect, trouble_with
from evflow.staging.pulling import Piece, Pulling
from evflow.staging.schedulers import Hold, Kind, Scheduler
from evflow.staging.sending import MOST_STEPS

MOST_HELD = 1 << 16
"""Steps of a writer that may wait at a staging node."""

Incomplete = Literal["drop", "fill"]


class Settings(Struct, frozen=True):
    """Settings of a staging area, as ``Stage`` describes them."""

    variables: list[Variable]
    writers: int
    scheduler: Kind = field(default_factory=Scheduler)
    piece: int = 1 << 20
    memory: int = 1 << 30
    incomplete: Incomplete = "drop"
    patience: float = 60.0
    live: dict[str, tuple[int, ...]] = {}
    compression: int = 0


class Announced(Struct, frozen=True, array_like=True, tag=1):
    """Node to root: one of the node's writers has announced a step."""

    step: int


class Opened(Struct, frozen=True, array_like=True, tag=2):
    """Root to node: the node is to put its part of a step together."""

    step: int


class Wanted(Struct, frozen=True, array_like=True, tag=3):
    """Root to node: the store lacks a step, and the root has room for the bytes of the node's part of it."""

    step: int


class Decided(Struct, frozen=True, array_like=True, tag=4):
    """Root to node: a step is committed, or will not be, for a ``reason``.

    ``writers``: rank → the life of the writer whose part is in the store, 0 if the rank is missing; without
    ranks of which an earlier version did not note it.
    """

    step: int
    reason: str
    writers: dict[int, int]


FromRoot = Opened | Wanted | Decided


class StagingNode:
    """Pulls from the writers of some ranks. The outbox has messages to writers, with their ranks, and ``up``
    what the root is to know: ``Announced``, and a ``Part`` once it is complete, whose bytes follow when the
    root wants them."""

    def __init__(self, settings: Settings, ranks: Sequence[int]) -> None:
        self._variables, self._writers = by_name(settings.variables), settings.writers
        self.pulling = Pulling(settings.scheduler, settings.piece, settings.memory)
        self.gathering = Gathering({rank: (rank,) for rank in ranks}, settings.patience)
        self._live = settings.live
        self._ranks = frozenset(ranks)
        self.outbox: deque[tuple[int, ToWriter]] = deque()
        self.up: deque[Announced | Part] = deque()
        # Parts that are complete, and that the root has not decided on.
        self._given: dict[int, Part] = {}
        # What each connected writer waits to hear of, what it was told last, and its life.
        self._asking: dict[int, set[int]] = {}
        self._told: dict[int, str] = {}
        self._lives: dict[int, int] = {}

    # --- writers

    def hello(self, hello: Hello, now: float) -> None:
        """A writer is connected; StagingError if it is refused."""
        rank, ours = hello.rank, tuple(self._variables.values())
        check_area(hello.version, hello.variables, ours)
        if rank not in self._ranks or hello.writers != self._writers:
            expected = f"expected a rank of {shown(sorted(self._ranks))} of {self._writers}"
            raise StagingError(f"rank {rank} of {hello.writers}: {expected}")
        check_life(f"rank {rank}", hello.life)
        expect(len(hello.held) <= MOST_HELD, "steps held:", len(hello.held), f"at most {MOST_HELD}")
        pulled = {step for step, other in self.pulling.transfers if other == rank}
        held = [step for step in {*hello.held, *pulled} if step not in self._given]
        self.gathering.joined(rank, hello.last, held, now)
        self._asking[rank] = set(hello.held)
        self._lives[rank] = hello.life
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
        self._asking[rank].add(step)
        if step not in self._given and not self.gathering.has(rank, step):
            self.gathering.announced(rank, step, now)
            self.up.append(Announced(step))
            self.pulling.offer(rank, self._lives[rank], ready, source, now)

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
            rank, life = transfer.rank, transfer.life
            part = Part.of(rank, life, transfer.ready, self._variables, transfer.data)
            self.gathering.arrived(transfer.rank, part)
        elif was_there and transfer.cancelled:
            self.gathering.withdrawn(transfer.rank, transfer.step)

    # --- the root

    def gather(self, now: float) -> Hold | None:
        """Puts parts for the root into ``up``. Why the oldest one is not complete; None if none is open."""
        while isinstance(found := self.gathering.next(now), Part):
            self._given[found.step] = found
            self.gathering.close(found.step)
            self.up.append(found)
        return found

    def connected(self) -> None:
        """The root is there anew, and is told of all that is not decided."""
        self.up.clear()
        self.up.extend(Announced(step) for step in sorted({*self.gathering.open, *self._given}))
        self.up.extend(self._given.values())

    @property
    def waits(self) -> bool:
        """Whether there is a step that is not decided."""
        return bool(self._given or self.gathering.open)

    def hear(self, message: FromRoot, now: float) -> Part | None:
        """Takes what the root says. The part whose bytes it wants; None if there is none, or not any more."""
        if isinstance(message, Wanted):
            return self._given.get(message.step)
        if isinstance(message, Decided):
            self.decided(message)
        elif message.step not in self._given:
            self.gathering.opened(message.step, now)
        return None

    def decided(self, decision: Decided) -> None:
        """The root has decided on a step; the writers that hold it hear of it. It is safe for those that the
        store names, in this life."""
        step = decision.step
        self._given.pop(step, None)
        self.gathering.close(step)
        self.pulling.release(step)
        for rank in [rank for rank, asked in self._asking.items() if step in asked]:
            self._asking[rank].discard(step)
            reason, life = decision.reason, decision.writers.get(rank)
            if not reason and life == 0:
                reason = f"step {step} was committed without the part of rank {rank}, which came too late"
            elif not reason and life != self._lives[rank]:
                reason = f"step {step} is in the store with bytes of another process that was rank {rank}"
            self.outbox.append((rank, Fate(step, reason)))

    def tell(self, why: str) -> None:
        """Tells each connected writer that holds steps why they wait, unless it was told so last."""
        for rank, asked in self._asking.items():
            if asked and self._told.get(rank, "") != why:
                self._told[rank] = why
                self.outbox.append((rank, Waits(why)))


class Root:
    """Decides what becomes of steps; the outbox has what nodes are to know, with their names.

    Args:
        settings: of the area.
        nodes: name of a staging node → the ranks of its writers, in the order in which rows of open variables
            stand.
        done: step → the writers in it, as of ``Decided``: of the steps that are committed. Who commits adds
            to it.
    """

    def __init__(
        self, settings: Settings, nodes: Mapping[str, Sequence[int]], done: Mapping[int, Mapping[int, int]]
    ) -> None:
        self._variables, self._incomplete = by_name(settings.variables), settings.incomplete
        self.gathering = Gathering({node: nodes[node] for node in nodes}, settings.patience)
        self._nodes, self._done = nodes, done
        self._newest, self._memory = max(self._done, default=-1), settings.memory
        self.outbox: deque[tuple[str, FromRoot]] = deque()
        # By step and node: parts whose bytes are not wanted yet; the sizes of those that have been.
        self._offers: dict[tuple[int, str], Part] = {}
        self._sizes: dict[tuple[int, str], int] = {}
        self.committing: Part | None = None

    def joined(self, node: str, now: float) -> None:
        """A staging node is connected, and knows nothing. A part that it gave before stays until it has the
        same again."""
        self._forget(node)
        self.gathering.joined(node, -1, (), now)
        steps = sorted(self.gathering.open)
        self.outbox.extend((node, Opened(step)) for step in steps if not self.gathering.has(node, step))

    def lost(self, node: str, now: float) -> None:
        """The connection to a node has ended."""
        self._forget(node)
        self.gathering.lost(node, now, offers=False)

    def _forget(self, node: str) -> None:
        """What a node has offered, and what of it has not arrived, comes anew or not at all."""
        self.outbox = deque(told for told in self.outbox if told[0] != node)
        for key in [key for key in (*self._offers, *self._sizes) if key[1] == node]:
            self._offers.pop(key, None)
            if not self.gathering.has(node, key[0]):
                self._sizes.pop(key, None)

    def receive(self, node: str, message: Announced | Part, now: float) -> None:
        """Takes what a node says."""
        step = message.step
        if step in self._done:
            self._tell(node, step)
        elif step < self._newest:
            self._tell(node, step, self._late(step))
        else:
            if step not in self.gathering.open:
                self.outbox.extend((other, Opened(step)) for other in self._nodes)
            self.gathering.opened(step, now)
            if isinstance(message, Part):
                self._offers[step, node] = message

    def arrived(self, node: str, part: Part) -> None:
        """The bytes of a part that was wanted are here."""
        self.gathering.arrived(node, part)

    def _want(self) -> None:
        """Asks for the bytes of offered parts, the oldest first, as long as there is room. Those of the
        oldest step come even beyond that, so nothing gets stuck."""
        for step, node in sorted(self._offers):
            if self.committing is not None and step == self.committing.step:
                # It is being written as it was; the node hears of it soon.
                continue
            size = self._offers[step, node].nbytes
            used = sum(self._sizes.values()) - self._sizes.get((step, node), 0)
            if step > min(self.gathering.open) and used + size > self._memory:
                break
            del self._offers[step, node]
            self._sizes[step, node] = size
            self.gathering.again(node, step)
            self.outbox.append((node, Wanted(step)))

    def next(self, now: float) -> Part | Hold | None:
        """A whole step to commit, after which ``committed`` has to follow; why there is none; None if no
        step is known."""
        found = self._next(now)
        self._want()
        return found

    def _next(self, now: float) -> Part | Hold | None:
        if self.committing is not None:
            return Hold(f"step {self.committing.step} is being written")
        while isinstance(found := self.gathering.next(now), Part):
            reason = self._trouble(found)
            if not reason:
                self.committing = found
                return found
            self._decide(found.step, reason)
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
            self._newest = part.step
            self._decide(part.step)
            # Announced while that was written. Who has a part may have been told already, and says no more.
            for step in [step for step in self.gathering.open if step < part.step]:
                self._decide(step, self._late(step))

    def _late(self, step: int) -> str:
        return f"step {step} came after step {self._newest} was committed"

    def _decide(self, step: int, reason: str = "") -> None:
        self.gathering.close(step)
        for node in self._nodes:
            self._offers.pop((step, node), None)
            self._sizes.pop((step, node), None)
            self._tell(node, step, reason)

    def _tell(self, node: str, step: int, reason: str = "") -> None:
        known = {} if reason else self._done[step]
        writers = {rank: known[rank] for rank in self._nodes[node] if rank in known}
        self.outbox.append((node, Decided(step, reason, writers)))


def _listed(values: Sequence[float]) -> str:
    """The first of some numbers: a reason has to fit into a message."""
    more = f" and {len(values) - 10} more" if len(values) > 10 else ""
    return ", ".join(map(repr, values[:10])) + more
