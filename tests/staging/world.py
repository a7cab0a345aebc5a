"""The staging area in a simulated world: writers, nodes and a root, with a clock, delays, tears and deaths.

What must hold is checked all the time: a step that a writer is told to be safe is in the store with its
bytes, what is committed is what the writers had, and no writer has more bytes than its budget. At the end
nothing may wait.

    python -m tests.staging.world 100      runs a hundred seeds, and prints what happened
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NamedTuple

import numpy as np

from evflow.staging.area import Root, Settings, StagingNode
from evflow.staging.gathering import Part
from evflow.staging.linking import Downlinks, Sent, Uplink
from evflow.staging.messages import VERSION, FromWriter, Hello, Ready, ToWriter, decode, encode, layout
from evflow.staging.model import Variable, whole_shape
from evflow.staging.pulling import Piece, Transfer
from evflow.staging.schedulers import (
    All,
    AvoidCongestion,
    ConstantDrain,
    Hold,
    InOrder,
    RateLimit,
    Scheduler,
)
from evflow.staging.sending import TABLE, Sending

MEMORY = 1500
LIFE = 100_000
VARIABLES = (Variable("field", "f8", (24, 6)), Variable("rows", "i4", (None, 3)))


class Failure(AssertionError):
    """Something is not as it must be."""


def rows_of(rank: int, step: int) -> int:
    """How many rows of the open variable a writer has."""
    return (rank * 7 + step * 3) % 5


def content(
    name: str, rank: int, step: int, shape: tuple[int, ...], offset: int, life: int
) -> np.ndarray[Any, Any]:
    """What a writer has in a step: told by nothing else. Each life of the writer has other bytes."""
    start = 1000 * step + offset * shape[1] if name == "field" else 1000 * step + 100 * rank
    return np.arange(start, start + shape[0] * shape[1]).reshape(shape) + LIFE * life


class Store:
    """Committed steps; outlives the root.

    Attributes:
        steps: step → ranks that are missing.
        done: step → rank → the life of the writer that the root has told.
        lives: likewise, told by the bytes.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.steps: dict[int, tuple[int, ...]] = {}
        self.done: dict[int, dict[int, int]] = {}
        self.lives: dict[int, dict[int, int]] = {}

    def commit(self, part: Part) -> None:
        """Checks a step against what its writers had."""
        step = part.step
        if step <= max(self.steps, default=-1):
            raise Failure(f"step {step} is committed behind {max(self.steps)}")
        first = {rank: data[0].view("f8")[0] for rank, data in part.data.items()}
        lives = self.lives[step] = {rank: int(value // LIFE) for rank, value in first.items()}
        for variable in VARIABLES:
            blocks = {
                rank: (block, data)
                for rank, own in part.blocks.items()
                for block, data in zip(own, part.data[rank], strict=True)
                if block.variable == variable.name
            }
            found = np.full(whole_shape(variable, [b for b, _ in blocks.values()]), -1, variable.dtype)
            for block, data in blocks.values():
                there = tuple(slice(o, o + n) for o, n in zip(block.offset, block.shape, strict=True))
                found[there] = block.view(data)
            there_are = [rank for rank in range(self.world.writers) if rank not in part.missing]
            if variable.open:
                rows = [content("rows", r, step, (rows_of(r, step), 3), 0, lives[r]) for r in there_are]
                expected = np.concatenate([np.zeros((0, 3)), *rows])
            else:
                expected = np.full((24, 6), -1.0)
                size = 24 // self.world.writers
                for r in there_are:
                    field = content("field", r, step, (size, 6), r * size, lives[r])
                    expected[r * size : (r + 1) * size] = field
            if not np.array_equal(found, expected):
                raise Failure(f"step {step}: {variable.name} is not what the writers had")
        self.steps[step], self.done[step] = part.missing, part.writers


class Connection:
    """A connection in both directions: messages arrive in order, or never once it is cut."""

    def __init__(self, world: World) -> None:
        self.world, self.open = world, True
        self._last = {True: 0.0, False: 0.0}

    def send(self, forth: bool, deliver: Callable[[], None]) -> None:
        """Delivers later."""
        world = self.world
        self._last[forth] = max(self._last[forth], world.now + world.random.random() * 0.02)
        world.at(self._last[forth], lambda: deliver() if self.open else None)


class Writer:
    """One process of the application."""

    def __init__(self, world: World, rank: int, budget: int) -> None:
        self.world, self.rank, self.budget = world, rank, budget
        self.done = self.step = 0
        self.connection: Connection | None = None
        self.alive = False
        self.start(-1)

    def start(self, last: int) -> None:
        """Begins, perhaps again: with new memory."""
        self.memory = np.zeros(self.budget, np.uint8)
        table = self.memory[:TABLE].view(np.int64)
        self.bytes = next(self.world.lives)
        hello = Hello(VERSION, self.rank, self.world.writers, VARIABLES, last, (), self.bytes)
        self.sending = Sending(hello, self.budget, self.world.full, 2000, table, "here")
        self.files: dict[int, np.ndarray[Any, Any]] = {}
        self.step, self.alive, self.life = last + 1, True, self.world.number()
        self.work(self.life)

    def kill(self) -> None:
        self.alive = False
        self.disconnect()
        self.world.tally["writers killed"] += 1
        if self.world.random.random() < 0.6:
            self.world.later(3, lambda: self.start(self.sending.safe))

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.open, rank = False, self.rank
            node = self.world.nodes[self.world.node_of[rank]]
            self.connection = None
            self.sending.disconnected()
            self.world.later(0.1, partial(node.lost, rank, node.life))

    def work(self, life: int) -> None:
        """One look at what there is to do."""
        if not self.alive or life != self.life:
            return
        world = self.world
        if self.step >= world.steps:
            self.sending.leave()
        elif world.random.random() < 0.3:
            self.write()
        if world.random.random() < 0.2:
            self.sending.table[0] ^= 1
        if self.step >= world.steps:
            self.sending.table[0] = 0
        self.flush()
        self.check()
        if self.sending.held or self.step < world.steps or not self.sending._left:
            world.later(0.06, lambda: self.work(life))
        else:
            self.done = 1

    def write(self) -> None:
        world, rank, step = self.world, self.rank, self.step
        size = 24 // world.writers
        blocks = (
            VARIABLES[0].block((size, 6), (rank * size, 0)),
            VARIABLES[1].block((rows_of(rank, step), 3)),
        )
        if world.skips and world.random.random() < 0.05:
            self.step += 1  # it has no part in this one
            return
        held = self.sending.begin(step, step / 2, blocks)
        if held is None:
            if not self.sending.why():
                raise Failure("a writer waits without a reason")
            world.tally["waits"] += 1
            return
        memory = self.memory
        if held.spilled:
            memory = self.files[step] = np.zeros(held.size, np.uint8)
            world.tally["spilled"] += 1
        for block, start in zip(blocks, layout(blocks)[0], strict=True):
            block.view(memory, held.ready.start + start)[...] = content(
                block.variable, rank, step, block.shape, block.offset[0], self.bytes
            )
        if world.skips and world.random.random() < 0.03:
            self.sending.release(step)
        else:
            self.sending.announce(step)
        self.step += 1

    def flush(self) -> None:
        """Sends what is to be sent; connects before, if it has to."""
        node = self.world.nodes[self.world.node_of[self.rank]]
        if self.connection is None and node.life and self.world.random.random() < 0.3:
            self.connection = Connection(self.world)
            self.sending.connected()
        while self.connection is not None and self.sending.outbox:
            message = self.sending.outbox.popleft()
            spilled = isinstance(message, Ready) and message.slot < 0
            source = self.files.get(message.step) if spilled else self.memory
            self.connection.send(
                True, partial(node.receive, self, self.connection, encode(message), source, node.life)
            )

    def receive(self, data: bytes) -> None:
        message = decode(data, ToWriter)
        fates = len(self.sending.fates)
        self.sending.receive(message)
        for step, reason in itertools.islice(self.sending.fates, fates, None):
            self.world.tally["gone" if reason else "safe"] += 1
            missing = self.world.store.steps.get(step)
            if not reason and (missing is None or self.rank in missing):
                raise Failure(f"rank {self.rank} was told that step {step} is safe, and it is not")
            if not reason and self.world.store.lives[step][self.rank] != self.bytes:
                raise Failure(f"rank {self.rank} was told that step {step} is safe, and the bytes are others")

    def check(self) -> None:
        """The budget."""
        held = sorted((h.ready.start, h.size) for h in self.sending.held.values() if not h.spilled)
        if TABLE + sum(size for _, size in held) > self.budget or self.sending.used > self.budget:
            raise Failure(f"rank {self.rank} has more than its budget")
        if any(a + n > b for (a, n), (b, _) in itertools.pairwise(held)):
            raise Failure(f"two steps of rank {self.rank} are in one place")


class Source(NamedTuple):
    """Where a step is: memory or a file; a writer that keeps what it has need not be copied."""

    memory: np.ndarray[Any, Any]
    table: np.ndarray[Any, Any] | None
    keeps: bool

    def blocks(self, transfer: Transfer) -> list[np.ndarray[Any, Any]]:
        """The blocks where they are."""
        start, blocks = transfer.ready.start, transfer.ready.blocks
        own = zip(transfer.starts, blocks, strict=True)
        return [self.memory[start + at :][: block.nbytes] for at, block in own] if self.keeps else []


class Node:
    """A staging node, which may die. What is on its link to the root arrives at whoever lives then, or is
    lost while the link is cut."""

    def __init__(self, world: World, name: str, ranks: range) -> None:
        self.world, self.name, self.ranks = world, name, ranks
        self.life, self.cut_until = 0, 0.0
        self.link = Connection(world)
        self.start()

    def start(self) -> None:
        world = self.world
        self.life = world.number()
        settings = world.settings(world.patience)
        self.machine = StagingNode(settings, self.ranks)
        self.uplink = Uplink(self.machine, settings, self.ranks)
        self.connected: dict[int, tuple[Connection, Writer]] = {}
        self.keeps: dict[int, bool] = {}
        self.work(self.life)

    def kill(self) -> None:
        if not self.life:
            return
        self.world.tally["nodes killed"] += 1
        self.life = 0
        for writer in self.world.processes:
            if writer.rank in self.ranks and writer.connection is not None:
                writer.connection.open, writer.connection = False, None
                writer.sending.disconnected()
        self.world.later(2, self.start)

    def lost(self, rank: int, life: int) -> None:
        if life == self.life and self.life and not (rank in self.connected and self.connected[rank][0].open):
            self.connected.pop(rank, None)
            self.machine.lost(rank, self.world.now)

    def receive(self, writer: Writer, connection: Connection, data: bytes, source: Any, life: int) -> None:
        if life != self.life:
            return
        message = decode(data, FromWriter)
        if isinstance(message, Hello):
            self.machine.hello(message, self.world.now)
            self.connected[writer.rank] = (connection, writer)
            self.keeps[writer.rank] = message.keeps
        else:
            table = (
                None
                if isinstance(message, Ready) and message.slot < 0
                else writer.memory[:TABLE].view(np.int64)
            )
            given = Source(source, table, table is not None and self.keeps[writer.rank])
            self.machine.receive(writer.rank, message, given, self.world.now)

    def work(self, life: int) -> None:
        if life != self.life:
            return
        world, machine = self.world, self.machine
        for rank, (_, writer) in self.connected.items():
            machine.pulling.phases[rank] = bool(writer.sending.table[0])
        for _ in range(world.random.randint(1, 6)):
            piece = machine.next(world.now)
            if not isinstance(piece, Piece):
                break
            self.copy(piece)
        hold = machine.gather(world.now)
        own = hold.reason if hold else ""
        above = self.uplink.turn(world.now, own)
        machine.tell(own or (above.reason if above else ""))
        while self.uplink.outbox:
            self.link.send(True, partial(world.root_hear, self, self.uplink.outbox.popleft()))
        while machine.outbox:
            rank, message = machine.outbox.popleft()
            if rank in self.connected:
                connection, writer = self.connected[rank]
                connection.send(False, partial(writer.receive, encode(message)))
        world.later(0.03, lambda: self.work(life))

    def copy(self, piece: Piece) -> None:
        """Copies in two halves, between which anything may happen."""
        transfer = piece.transfer
        if not transfer.data:
            transfer.data = [np.zeros(block.nbytes, np.uint8) for block in transfer.ready.blocks]
        memory, table, _ = transfer.source
        slot, life = transfer.ready.slot, self.life
        half = piece.size // 2

        def part(start: int, stop: int) -> None:
            if piece.size:
                transfer.data[piece.block][piece.offset + start : piece.offset + stop] = memory[
                    piece.start + start : piece.start + stop
                ]

        def end() -> None:
            if life == self.life:
                part(half, piece.size)
                self.machine.moved(piece, table is None or table[slot] == transfer.ready.generation)

        part(0, half)
        self.world.later(0.05, end)

    def hear(self, sent: Sent) -> None:
        if self.life and not self.cut:
            for _ in range(self.world.copies):
                self.uplink.receive(sent, self.world.now)

    @property
    def cut(self) -> bool:
        """Whether what is on the link is lost now."""
        return self.world.now < self.cut_until


class World:
    """One run.

    Args:
        seed: of all chance.
        deaths: whether anything dies.
    """

    def __init__(self, seed: int, deaths: bool = True) -> None:
        self.random = random = Random(seed)
        self.now, self._queue, self._count = 0.0, [], itertools.count(1)
        self.tally: Counter[str] = Counter()
        self.writers, self.steps = random.choice((1, 2, 3, 4, 6)), random.randint(3, 12)
        self.full = random.choice(("block", "drop oldest", "spill"))
        self.incomplete = random.choice(("drop", "fill"))
        # Whether writers leave steps out, and how long the others wait for one that is not there.
        self.skips, self.patience = random.random() < 0.5, random.choice((1.0, 30.0))
        self.store = Store(self)
        # Of an earlier run, whose numbers come again; chance of its own, so that the rest is as without it.
        before = Random(f"before {seed}").choice((0, 0, self.steps // 3))
        self.store.steps = dict.fromkeys(range(before), ())
        # An earlier version did not note who had written a step.
        known = dict.fromkeys(range(self.writers), 1) if self.steps % 2 else {}
        self.store.done = dict.fromkeys(range(before), known)
        self.store.lives = dict.fromkeys(range(before), dict.fromkeys(range(self.writers), 1))
        self.lives = itertools.count(2)
        count = random.randint(1, min(3, self.writers))
        cuts = sorted(random.sample(range(1, self.writers), count - 1))
        groups = [range(a, b) for a, b in itertools.pairwise([0, *cuts, self.writers])]
        self.node_of = {rank: f"node {k}" for k, group in enumerate(groups) for rank in group}
        self._kind = random.randrange(6)
        self._groups = {f"node {k}": group for k, group in enumerate(groups)}
        self._root_life = 0
        self.start_root()
        self.nodes: dict[str, Node] = {}
        self.nodes |= {name: Node(self, name, group) for name, group in self._groups.items()}
        self.processes = [
            Writer(self, rank, TABLE + random.choice((1400, 2600))) for rank in range(self.writers)
        ]
        if deaths:
            writer, node = self._kill_writer, self._kill_node
            kinds = (writer, writer, node, node, self._cut, self._cut_link, self._kill_root)
            for _ in range(random.randint(0, 6)):
                self.at(random.random() * 6, random.choice(kinds))

    def scheduler(self) -> Scheduler:
        kinds = (
            Scheduler(), ConstantDrain(2), AvoidCongestion(), InOrder(), RateLimit(20_000.0),
            All([InOrder(("rank", "step")), AvoidCongestion(), ConstantDrain(1)]),
        )  # fmt: skip
        return kinds[self._kind]

    def settings(self, patience: float) -> Settings:
        return Settings(
            list(VARIABLES), self.writers, self.scheduler(), 100, MEMORY, self.incomplete, patience
        )

    @property
    def copies(self) -> int:
        """How often a message arrives."""
        return 1 + (self.random.random() < 0.03)

    def number(self) -> int:
        """Another one each time."""
        return next(self._count)

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._count), call))

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now + self.random.random() * seconds, call)

    # --- deaths

    def _kill_node(self) -> None:
        self.random.choice(list(self.nodes.values())).kill()

    def _kill_writer(self) -> None:
        writer = self.random.choice(self.processes)
        if writer.alive and not writer.done:
            writer.kill()

    def _cut(self) -> None:
        self.random.choice(self.processes).disconnect()
        self.tally["cuts"] += 1

    def _cut_link(self) -> None:
        self.random.choice(list(self.nodes.values())).cut_until = self.now + self.random.choice(
            (0.1, 1.0, 9.0)
        )
        self.tally["links cut"] += 1

    def _kill_root(self) -> None:
        if self._root_life:
            self.tally["roots killed"] += 1
            self._root_life = 0
            self.later(self.random.choice((0.1, 8.0)), self.start_root)

    # --- the root

    def start_root(self) -> None:
        settings = self.settings(1.5 * self.patience)
        self.root = Root(settings, self._groups, self.store.done)
        self.links = Downlinks(self.root, settings, self._groups)
        self._root_life, self._oldest = self.number(), set[int]()
        self._root_work(self._root_life)

    def root_hear(self, node: Node, sent: Sent) -> None:
        if self._root_life and not node.cut:
            for _ in range(self.copies):
                self.links.receive(node.name, sent, self.now)

    def _root_work(self, life: int) -> None:
        if life != self._root_life:
            return
        root = self.root
        self._oldest.add(min(root.gathering.open, default=-1))
        found = root.next(self.now)
        self._oldest.add(min(root.gathering.open, default=-1))
        if isinstance(found, Part):
            self.later(0.1, partial(self._written, found, life))
        for name, sent in self.links.turn(found if isinstance(found, Hold) else None, self.now):
            node = self.nodes[name]
            node.link.send(False, partial(node.hear, sent))
        self._check_root()
        self.later(0.03, lambda: self._root_work(life))

    def _check_root(self) -> None:
        """The memory of the root: what it has of steps that have never been the oldest."""
        parts = [part for there in self.root.gathering.open.values() for part in there.values() if part]
        parts += [part for node in self.links._nodes.values() for part, _, _ in node.coming.values()]
        if sum(part.nbytes for part in parts if part.step not in self._oldest) > MEMORY:
            raise Failure("the root has more than its memory")

    def _written(self, part: Part, life: int) -> None:
        if life == self._root_life:
            self.store.commit(part)
            # A root may die between the commit and saying so.
            self.later(0.05, lambda: self.root.committed() if life == self._root_life else None)

    # --- the run

    def run(self) -> Counter[str]:
        """Runs until nothing waits.

        Raises:
            Failure: something is not as it must be.
        """
        while any(writer.alive and not writer.done for writer in self.processes) or self.now < 8:
            self.now, _, call = heapq.heappop(self._queue)
            call()
            if self.now > 120:
                why = [w.sending.why() for w in self.processes if w.alive and w.sending.held]
                raise Failure(f"still waiting: {why}")
        if (
            not self.skips
            and self.full != "drop oldest"
            and self.patience > 20
            and not self.tally["writers killed"]
        ):
            expected = dict.fromkeys(range(self.steps), ())
            if self.store.steps != expected:
                raise Failure(f"expected all of {self.steps} steps, whole; found {self.store.steps}")
            self.tally["complete"] += 1
        self.tally["committed"] = len(self.store.steps)
        return self.tally


def main() -> None:
    total: Counter[str] = Counter()
    for seed in range(int(sys.argv[1])):
        try:
            total += World(seed).run()
        except BaseException:
            print("seed", seed)
            raise
    print(dict(total))


if __name__ == "__main__":
    main()
