"""Shared memory of a peer: views of its blocks, and offers of strangers."""

from __future__ import annotations

import errno
import fcntl
import gc
import mmap
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.net.node.arena import HEADER, Lease, is_leased
from evflow.net.node.mapping import Mapping
from tests.node.lending import KIB, Lender, connected


@pytest.fixture
def pair() -> tuple[Lender, Mapping]:
    """An arena of 64 KiB and its mapping."""
    return connected(64 * KIB)


# --- views

RECORD = np.dtype({"names": ["a", "b"], "formats": ["u1", ">u4"], "offsets": [0, 3], "itemsize": 8})

DERIVED: dict[str, Callable[[Any], Any]] = {
    "itself": lambda view: view,
    "slice": lambda view: view[10:20],
    "slice of slices": lambda view: view[8:][8:][:32][::2],
    "type": lambda view: view.view("<f8")[1:],
    "shape": lambda view: view.reshape(8, -1).T,
    "record": lambda view: view.view(RECORD),
    "column": lambda view: view.view(RECORD)["b"],
    "scalar of records": lambda view: view.view(RECORD)[2],
    "memoryview": lambda view: memoryview(view),
    "memoryview of memoryview": lambda view: memoryview(view)[5:].cast("B")[1:],
    "data": lambda view: view.data,
    "frombuffer": lambda view: np.frombuffer(view.data, np.uint8)[3:],
    "frombuffer of memoryview": lambda view: np.frombuffer(memoryview(view)[8:16], "<u8"),
    "asarray": lambda view: np.asarray(memoryview(view)),
    "subclass": lambda view: view.view(np.recarray)[1:],
    "matrix of frombuffer": lambda view: np.frombuffer(view, "<u2").reshape(4, -1)[1:].ravel(),
    "broadcast": lambda view: np.broadcast_to(view, (3, len(view))),
    "iterator": lambda view: view.flat,
    "strides": lambda view: np.lib.stride_tricks.sliding_window_view(view, 4),
}


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED.keys())
def test_a_block_is_released_with_the_last_view(
    pair: tuple[Lender, Mapping], derive: Callable[[Any], Any]
) -> None:
    """Whatever is made of a view keeps the block, alone too, and lets it go."""
    lender, mapping = pair
    block = lender.put([bytes(64)])
    assert block is not None
    view = mapping.view(*block)
    last = derive(view)
    del view
    gc.collect()
    assert (mapping.released(), mapping.held) == ([], 1)
    del last
    gc.collect()
    assert (mapping.released(), mapping.held) == ([block.number], 0)
    assert mapping.released() == []


def test_copies_do_not_keep_a_block(pair: tuple[Lender, Mapping]) -> None:
    """What owns its bytes lets go."""
    lender, mapping = pair
    block = lender.put([bytes(range(64))])
    assert block is not None
    copies = [mapping.view(*block).copy(), mapping.view(block.number + 1, *block[1:])[[1, 2]]]
    assert mapping.released() == [block.number, block.number + 1]
    assert [int(copy[1]) for copy in copies] == [1, 2]


def test_a_batch_over_a_view_keeps_the_block(pair: tuple[Lender, Mapping]) -> None:
    """A batch takes the bytes without a copy; its columns, slices and events hold the block."""

    class Rec(ev.Event):
        seq: int
        value: float

    lender, mapping = pair
    sent = ev.EventBatch.from_columns(Rec, {"seq": np.arange(100), "value": np.arange(100) / 4})
    block = lender.put([sent.data])
    assert block is not None
    view = mapping.view(*block)
    batch = ev.EventBatch.from_bytes(Rec, view.data)
    assert np.shares_memory(batch.data, view)
    parts = [batch["seq"][50:], batch.select(np.array([3, 5])), batch[7]]
    del view, batch
    assert parts[0].tolist() == list(range(50, 100))
    assert parts[1]["value"].tolist() == [0.75, 1.25]
    assert parts[2].value == 1.75
    while parts:
        gc.collect()
        assert mapping.released() == []
        parts.pop()
    gc.collect()
    assert mapping.released() == [block.number]


def test_a_view_cannot_be_written(pair: tuple[Lender, Mapping]) -> None:
    """Neither it nor what is made of it, whatever flag one sets."""
    lender, mapping = pair
    block = lender.put([b"x" * 64])
    assert block is not None
    view = mapping.view(*block)
    assert (view.dtype, view.ndim, view.flags.c_contiguous) == (np.dtype(np.uint8), 1, True)
    for array in (view, view[3:], view.view("<u8"), np.frombuffer(view.data, np.uint8)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            array.flags.writeable = True
    assert view.data.readonly


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        (HEADER - 1, 1),
        (0, 16),
        (-64, 64),
        (HEADER, -1),
        (HEADER, 64 * KIB - HEADER + 1),
        (64 * KIB, 1),
        (64 * KIB + 1, 0),
        (1 << 63, 1),
        (HEADER, 1 << 64),
        ((1 << 64) + HEADER, 1),
    ],
)
def test_a_block_outside_of_the_file_is_refused(
    pair: tuple[Lender, Mapping], offset: int, length: int
) -> None:
    """Nothing is viewed and nothing is released."""
    _, mapping = pair
    with pytest.raises(ev.LinkError, match=r"block 1 of shared memory evflow-.*: expected bytes from 64 to"):
        mapping.view(1, offset, length)
    assert (mapping.released(), mapping.held) == ([], 0)


def test_a_number_in_use_is_refused(pair: tuple[Lender, Mapping]) -> None:
    """A block told twice would be released while the second view lives."""
    lender, mapping = pair
    block = lender.put([b"x"])
    assert block is not None
    view = mapping.view(*block)
    with pytest.raises(ev.LinkError, match="came again while it is in use"):
        mapping.view(*block)
    assert view.tobytes() == b"x"
    del view
    assert mapping.released() == [block.number]
    assert mapping.view(*block).tobytes() == b"x"


def test_views_outlive_the_mapping_and_the_arena(pair: tuple[Lender, Mapping]) -> None:
    """Both are closed; the bytes are there, and the release is still told."""
    lender, mapping = pair
    block = lender.put([b"still here"])
    assert block is not None
    view = mapping.view(*block)
    lender.sharing.close()
    lender.arena.close()
    mapping.close()
    mapping.close()
    with pytest.raises(ev.LinkError, match="is closed"):
        mapping.view(2, HEADER, 1)
    gc.collect()
    assert view.tobytes() == b"still here"
    del view
    assert mapping.released() == [block.number]


def test_memory_is_given_back_with_the_last_view(pair: tuple[Lender, Mapping]) -> None:
    """Once everything is closed and gone, this process maps the file no more."""
    lender, mapping = pair
    name = lender.offer.name.rpartition("-")[2]
    block = lender.put([b"x"])
    assert block is not None
    view = mapping.view(*block)

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(name)

    assert mapped() == 2
    lender.sharing.close()
    lender.arena.close()
    mapping.close()
    gc.collect()
    assert mapped() == 1
    del view
    assert mapped() == 0


def test_releases_in_many_threads_are_told_once() -> None:
    """Views dropped by eight threads at the same time; some die in cycles, by the garbage collector."""
    lender, mapping = connected(1 << 20)
    blocks = [lender.put([bytes(64)]) for _ in range(800)]
    views = [mapping.view(*block) for block in blocks if block is not None]
    start = threading.Barrier(8)

    def drop(mine: list[Any]) -> None:
        start.wait()
        while mine:
            holder: dict[str, Any] = {"view": mine.pop()}
            if len(mine) % 3 == 0:
                holder["self"] = holder

    shares = [views[n::8] for n in range(8)]
    views.clear()
    threads = [threading.Thread(target=drop, args=(share,)) for share in shares]
    told: list[int] = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        told += mapping.released()
    gc.collect()
    told += mapping.released()
    assert sorted(told) == sorted(block.number for block in blocks if block is not None)
    lender.release(*told)
    assert (lender.arena.held, lender.sharing.lent) == (0, 0)


# --- offers of strangers


def name_of_an_arena(file: int = 0, digits: str = "0" * 32) -> str:
    return f"evflow-{os.getpid()}-{file}-1-{digits}"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "evflow-",
        "/etc/passwd",
        "evflow-1-1-1-" + "0" * 31,
        "evflow-1-1-1-" + "0" * 33,
        "evflow-1-1-1-" + "0" * 32 + "\n",
        "evflow-1-1-1-" + "0" * 31 + "/",
        "evflow-1-1-1-" + "0" * 31 + "\0",
        "evflow-1-1-1-" + "٣" * 32,
        "evflow-٣-1-1-" + "0" * 32,
        "evflow-1-1-" + "0" * 32,
        "evflow--1-1-1-" + "0" * 32,
        "evflow-01-1-1-" + "0" * 32,
        "evflow-self-1-1-" + "0" * 32,
        "evflow-1/../2-1-1-" + "0" * 32,
        "evflow-1-1-" + "9" * 30 + "-" + "0" * 32,
        "x/evflow-1-1-1-" + "0" * 32,
        "x" * 100_000,
    ],
)
def test_a_name_that_no_arena_has_is_refused(name: str) -> None:
    """Only names of the form that arenas give; the message stays short."""
    with pytest.raises(ev.LinkError, match="expected a name evflow-<process>-<file>-<lease>-<32") as refused:
        Mapping.open(name, 4096, bytes(16))
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("size", "nonce"), [(0, bytes(16)), (-1, bytes(16)), (HEADER, bytes(16)), (4096, b""), (4096, bytes(17))]
)
def test_sizes_and_nonces_that_cannot_be_are_refused(size: int, nonce: bytes) -> None:
    """Before any file is opened."""
    with pytest.raises(ev.LinkError, match=f"more than {HEADER} bytes and a nonce of 16"):
        Mapping.open(name_of_an_arena(), size, nonce)


def test_another_file_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipes, folders, files, even one named as an arena: on another host the number may mean anything."""
    opened: list[str] = []
    digits = "a" * 32
    (tmp_path / f"memfd:evflow-{digits}").write_bytes(bytes(4096))
    reading, writing = os.pipe()
    files = [reading, writing, os.open(tmp_path, os.O_RDONLY), 10_000]
    files += [os.open(path, os.O_RDONLY) for path in tmp_path.iterdir()]
    files.append(os.memfd_create(f"evflow-{digits}0"))
    files.append(os.memfd_create("evflow-" + "b" * 32))
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lambda path, *_: opened.append(path))
        found = [Mapping.open(name_of_an_arena(file, digits), 4096, bytes(16)) for file in files]
    assert (found, opened) == ([None] * len(files), [])
    assert Mapping.open("evflow-999999999-1-1-" + digits, 4096, bytes(16)) is None
    files.remove(10_000)
    for file in files:
        os.close(file)


def test_a_memory_that_can_be_cut_is_refused() -> None:
    """Reading behind its end would kill the process; a reader insists on the seals."""
    digits = secrets.token_hex(16)
    file = os.memfd_create(f"evflow-{digits}", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 4096)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    with pytest.raises(ev.LinkError, match="expected seals against cutting"):
        Mapping.open(name_of_an_arena(file, digits), 4096, bytes(16))
    os.close(file)


def test_a_memory_smaller_than_told_is_refused() -> None:
    """Reading behind its end would kill the process."""
    lender = Lender(64 * KIB)
    name, size, nonce = lender.offer
    for told in (size + 1, 1 << 62, 1 << 80):
        with pytest.raises(ev.LinkError, match=f"expected at least {told} bytes, found {size}"):
            Mapping.open(name, told, nonce)


def test_a_memory_with_another_nonce_is_refused() -> None:
    """The peer names a memory that it does not know."""
    lender = Lender(64 * KIB)
    with pytest.raises(ev.LinkError, match="expected the nonce that the peer told, found another"):
        Mapping.open(lender.offer.name, lender.offer.size, bytes(16))


def test_a_memory_of_another_user_is_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by one who may open it, as root may."""
    lender = Lender(64 * KIB)
    other = os.geteuid() + 1
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: other)
        assert Mapping.open(*lender.offer) is None
    assert Mapping.open(*lender.offer) is not None


@pytest.mark.parametrize("call", ["mmap", "open", "lock"])
def test_want_of_something_is_no_fault_of_the_peer(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Shared memory is then not used, no descriptor is left open and no lease is held."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOMEM, "no memory")

    lender = Lender(64 * KIB)
    before = os.listdir("/proc/self/fd")
    place = {"mmap": (mmap, "mmap"), "open": (os, "open"), "lock": (fcntl, "fcntl")}[call]
    with monkeypatch.context() as patched:
        patched.setattr(*place, refuse)
        assert Mapping.open(*lender.offer) is None
    assert os.listdir("/proc/self/fd") == before
    _, _, file, number, _ = lender.offer.name.split("-")
    assert not is_leased(int(file), int(number))


def test_a_seat_is_taken_as_long_as_it_is_kept() -> None:
    """Seats are apart; each is free again when its object is gone."""
    file = os.memfd_create("seats")

    def sit(number: int) -> Lease:
        return Lease(os.open(f"/proc/self/fd/{file}", os.O_RDONLY), number)

    def taken() -> list[bool]:
        return [is_leased(file, number) for number in (1, 2, 9_999_999_999)]

    seats = [sit(2), sit(9_999_999_999)]
    assert taken() == [False, True, True]
    seats.pop(0)
    assert taken() == [False, False, True]
    seats.pop()
    assert taken() == [False, False, False]
    os.close(file)
