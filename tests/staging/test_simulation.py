"""The staging area in simulated worlds, and faults planted into it that these worlds must find."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from evflow.errors import StagingError
from evflow.net.node.arena import FreeList
from evflow.staging import area, gathering, schedulers, sending
from evflow.staging.area import Decided, Root, StagingNode
from evflow.staging.gathering import Gathering, Part
from evflow.staging.linking import Downlinks, _Session
from evflow.staging.messages import Dropped, Fate, Hello
from evflow.staging.pulling import Pulling
from evflow.staging.sending import Sending
from tests.examples import tried
from tests.staging.world import Failure, World

Patch = pytest.MonkeyPatch


def test_nothing_is_lost_changed_or_stuck() -> None:
    for seed in range(tried(20)):
        World(seed).run()


def test_worlds_see_everything_happen() -> None:
    seen = sum((World(seed).run() for seed in range(1000, 1008)), World(999).tally)
    events = "safe gone committed waits spilled cuts".split()
    assert all(seen[event] for event in [*events, "nodes killed", "roots killed", "links cut"])


def tells_safe_before_the_commit(patch: Patch) -> None:
    real = Root.next

    def next(self: Root, now: float) -> Any:
        found = real(self, now)
        if isinstance(found, Part):
            self.outbox.extend((node, Decided(found.step, "", found.writers)) for node in self._nodes)
        return found

    patch.setattr(Root, "next", next)


def tells_all_ranks_safe(patch: Patch) -> None:
    real = StagingNode.decided

    def decided(self: StagingNode, told: Decided) -> None:
        writers = {rank: life or self._lives.get(rank, 1) for rank, life in told.writers.items()}
        real(self, replace(told, writers=writers))

    patch.setattr(StagingNode, "decided", decided)


def believes_every_copy(patch: Patch) -> None:
    real = Pulling.moved
    patch.setattr(Pulling, "moved", lambda self, piece, valid: real(self, piece, True))


def overwrites_without_a_word(patch: Patch) -> None:
    def release(self: Sending, step: int) -> None:
        held = self.held.pop(step)
        if not held.spilled:
            self._slots.append(held.ready.slot)
            self._free.give(held.ready.start, held.size)

    patch.setattr(Sending, "release", release)
    believes_every_copy(patch)


def keeps_what_it_drops(patch: Patch) -> None:
    real = Sending.__init__

    def init(self: Sending, *given: Any) -> None:
        real(self, *given)
        self.hello = replace(self.hello, keeps=True)

    patch.setattr(Sending, "__init__", init)


def forgets_the_budget(patch: Patch) -> None:
    real = FreeList.take
    patch.setattr(FreeList, "take", lambda self, length: real(self, length) or sending.TABLE)


def settles_no_offsets(patch: Patch) -> None:
    patch.setattr(gathering.Block, "moved", lambda self, rows: self)


def forgets_rows_of_earlier_children(patch: Patch) -> None:
    real = Part.append

    def append(self: Part, other: Part) -> None:
        self.rows = {}
        real(self, other)

    patch.setattr(Part, "append", append)


def announces_nothing_again(patch: Patch) -> None:
    real = Sending.connected

    def connected(self: Sending) -> None:
        real(self)
        first = self.outbox.popleft()
        self.outbox.clear()
        assert isinstance(first, Hello)
        self.outbox.append(replace(first, held=()))

    patch.setattr(Sending, "connected", connected)


def tells_a_new_node_of_no_open_step(patch: Patch) -> None:
    real = Root.joined

    def joined(self: Root, node: str, now: float) -> None:
        real(self, node, now)
        self.outbox.clear()

    patch.setattr(Root, "joined", joined)


def tells_no_other_node_of_a_step(patch: Patch) -> None:
    patch.setattr(area, "Opened", lambda step: Decided(-1, "nothing", {}))


def waits_for_the_dead(patch: Patch) -> None:
    real = Gathering.lost
    patch.setattr(
        Gathering, "lost", lambda self, child, now, offers=True: real(self, child, now + 1e9, offers)
    )


def does_not_disturb_the_dead(patch: Patch) -> None:
    real = StagingNode.lost

    def lost(self: StagingNode, rank: int, now: float) -> None:
        phases = dict(self.pulling.phases)
        real(self, rank, now)
        self.pulling.phases.update(phases)

    patch.setattr(StagingNode, "lost", lost)


def commits_what_comes_late(patch: Patch) -> None:
    real = Root.committed

    def committed(self: Root) -> None:
        real(self)
        self._newest = -1

    patch.setattr(Root, "committed", committed)


def forgets_what_is_committed(patch: Patch) -> None:
    real = Root.__init__

    def init(self: Root, settings: Any, nodes: Any, done: Any) -> None:
        real(self, settings, nodes, {})

    patch.setattr(Root, "__init__", init)


def leaves_out_a_piece(patch: Patch) -> None:
    real = Pulling._cut
    count = itertools.count()

    def cut(self: Pulling, transfer: Any, now: float) -> Any:
        piece = real(self, transfer, now)
        return piece._replace(size=0) if next(count) % 50 == 49 else piece

    patch.setattr(Pulling, "_cut", cut)


def pulls_only_what_fits(patch: Patch) -> None:
    real = Pulling.next

    def next(self: Pulling, behind: Any, now: float) -> Any:
        if self.used > self.memory // 4 and not any(t.begun and t.left for t in self.transfers.values()):
            return schedulers.Hold("full")
        return real(self, behind, now)

    patch.setattr(Pulling, "next", next)


def drops_without_a_word(patch: Patch) -> None:
    real = StagingNode.receive

    def receive(self: StagingNode, rank: int, message: Any, source: Any, now: float) -> bool:
        return not isinstance(message, Dropped) and real(self, rank, message, source, now)

    patch.setattr(StagingNode, "receive", receive)
    patch.setattr(Gathering, "withdrawn", lambda self, child, step: None)


def frees_what_was_not_decided(patch: Patch) -> None:
    real = Sending.connected

    def connected(self: Sending) -> None:
        for step in [step for step, held in self.held.items() if held.announced]:
            self.receive(Fate(step, ""))
            break
        real(self)

    patch.setattr(Sending, "connected", connected)


def wants_more_than_there_is_room_for(patch: Patch) -> None:
    real = Root.__init__

    def init(self: Root, settings: Any, nodes: Any, done: Any) -> None:
        real(self, replace(settings, memory=1 << 30), nodes, done)

    patch.setattr(Root, "__init__", init)


def does_not_miss_the_last_message(patch: Patch) -> None:
    patch.setattr(_Session, "lacks", lambda self, sent: False)


def takes_a_message_twice(patch: Patch) -> None:
    def take(self: _Session, sent: Any) -> bool | None:
        if not self.number or sent.session != self.number:
            return False
        fits = sent.number <= self.taken + 1
        self.taken = max(self.taken, sent.number)
        return fits or None

    patch.setattr(_Session, "take", take)


def tells_a_new_root_nothing(patch: Patch) -> None:
    patch.setattr(StagingNode, "connected", lambda self: None)


def keeps_a_session_with_the_dead(patch: Patch) -> None:
    real = Downlinks._here

    def here(self: Downlinks, name: str, node: Any, message: Any, now: float) -> None:
        node.life = message.life if node.life else 0
        real(self, name, node, message, now)

    patch.setattr(Downlinks, "_here", here)


def takes_any_process_for_the_writer(patch: Patch) -> None:
    real = StagingNode.decided

    def decided(self: StagingNode, told: Decided) -> None:
        writers = {rank: life and self._lives.get(rank, 1) for rank, life in told.writers.items()}
        real(self, replace(told, writers=writers))

    patch.setattr(StagingNode, "decided", decided)


def takes_all_lives_for_one(patch: Patch) -> None:
    real = StagingNode.hello
    patch.setattr(StagingNode, "hello", lambda self, hello, now: real(self, replace(hello, life=1), now))


def forgets_what_came_late(patch: Patch) -> None:
    real = Root._decide

    def decide(self: Root, step: int, reason: str = "") -> None:
        if step >= self._newest:
            real(self, step, reason)

    patch.setattr(Root, "_decide", decide)


FAULTS: dict[Callable[[Patch], None], int] = {
    tells_safe_before_the_commit: 2,
    tells_all_ranks_safe: 17,
    believes_every_copy: 130,
    overwrites_without_a_word: 130,
    keeps_what_it_drops: 0,
    forgets_the_budget: 1,
    settles_no_offsets: 37,
    forgets_rows_of_earlier_children: 37,
    announces_nothing_again: 3,
    tells_a_new_node_of_no_open_step: 138,
    tells_no_other_node_of_a_step: 1,
    waits_for_the_dead: 145,
    does_not_disturb_the_dead: 1367,
    commits_what_comes_late: 86,
    forgets_what_is_committed: 22,
    leaves_out_a_piece: 0,
    pulls_only_what_fits: 4,
    drops_without_a_word: 11,
    frees_what_was_not_decided: 37,
    wants_more_than_there_is_room_for: 1,
    does_not_miss_the_last_message: 29,
    takes_a_message_twice: 1,
    tells_a_new_root_nothing: 8,
    keeps_a_session_with_the_dead: 19,
    takes_any_process_for_the_writer: 0,
    takes_all_lives_for_one: 0,
    forgets_what_came_late: 368,
}
"""Each with a seed that finds it, so that the search is short as long as the worlds stay the same."""


@pytest.mark.slow
@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_planted_fault_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises((Failure, StagingError, KeyError, IndexError, ValueError)):
        for seed in (FAULTS[plant], *range(400)):
            World(seed).run()
