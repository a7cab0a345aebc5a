"""The staging area without sockets: staging nodes, which pull from writers, and the root, which has steps
committed.

A staging node is told what its writers say, and the root what the nodes say; all that either wants to tell
others is in its outbox. The root alone decides what becomes of a step, so that all writers hear the same of
it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from evflow.errors import StagingError
from evflow.outside import shown
from evflow.staging.gathering import Gathering, Part, part_of
from evflow.staging.messages import (
    VERSION,
    Bye,
    Dropped,
    FromWriter,
    Gone,
    Hello,
    Ready,
    Safe,
    ToWriter,
    Waits,
    same,
)
from evflow.staging.model import Variable, check_block, trouble_with
from evflow.staging.pulling import Piece, Pulling
from evflow.staging.schedulers import Hold, Scheduler
from evflow.staging.sending import MOST_STEPS

MOST_HELD = 1 << 16
"""Steps of a writer that may wait at a staging node."""

_LISTED = 10

Incomplete = Literal["drop", "fill"]


class Announced(NamedTuple):
    """Node to root: one of the node's writers has announced a step."""

    step: int


class Opened(NamedTuple):
    """Root to node: the node is to put its part of a step together."""

    step: int


class Decided(NamedTuple):
    """Root to node: a step is committed, or will not be.

    Attributes:
        step: its number.
        reason: why it will not be committed; "" if it is.
        missing: ranks whose part is not in it, if it is committed.
    """

    step: int
    reason: str
    missing: tuple[int, ...] = ()


class StagingNode:
    """Pulls from some of the writers.

    Args:
        variables: what is written, by name.
        ranks: the writers that it pulls from, in order.
        writers: how many there are at all nodes.
        scheduler: when it pulls what.
        piece: bytes that it pulls at a time, at most.
        memory: bytes of steps that it may hold; the oldest step is pulled even beyond that.
        patience: seconds that a step waits for a writer that is not connected.
        done: step → ranks that are missing in it, of the steps that are committed already.

    Attributes:
        outbox: messages to writers, with their ranks.
        up: what the root is to know: ``Announced``, and a ``Part`` once it is complete.
        pulling: its transfers.
    """

    def __init__(
        self,
        variables: Mapping[str, Variable],
        ranks: Sequence[int],
        writers: int,
        scheduler: Scheduler,
        piece: int,
        memory: int,
        patience: float,
        done: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
    ) -> None:
        self._variables, self._writers = variables, writers
        self._done = dict(done)
        self.pulling = Pulling(scheduler, piece, memory)
        self.gathering = Gathering({rank: (rank,) for rank in ranks}, patience)
        self._ranks = frozenset(ranks)
        self.outbox: deque[tuple[int, ToWriter]] = deque()
        self.up: deque[Announced | Part] = deque()
        # Steps that the root has the part of, and has not decided.
        self._given: set[int] = set()
        self._asking: dict[int, set[int]] = {}
        # Steps that writers told of with their hello: only these may have been committed with their bytes.
        self._again: dict[int, frozenset[int]] = {}
        self._told: dict[int, str] = {}

    # --- writers

    def hello(self, hello: Hello, now: float) -> str:
        """A writer is connected. Why it is refused; "" if it is not."""
        ours = tuple(self._variables.values())
        if hello.version != VERSION:
            return f"expected version {VERSION} of staging, found {hello.version}"
        if hello.rank not in self._ranks or hello.writers != self._writers:
            return (
                f"rank {hello.rank} of {hello.writers}: expected a rank of {shown(sorted(self._ranks))} "
                f"of {self._writers}"
            )
        # As bytes: an attribute that is NaN is not equal to itself.
        if same(hello.variables) != same(ours):
            return f"expected the variables {shown(ours, 400)}, found {shown(hello.variables, 400)}"
        if len(hello.held) > MOST_HELD:
            return f"expected at most {MOST_HELD} steps, found {len(hello.held)}"
        rank = hello.rank
        pulled = {step for step, other in self.pulling.transfers if other == rank}
        held = [step for step in {*hello.held, *pulled} if step not in self._given]
        self.gathering.joined(rank, hello.last, held, now)
        self._asking[rank] = set(hello.held)
        self._again[rank] = frozenset(hello.held)
        self._told.pop(rank, None)
        self.up.extend(Announced(step) for step in sorted(held))
        return ""

    def receive(self, rank: int, message: FromWriter, source: Any, now: float) -> bool:
        """Takes a message of a connected writer other than ``Hello``.

        Args:
            rank: the writer's.
            message: what it says.
            source: what the bytes of a ``Ready`` are read from.
            now: seconds.

        Returns:
            Whether the source is used.

        Raises:
            StagingError: it makes no sense; the connection should end.
        """
        if isinstance(message, Ready):
            return self._ready(rank, message, source, now)
        if isinstance(message, Dropped):
            self._asking[rank].discard(message.step)
            if self.pulling.drop(message.step, rank):
                self.gathering.withdrawn(rank, message.step)
        elif isinstance(message, Bye):
            self.gathering.left(rank)
        else:
            raise StagingError(f"rank {rank}: a second hello")
        return False

    def _ready(self, rank: int, ready: Ready, source: Any, now: float) -> bool:
        step, most = ready.step, self.pulling.memory
        places = 0 <= step < 1 << 62 and 0 <= ready.start < 1 << 62 and -1 <= ready.slot <= MOST_STEPS
        if not places or not math.isfinite(ready.time):
            raise StagingError(f"rank {rank}: expected a step that may be, found {shown(ready)}")
        if len(self._asking[rank]) >= MOST_HELD:
            raise StagingError(f"rank {rank}: expected at most {MOST_HELD} steps")
        names = [block.variable for block in ready.blocks]
        for block in ready.blocks:
            if block.variable not in self._variables or names.count(block.variable) > 1:
                raise StagingError(
                    f"rank {rank}: expected at most one block of each variable, found {shown(names)}"
                )
            check_block(self._variables[block.variable], block)
        if (size := sum(block.nbytes for block in ready.blocks)) > most:
            raise StagingError(
                f"step {step} of rank {rank} has {size} bytes: the stage has memory for {most}"
            )
        self.gathering.passed(rank, step)
        if step in self._done and step not in self._again[rank] and rank not in self._done[step]:
            self.outbox.append(
                (rank, Gone(step, f"step {step} was in the store before rank {rank} announced it"))
            )
            return False
        self._asking[rank].add(step)
        if step in self._given or self.gathering.has(rank, step):
            return False
        self.gathering.announced(rank, step, now)
        self.up.append(Announced(step))
        return self.pulling.offer(rank, ready, source, now)

    def lost(self, rank: int, now: float) -> None:
        """The connection to a writer has ended; what it announced is pulled all the same, if its source
        lasts."""
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
        was_there = not piece.transfer.cancelled
        done = self.pulling.moved(piece, valid)
        transfer = piece.transfer
        if done is not None:
            part = part_of(done.rank, done.step, done.ready.time, done.ready.blocks, self._variables)
            part.data[done.rank] = done.data
            self.gathering.arrived(done.rank, part)
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
        for rank, asked in self._asking.items():
            if step not in asked:
                continue
            asked.discard(step)
            reason = decision.reason
            if rank in decision.missing:
                reason = f"step {step} was committed without the part of rank {rank}, which came too late"
            self.outbox.append((rank, Gone(step, reason) if reason else Safe(step)))

    def tell(self, why: str) -> None:
        """Tells each connected writer that holds steps why they wait, if that has changed."""
        for rank, asked in self._asking.items():
            if asked and self._told.get(rank) != why:
                self._told[rank] = why
                self.outbox.append((rank, Waits(why)))


class Root:
    """Decides what becomes of steps.

    Args:
        variables: what is written, by name.
        nodes: name of a staging node → the ranks of its writers, in the order in which rows of open variables
            stand.
        incomplete: what becomes of a step that lacks the part of a writer, or elements.
        patience: seconds that a step waits for a node that is not connected.
        done: step → ranks that are missing in it, of the steps that are committed already.

    Attributes:
        outbox: what nodes are to know, with their names.
        committing: what is being committed.
    """

    def __init__(
        self,
        variables: Mapping[str, Variable],
        nodes: Mapping[str, Sequence[int]],
        incomplete: Incomplete,
        patience: float,
        done: Mapping[int, tuple[int, ...]],
    ) -> None:
        self._variables, self._incomplete = variables, incomplete
        self.gathering = Gathering({node: nodes[node] for node in nodes}, patience)
        self._nodes = list(nodes)
        self._done = dict(done)
        self._newest = max(self._done, default=-1)
        self.outbox: deque[tuple[str, Opened | Decided]] = deque()
        self.committing: Part | None = None

    def joined(self, node: str, now: float) -> None:
        """A staging node is connected, and knows nothing."""
        self.gathering.joined(node, -1, (), now)
        steps = self.gathering.steps
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
            self.outbox.append(
                (node, Decided(step, f"step {step} came after step {self._newest} was committed"))
            )
        elif isinstance(message, Part):
            self.gathering.opened(step, now)
            self.gathering.arrived(node, message)
        elif step not in self.gathering.steps:
            self.gathering.opened(step, now)
            self.outbox.extend((other, Opened(step)) for other in self._nodes)

    def next(self, now: float) -> Part | Hold | None:
        """What to commit next; ``committed`` has to follow.

        Returns:
            A whole step; why there is none; or None if no step is known.
        """
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
            if variable.open:
                own = (part.rows.get(name, 0), name)
                dimension = variable.dimensions[0]
                size, first = sizes.setdefault(dimension, own)
                if size != own[0]:
                    return (
                        f"{what}{dimension}: expected one size, found {size} ({first}) and {own[0]} ({name})"
                    )
            blocks = {
                rank: block
                for rank, blocks_ in part.blocks.items()
                for block in blocks_
                if block.variable == name
            }
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
    more = f" and {len(values) - _LISTED} more" if len(values) > _LISTED else ""
    return ", ".join(map(repr, values[:_LISTED])) + more
