"""Shared memory: what one process puts another views, and room is used again."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evflow as ev
from evflow.events.gather import back_to_back
from evflow.net.node import arena as arena_module
from evflow.net.node.arena import HEADER, Arena, FreeList
from evflow.net.node.mapping import Mapping, Sharing
from tests.node.lending import KIB, Lender, bytes_of, connected


@pytest.fixture
def pair() -> tuple[Lender, Mapping]:
    """An arena of 64 KiB and its mapping."""
    return connected(64 * KIB)


# --- the room


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=60), st.randoms())
def test_room_is_the_lowest_that_fits(steps: list[tuple[bool, int]], chance: random.Random) -> None:
    """Against a row of cells: the same places, none twice, and one region again at the end."""
    cells = "." * 40
    room = FreeList(0, 40)
    taken: list[tuple[int, int]] = []
    for take, length in steps:
        if take:
            expected = cells.find("." * length)
            got = room.take(length)
            assert got == (None if expected < 0 else expected)
            if got is not None:
                taken.append((got, length))
                cells = cells[:got] + "#" * length + cells[got + length :]
        elif taken:
            start, size = taken.pop(chance.randrange(len(taken)))
            room.give(start, size)
            cells = cells[:start] + "." * size + cells[start + size :]
        assert room.free == cells.count(".")
        assert ["." * (end - start) for start, end in room.regions] == cells.replace("#", " ").split()
    for start, size in taken:
        room.give(start, size)
    assert room.regions == [(0, 40)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20_000)), max_size=30), st.randoms())
def test_held_blocks_keep_their_bytes(steps: list[tuple[bool, int]], chance: random.Random) -> None:
    """However puts and releases follow each other, what is held is as it was put."""
    lender, mapping = connected(64 * KIB)
    held: dict[int, tuple[bytes, Any]] = {}
    room = lender.arena.free
    for put, length in steps:
        if put:
            data = bytes([chance.randrange(256)]) * length
            block = lender.put([data])
            if block is not None:
                held[block.number] = (data, mapping.view(*block))
        elif held:
            del held[chance.choice(list(held))]
            lender.release(*mapping.released())
        assert all(view.tobytes() == data for data, view in held.values())
        assert lender.arena.held == lender.sharing.lent == mapping.held == len(held)
    held.clear()
    lender.release(*mapping.released())
    assert lender.arena.free == room


# --- the sender


def test_parts_lie_back_to_back(pair: tuple[Lender, Mapping]) -> None:
    """Buffers of every kind, empty ones and arrays of other types come out as their bytes in a row."""
    lender, mapping = pair
    numbers = np.arange(6, dtype=">i4").reshape(2, 3)
    block = lender.put([b"ab", b"", bytearray(b"cd"), memoryview(b"xefx")[1:3], numbers, numbers.data])
    assert block is not None
    assert mapping.view(*block).tobytes() == b"abcdef" + 2 * numbers.tobytes()


def test_nothing_is_a_block_too(pair: tuple[Lender, Mapping]) -> None:
    """A block of no bytes is put, viewed and released as any other."""
    lender, mapping = pair
    block = lender.put([])
    assert block is not None
    assert mapping.view(*block).tobytes() == b""
    assert mapping.released() == [block.number]


def test_there_is_no_block_without_room() -> None:
    """What is too large for all that is free in one piece gets None; what is let go can be used again."""
    arena = Arena(64 * KIB)
    room = 64 * KIB - HEADER
    assert arena.hold([bytes(room + 1)]) is None
    whole = arena.hold([bytes(room)])
    assert whole is not None
    assert (arena.held, arena.free) == (1, 0)
    assert arena.hold([b"x"]) is None
    del whole
    assert arena.hold([b"x"]) is not None


@pytest.mark.parametrize("keep", ["slice", "memoryview", "batch", "typed"])
def test_what_comes_of_a_block_keeps_it(keep: str) -> None:
    """The block is free again when the last thing that refers to it is gone."""
    arena = Arena(64 * KIB)
    held: Any = arena.hold([b"\xc2" * 64])
    assert (held.flags.writeable, held.dtype, held.shape) == (False, np.uint8, (64,))
    ways: dict[str, Callable[[Any], Any]] = {
        "slice": lambda data: data[3:5][1:],
        "memoryview": lambda data: memoryview(data)[1:].cast("B"),
        "batch": lambda data: ev.EventBatch(ev.Schema("b", {"x": bool}), data, 32).slice(1, 5),
        "typed": lambda data: data.view(">i8").reshape(2, 4),
    }
    kept = ways[keep](held)
    del held
    gc.collect()
    assert arena.held == 1
    del kept
    assert arena.held == 0


def test_a_part_of_a_block_is_found(pair: tuple[Lender, Mapping]) -> None:
    """What lies in the arena is lent as it is, also a part, or neighbours as one; all else is copied."""
    lender, mapping = pair
    one, two = lender.arena.hold([b"abc"]), lender.arena.hold([b"def"])
    assert one is not None
    assert two is not None
    joined = back_to_back([one, two])
    assert joined is not None
    assert back_to_back([two, one]) is None
    for data, text in ((one[1:], b"bc"), (two, b"def"), (joined, b"abcdef")):
        place = lender.sharing.place(data.data)
        assert place is not None
        assert mapping.view(*place).tobytes() == text
    assert lender.arena.held == 2
    copied = lender.sharing.place(memoryview(b"elsewhere"))
    assert copied is not None
    assert mapping.view(*copied).tobytes() == b"elsewhere"
    assert lender.arena.held == 3
    assert lender.arena.offset_of(np.zeros(9, np.uint8)) is None
    del joined, one, two, data
    lender.release(*mapping.released())
    assert lender.arena.held == 0


def test_a_block_that_is_kept_does_not_hold_up_others(pair: tuple[Lender, Mapping]) -> None:
    """A thousand blocks go through an arena that has room for four, one of which is never released."""
    lender, mapping = pair
    kept = lender.put([b"k" * 15 * KIB])
    assert kept is not None
    view = mapping.view(*kept)
    for n in range(1000):
        block = lender.put([bytes([n % 256]) * 15 * KIB])
        assert block is not None
        assert mapping.view(*block)[-1] == n % 256
        lender.release(*mapping.released())
    assert view.tobytes() == b"k" * 15 * KIB


def test_a_release_of_what_is_not_there_does_nothing(pair: tuple[Lender, Mapping]) -> None:
    """Unknown numbers and second releases are passed over; the room stays as it was."""
    lender, _ = pair
    first, second = lender.put([b"1"]), lender.put([b"2"])
    assert first is not None
    assert second is not None
    lender.release(first.number)
    free = lender.arena.free
    lender.release(first.number, 0, -1, 1 << 80)
    assert (lender.arena.free, lender.arena.held) == (free, 1)


def test_two_peers_have_the_same_block() -> None:
    """It is copied once, and free when both are done with it."""
    lender, mapping = connected(64 * KIB)
    other = Sharing(lender.arena)
    offer = other.offer()
    assert offer is not None
    assert other.place(memoryview(b"early")) is None
    second = Mapping.open(*offer)
    assert second is not None
    other.opened(True)
    held = lender.arena.hold([b"shared"])
    assert held is not None
    places = [sharing.place(held.data) for sharing in (lender.sharing, other)]
    views = [m.view(*place) for m, place in zip((mapping, second), places, strict=True) if place is not None]
    assert [view.tobytes() for view in views] == [b"shared"] * 2
    del held
    views.pop()
    other.release(second.released())
    assert lender.arena.held == 1
    views.pop()
    lender.release(*mapping.released())
    assert lender.arena.held == 0


def test_a_lost_connection_leaves_what_its_peer_reads(pair: tuple[Lender, Mapping]) -> None:
    """The blocks are used again once the peer has let go of all, although it cannot say so any more."""
    lender, mapping = pair
    block = lender.put([b"x" * 60 * KIB])
    assert block is not None
    view = mapping.view(*block)
    lender.sharing.close()
    mapping.close()
    assert lender.arena.hold([b"y" * 60 * KIB]) is None
    assert lender.arena.held == 1
    assert set(view.tobytes()) == set(b"x")
    del view
    assert lender.arena.hold([b"y" * 60 * KIB]) is not None


def test_a_new_session_begins_anew(pair: tuple[Lender, Mapping]) -> None:
    """Of another lease, with nothing lent; nothing is placed before the peer has opened the memory again."""
    lender, mapping = pair
    block = lender.put([b"old"])
    assert block is not None
    mapping.close()
    del mapping, pair
    gc.collect()
    offer = lender.sharing.offer()
    assert offer is not None
    assert offer[0] != lender.offer.name
    assert offer[1:] == lender.offer[1:]
    assert (lender.sharing.lent, lender.put([b"new"])) == (0, None)
    lender.sharing.opened(True)
    assert lender.put([b"new"]) is not None


def test_blocks_of_many_threads_are_apart() -> None:
    """Eight threads take, check and let go; some blocks die in cycles, by the garbage collector."""
    arena = Arena(1 << 20)
    wrong: list[int] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        mine: list[tuple[bytes, Any]] = []
        for _ in range(300):
            data = chance.randbytes(chance.randint(0, 10_000))
            held = arena.hold([data[:7], data[7:]])
            if held is not None:
                holder: list[Any] = [held]
                holder.append(holder)
                mine.append((data, holder))
            if len(mine) > 5:
                mine.pop(chance.randrange(6))
            wrong.extend(1 for data, (held, _) in mine if held.tobytes() != data)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert (wrong, arena.held, arena.free) == ([], 0, (1 << 20) - HEADER)


def test_a_submitter_waits_for_room_that_becomes_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """With much in use it goes on when another thread lets go; when nobody does, it goes on all the same."""
    monkeypatch.setattr(arena_module, "PACE", 10 * KIB)
    monkeypatch.setattr(arena_module, "_PAUSE", 60.0)
    arena = Arena(64 * KIB)
    held = [arena.hold([bytes(16 * KIB)])]
    threading.Timer(0.05, held.clear).start()
    arena.pace(8 * KIB)
    second = arena.hold([bytes(8 * KIB)])
    assert second is not None
    assert (held, arena.held) == ([], 1)
    monkeypatch.setattr(arena_module, "_PAUSE", 0.001)
    others = []
    for _ in range(6):
        arena.pace(8 * KIB)
        others.append(arena.hold([bytes(8 * KIB)]))
    assert all(other is not None for other in others)


def test_half_of_the_room_is_left_to_what_is_not_kept() -> None:
    arena = Arena(64 * KIB)
    kept = [arena.spare(10 * KIB) for _ in range(4)]
    assert [place is not None for place in kept] == [True, True, True, False]
    assert arena.hold([bytes(30 * KIB)]) is not None
    kept.clear()
    gc.collect()
    assert arena.spare(30 * KIB) is not None


def test_the_memory_cannot_be_cut() -> None:
    """It is sealed, has the told size and no name, begins with the nonce, and is made when first used."""
    before = os.listdir("/proc/self/fd")
    arena = Arena(64 * KIB)
    assert os.listdir("/proc/self/fd") == before
    offer = arena.offer()
    assert offer is not None
    process, file = offer.name.split("-")[1:3]
    path = f"/proc/{process}/fd/{file}"
    assert int(process) == os.getpid()
    with open(path, "rb") as opened:
        assert (os.fstat(opened.fileno()).st_nlink, os.fstat(opened.fileno()).st_size) == (0, 64 * KIB)
        assert opened.read(16) == offer.nonce
    for size in (0, 128 * KIB):
        with pytest.raises(PermissionError):
            os.truncate(path, size)


@pytest.mark.parametrize("end", ["close", "forget"])
def test_the_file_is_closed(end: str) -> None:
    """With the last block of an arena that is closed or forgotten; none are given after the close."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    arena: Arena | None = Arena(64 * KIB)
    assert arena is not None
    held = arena.hold([b"stays"])
    assert held is not None
    if end == "close":
        arena.close()
        arena.close()
        assert (arena.offer(), arena.hold([b"x"]), arena.held, arena.free) == (None, None, 0, 0)
    arena = None
    gc.collect()
    assert held.tobytes() == b"stays"
    del held
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_shared_memory_blocks_are_for_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses: no offer and no file left, but memory all the same, and no second try."""

    def refuse(*_: Any) -> Any:
        raise OSError(errno.EPERM, "not allowed")

    before = os.listdir("/proc/self/fd")
    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", refuse)
        arena = Arena(64 * KIB)
        assert arena.offer() is None
    assert os.listdir("/proc/self/fd") == before
    assert arena.offer() is None
    held = arena.hold([b"here"])
    assert held is not None
    assert held.tobytes() == b"here"
    sharing = Sharing(arena)
    assert sharing.offer() is None


def test_memory_that_needs_one_file_too_many_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def scarce(name: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    arena = Arena(64 * KIB)
    with monkeypatch.context() as patched, caplog.at_level(logging.INFO, "evflow.node"):
        patched.setattr(os, "memfd_create", scarce)
        assert arena.offer() is None
        assert arena.hold([b"bytes"]) is None
        assert arena.offer() is None
    (told,) = caplog.messages
    assert "Too many open files" in told and "ulimit -n" in told
    assert arena.offer() is not None
    held = arena.hold([b"bytes"])
    assert held is not None and bytes(held) == b"bytes"
    arena.close()


def test_a_size_of_next_to_nothing_is_refused() -> None:
    """An arena smaller than a page is a mistake."""
    with pytest.raises(ev.LinkError, match="shared memory of 10 bytes: expected a size of 4096 or more"):
        Arena(10)


# --- two processes

SENDER = """
import json, random, sys
from evflow.net.node.arena import Arena
from evflow.net.node.mapping import Sharing

arena = Arena(1 << 20)
sending = Sharing(arena)
name, size, nonce = sending.offer()
print(json.dumps([name, size, nonce.hex()]), flush=True)
for line in sys.stdin:
    told = json.loads(line)
    if told == "opened":
        sending.opened(True)
    elif told == "held":
        print(json.dumps(arena.held), flush=True)
    elif told == "close":
        sending.close()
    elif "put" in told:
        held = arena.hold([random.Random(told["put"]).randbytes(told["length"])])
        print(json.dumps(sending.place(held.data)), flush=True)
        del held
    else:
        sending.release(told["release"])
"""

READER = """
import json, sys
from evflow.net.node.mapping import Mapping

name, size, nonce, place = json.loads(sys.stdin.readline())
mapping = Mapping.open(name, size, bytes.fromhex(nonce))
view = mapping.view(*place)
print(json.dumps(int(view[0])), flush=True)
sys.stdin.readline()
"""


class Process:
    """A process that is told things, and answers."""

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def tell(self, message: Any) -> None:
        assert self.process.stdin is not None
        print(json.dumps(message), file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, message: Any) -> Any:
        self.tell(message)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Sender(Process):
    """A process with an arena, which this one has mapped."""

    def __init__(self) -> None:
        super().__init__(SENDER)
        name, size, nonce = self.answer()
        mapping = Mapping.open(name, size, bytes.fromhex(nonce))
        assert mapping is not None
        self.mapping = mapping
        self.tell("opened")


@pytest.fixture
def sender() -> Iterator[Sender]:
    started = Sender()
    yield started
    started.kill()


@pytest.mark.slow
def test_bytes_cross_from_process_to_process(sender: Sender) -> None:
    """Three hundred blocks through an arena that has room for ten or so; any four are held at a time."""
    lengths = random.Random(3)
    held: list[tuple[int, int, Any]] = []
    for seed in range(300):
        length = lengths.randint(1, 100_000)
        block = sender.ask({"put": seed, "length": length})
        held.append((seed, length, sender.mapping.view(*block)))
        assert [view.tobytes() for _, _, view in held] == [bytes_of(*known[:2]) for known in held]
        if len(held) > 4:
            held.pop(lengths.randrange(len(held)))
            sender.tell({"release": sender.mapping.released()})
            assert sender.ask("held") == len(held)
    sender.tell({"release": [1, 1 << 70, -3]})
    assert sender.ask("held") == len(held)


@pytest.mark.slow
def test_a_killed_sender_leaves_its_bytes_to_those_who_hold_them(sender: Sender) -> None:
    """After kill -9 the views are whole, and no file is anywhere."""
    before = set(os.listdir("/dev/shm"))
    blocks = [sender.ask({"put": seed, "length": 100_000}) for seed in range(8)]
    views = [sender.mapping.view(*block) for block in blocks]
    os.kill(sender.process.pid, signal.SIGKILL)
    assert sender.process.wait() == -signal.SIGKILL
    assert not [name for name in set(os.listdir("/dev/shm")) - before if name.startswith("evflow")]
    for seed, view in enumerate(views):
        assert view.tobytes() == bytes_of(seed, 100_000)
    sender.mapping.close()
    assert views[7].tobytes() == bytes_of(7, 100_000)
    del view
    views.clear()
    assert sorted(sender.mapping.released()) == [block[0] for block in blocks]


@pytest.mark.slow
def test_blocks_of_a_killed_reader_are_free_again() -> None:
    """Not when the connection ends, for it may read on, but when it is dead."""
    lender = Lender(64 * KIB)
    reader = Process(READER)
    lender.sharing.opened(True)
    block = lender.put([b"x" * 60 * KIB])
    name, size, nonce = lender.offer
    assert reader.ask([name, size, nonce.hex(), block]) == ord("x")
    lender.sharing.close()
    assert (lender.arena.held, lender.arena.hold([bytes(60 * KIB)])) == (1, None)
    reader.kill()
    assert lender.arena.hold([bytes(60 * KIB)]) is not None
