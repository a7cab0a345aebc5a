"""A peer that changes shared memory while it is read: what was checked is what is read."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.events.steady import steadied
from evflow.net.node.mapping import Mapping
from tests.node.lending import KIB, Lender, connected

ROOT = Path(__file__).parents[2]
PAGE = mmap.PAGESIZE


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.node.flipping", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "frames"), [("wave", 400), ("note", 300)])
def test_a_peer_that_changes_lengths_meanwhile_ends_nobody(kind: str, frames: int) -> None:
    """Lengths, dimensions and counts of what is on its way become huge and right again, at full speed."""
    with started("reader", kind) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        contact = reader.stdout.readline().strip()
        with started("foe", kind, contact, str(frames)) as foe:
            foe.wait(120)
        reader.stdin.write("\n")
        reader.stdin.flush()
        answer = reader.stdout.readline()
        assert answer, f"the reader ended with {reader.wait(10)}"
        seen, refused = json.loads(answer)
        assert seen + sum(refused.values()) > 20


@pytest.mark.slow
def test_other_processes_can_neither_write_nor_cut() -> None:
    """Who opens the memory as a peer does can read it, and nothing else."""
    lender, mapping = connected(64 * KIB)
    block = lender.put([b"right"])
    assert block is not None
    _, process, file, _, _ = lender.offer.name.split("-")
    tried = subprocess.run(
        [sys.executable, "-c", _TRIES, f"/proc/{process}/fd/{file}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert tried.stdout.split() == ["PermissionError"] * 3
    assert mapping.view(*block).tobytes() == b"right"


_TRIES = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for change in (
    lambda: mmap.mmap(file, 4096, mmap.MAP_SHARED),
    lambda: os.pwrite(file, b"x", 64),
    lambda: os.ftruncate(file, 0),
):
    try:
        change()
        print("done")
    except OSError as error:
        print(type(error).__name__)
"""


# --- what is kept


class Shared:
    """A block of events that can be written to as its sender can, and what the receiver has of it."""

    def __init__(self, lender: Lender, mapping: Mapping, data: bytes) -> None:
        block = lender.put([data])
        assert block is not None and lender.arena._bytes is not None
        self.number = block.number
        self.written: Any = lender.arena._bytes[block.offset : block.offset + block.length]
        self.view = mapping.view(*block)
        self.mapping = mapping

    def keep(self, start: int, stop: int) -> None:
        self.mapping.keep(self.number, start, stop)


def numbered(pages: float) -> bytes:
    return bytes(np.arange(int(pages * PAGE), dtype=np.uint32).astype(np.uint8))


@pytest.mark.parametrize(
    "parts", [[(0, 1)], [(0, 5 * PAGE)], [(0, 9 * PAGE)], [(PAGE, 2 * PAGE), (3 * PAGE, 3 * PAGE + 5)]]
)
def test_what_is_kept_stays(parts: list[tuple[int, int]]) -> None:
    """The rest of a page may stay too; all else shows what the sender has written."""
    shared = Shared(*connected(64 * KIB), numbered(4.5))
    before = shared.view.copy()
    for start, stop in parts:
        shared.keep(start, stop)
    shared.written[:] = 0xEE
    for start, stop in parts:
        assert shared.view[start:stop].tobytes() == before[start:stop].tobytes()
    assert set(np.unique(shared.view[5 * PAGE :])) <= {0xEE}
    # A second time nothing is read again.
    for start, stop in parts:
        shared.keep(start, stop)
        assert shared.view[start:stop].tobytes() == before[start:stop].tobytes()


def test_random_blocks_show_what_was_sent() -> None:
    """Blocks that share pages come and go, some of their parts are kept, and memory is used again."""
    chance = np.random.default_rng(4)
    lender, mapping = connected(512 * KIB)
    live: list[tuple[Shared, bytes]] = []
    for _ in range(3000):
        if len(live) > 12 or (live and chance.random() < 0.4):
            live.pop(int(chance.integers(len(live))))
            lender.release(*mapping.released())
        data = chance.bytes(int(chance.choice([1, 70, 3000, PAGE, 20_000])))
        shared = Shared(lender, mapping, data)
        assert shared.view.tobytes() == data
        for start in chance.integers(0, len(data), int(chance.integers(0, 4))):
            shared.keep(int(start), int(start + chance.choice([1, 20, 9000])))
        live.append((shared, data))
        for other, sent in live:
            assert other.view.tobytes() == sent
    live.clear()
    del shared, other
    mapping.released()
    assert not any(mapping._own.values())


class Mixed(ev.Event):
    """All kinds of fields around large arrays."""

    number: int
    name: ev.Str[9]
    grid: ev.Array[ev.f32, 300, 300]
    raw: ev.Bytes[40]
    mask: ev.Array[bool, 100]
    samples: ev.Array[ev.f64, None, 2]
    flags: ev.Array[bool, None]
    text: str
    maybe: ev.Array[ev.i16, None] | None
    blob: bytes
    perhaps: int | None
    tags: list[str]
    last: ev.Array[ev.f64, None]


def mixed(number: int) -> Mixed:
    return Mixed(
        number, "name", np.full((300, 300), number, np.float32), b"raw", np.ones(100, bool),
        np.full((40_000, 2), number), np.ones(9, bool), "text", None if number % 2 else np.arange(30_000),
        b"b" * 70_000, None if number % 3 else number, ["a", "b"], np.zeros(4),
    )  # fmt: skip


class Numbers(ev.Event):
    """What no value of leads anywhere."""

    number: int
    flag: bool
    row: ev.Array[ev.f64, 3]


class Named(ev.Event):
    """Of fixed width, with texts."""

    number: int
    name: ev.Str[9]


def changed_everywhere(batch: ev.EventBatch) -> ev.EventBatch:
    """A batch that came through shared memory, once it is checked and its sender has changed every byte."""
    lender, mapping = connected(8 << 20)
    shared = Shared(lender, mapping, batch.to_bytes())
    held = steadied(batch.schema, shared.view, len(batch), shared.keep)
    came = ev.EventBatch.from_bytes(batch.schema, held.data, len(batch))
    shared.written[:] = 0xFF
    return came


def test_large_arrays_stay_and_nothing_else_changes() -> None:
    """After every byte was changed all fields are as they were, but for elements of arrays and blobs."""
    sent = [mixed(n) for n in range(4)]
    came = changed_everywhere(ev.EventBatch.from_events(sent))
    for event, one in zip(sent, came, strict=True):
        for name in ("number", "name", "raw", "text", "perhaps"):
            assert getattr(one, name) == getattr(event, name)
        assert list(one.tags) == event.tags
        assert np.array_equal(one.mask, event.mask) and np.array_equal(one.flags, event.flags)
        assert (one.grid.shape, one.samples.shape, one.last.shape) == ((300, 300), (40_000, 2), (4,))
        assert (one.maybe is None) == (event.maybe is None) and len(one.blob) == 70_000
    # They were not copied, up to the first list.
    assert np.isnan(came[0].grid[150, 150]) and np.isnan(came[0].samples[20_000, 1])
    assert came[0].last.tolist() == [0] * 4


def test_small_events_are_copied() -> None:
    """Nothing of them changes, whatever the sender does."""
    sent = [Named(n, f"name {n}") for n in range(1000)]
    came = changed_everywhere(ev.EventBatch.from_events(sent))
    assert [(event.number, event.name) for event in came] == [(event.number, event.name) for event in sent]


def test_numbers_are_not_copied() -> None:
    """Numbers and arrays of known shape stay as they are: only their values can change."""
    came = changed_everywhere(ev.EventBatch.from_events([Numbers(n, True, [1, 2, 3]) for n in range(1000)]))
    assert came[999].number == -1
    assert came[999].row.shape == (3,)


@pytest.mark.parametrize("cut", [1, 11, 360_100, 360_200, 1_000_000])
def test_events_that_are_cut_are_refused(cut: int) -> None:
    """Keeping what is malformed finds its end, and checking it says what is wrong."""
    data = ev.EventBatch.from_events([mixed(2)]).to_bytes()
    shared = Shared(*connected(8 << 20), data[:cut])
    with pytest.raises(ev.SchemaError):
        ev.EventBatch.from_bytes(Mixed, steadied(Mixed.schema, shared.view, 1, shared.keep).data, 1)
