"""What a writer is asked for and cannot do is told at once, and costs nothing else."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.errors import StagingError
from evflow.net.node.arena import FreeList
from evflow.staging import Stage, Variable, Writer
from evflow.staging.messages import MOST_BYTES, Fate, FromWriter, Hello, Ready, Waits, decode, encode
from evflow.staging.sending import MOST_SPILLED, MOST_STEPS
from tests.node.processes import wait_for
from tests.staging.test_stage import read, staged

FEW = Variable("few", "f8", (4,), (), {"missing_value": math.nan, "scale": np.float64(2)})
ONES = {"few": (np.ones(4), (0,))}


def test_numbers_and_times_that_cannot_be_are_refused_at_once(tmp_path: Path) -> None:
    graph, _ = staged(tmp_path, variables=[FEW])
    made = [Writer(tmp_path / "socket", rank, 2, [FEW], budget=1 << 16) for rank in range(2)]
    number: Any
    with graph.run():
        for number in (1.5, "1", None, -1):
            with pytest.raises(StagingError, match="number"):
                made[0].write(number, ONES)
        for time in (math.nan, math.inf):
            with pytest.raises(StagingError, match="time"):
                made[0].write(0, ONES, time=time)
        made[0].write(np.int64(3), {"few": (np.ones(2), (0,))}, time=np.float32(0.5), timeout=math.inf)
        made[1].write(3, {"few": (np.arange(2, dtype=">f8"), (np.int64(2),))}, time=0.5)
        for writer in made:
            writer.drain(20)
            assert writer.fates() == [(3, "")]
            writer.close()
    assert read(tmp_path / "run.h5").few.values.tolist() == [[1, 1, 0, 1]]


@pytest.mark.parametrize(
    "given",
    [
        (np.ones(2), (0.9,)), (np.ones(2), 0), (np.ones(2), ("0",)), ([1.0, 1.0], (0,)), np.ones(4), None,
        (np.ma.masked_less(np.arange(2.0), 1), (0,)),
    ],
)  # fmt: skip
def test_arrays_and_offsets_that_cannot_be_stored_as_they_are_are_refused(given: Any) -> None:
    with Writer("nobody", 0, 1, [FEW], budget=1 << 16) as writer:
        with pytest.raises(StagingError, match="step 0: few: expected an array of numpy without masked"):
            writer.write(0, {"few": given})
        wrong: Any
        for wrong in (["few"], FEW.block((4,)), None):
            with pytest.raises(StagingError, match=r"step 0: blocks .*: expected a list of Block"):
                writer.step(0, wrong).__enter__()
            with pytest.raises(StagingError, match=r"step 0: arrays .*: expected a dict"):
                writer.write(0, wrong)
        assert not writer.why()


@pytest.mark.parametrize(
    "attributes",
    [{"flag": True}, {"far": 1 << 63}, {"text": "a\0b"}, {"text": "\ud800"}, {"DIMENSION_LIST": "x"}],
)
def test_attributes_that_no_store_can_have_are_refused(attributes: Any) -> None:
    with pytest.raises(StagingError, match="attribute"):
        Variable("few", "f8", (4,), (), attributes)


def test_a_writer_that_could_never_connect_is_not_made(tmp_path: Path) -> None:
    for at in ("x" * 200, "a\0b", ""):
        with pytest.raises(StagingError, match="expected a path"):
            Writer(at, 0, 1, [FEW], budget=1 << 16)
    long = Variable("few", "f8", (4,), (), {"note": "x" * 200_000})
    with pytest.raises(StagingError, match="at most 131072 bytes"):
        Writer(tmp_path / "socket", 0, 1, [long], budget=1 << 16)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"budget": 1 << 60}, "budget 1152921504606846976: no memory"), ({"budget": 1 << 70}, "no memory"),
        ({"full": "spill", "spill": "nowhere/at/all"}, "spill 'nowhere/at/all': expected a folder"),
        ({"full": "spill", "spill": __file__}, "expected a folder"),
        ({"full": "spill", "spill": 5}, "spill 5: expected a folder"),
        ({"full": "spill", "spill": b"/tmp"}, "expected a folder"),
        ({"disk": -1}, "disk -1: expected bytes"),
    ],
)  # fmt: skip
def test_room_that_no_host_gives_is_refused_at_once(wrong: Any, why: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StagingError, match=why):
        Writer("nobody", 0, 1, [FEW], **{"budget": 1 << 16} | wrong)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("wrong", ["soon", "5", True, np.True_, [], math.nan, 10**400])
def test_a_timeout_that_is_not_a_number_of_seconds_is_refused_and_nothing_is_begun(wrong: Any) -> None:
    writer = Writer("nobody", 0, 1, [FEW], budget=1 << 16)
    with pytest.raises(StagingError, match=r"writer: timeout .*: expected seconds, or None"):
        writer.write(0, ONES, timeout=wrong)
    with pytest.raises(StagingError, match=r"writer: timeout .*: expected seconds, or None"):
        writer.drain(wrong)
    with pytest.raises(StagingError, match=r"writer: timeout .*: expected seconds, or None"):
        writer.close(wrong)
    writer.write(0, ONES, timeout=np.float32(1))
    with pytest.raises(StagingError, match="is not safe yet"):
        writer.close(timeout=0.0001)


def test_any_path_names_the_folder_for_spilling(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    (folder,) = os.scandir(tmp_path)
    writer = Writer("nobody", 0, 1, [FEW], budget=4096 + 64, full="spill", spill=folder)
    for step in range(2):
        writer.write(step, ONES)
    writer.close(timeout=0)


def test_a_number_that_is_too_great_is_refused_with_the_bound() -> None:
    writer = Writer("nobody", 0, 1, [FEW], budget=1 << 16)
    with pytest.raises(StagingError, match=r"a number above -1, and below 2\*\*62"):
        writer.write(1 << 62, ONES)
    writer.close()


def _open_below(folder: Path) -> int:
    """How many files of a folder this process has open."""
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith(str(folder)) for link in links if os.path.lexists(link))


def test_a_disk_without_room_to_spill_is_told_and_the_step_may_be_written_again(
    tmp_path: Path, monkeypatch: Any
) -> None:
    settings: Any = {"budget": 4096 + 64, "full": "spill", "spill": tmp_path}
    writer, other = (Writer(tmp_path / "socket", rank, 2, [FEW], **settings) for rank in range(2))
    writer.write(0, ONES)

    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        before = _open_below(tmp_path)
        why = (
            rf"step 1 of rank 0 cannot be written to a file in {tmp_path}: .*No space.*make room on its disk"
        )
        with pytest.raises(StagingError, match=why):
            writer.write(1, ONES)
        assert _open_below(tmp_path) == before
    writer.write(1, ONES)
    for step in range(2):
        other.write(step, {})
    graph, _ = staged(tmp_path, variables=[FEW])
    with graph.run():
        writer.close(20)
        other.close(20)
    assert writer.fates() == other.fates() == [(0, ""), (1, "")]


def test_relative_paths_hold_where_the_working_directory_changes(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("one/kept", "two", "three"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "one")
    writer = Writer("socket", 0, 1, [FEW], budget=4096 + 64, full="spill", spill="kept")
    monkeypatch.chdir(tmp_path / "two")
    for step in range(2):
        writer.write(step, ONES)
    graph = ev.Graph("moved")
    graph.add(Stage([FEW], 1, "../one/socket", "run.h5"))
    with graph.run():
        monkeypatch.chdir(tmp_path / "three")
        writer.drain(20)
        writer.write(2, ONES)
        writer.close(20)
    assert read(tmp_path / "two" / "run.h5").step.values.tolist() == [0, 1, 2]
    assert not (tmp_path / "one" / "socket").exists()
    assert not any((tmp_path / "three").iterdir())


def test_a_wait_ends_when_the_writer_is_closed(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "socket", 0, 1, [FEW], budget=4096 + 64)
    writer.write(0, ONES)
    found: list[str] = []

    def waits() -> None:
        try:
            writer.write(1, ONES)
        except StagingError as error:
            found.append(str(error))

    thread = threading.Thread(target=waits, daemon=True)
    thread.start()
    wait_for(lambda: "step 1" in writer.why(), "the wait")
    writer.close(timeout=0)
    thread.join(20)
    assert found == ["rank 0: the writer is closed"]


def test_a_wait_that_is_over_is_not_told_any_more(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "socket", 0, 1, [FEW], budget=4096 + 64)
    writer.write(0, ONES)
    with pytest.raises(StagingError, match="step 1 of rank 0 waits for 64 bytes"):
        writer.write(1, ONES, timeout=0.01)
    where = tmp_path / "socket"
    assert writer.why() == f"step 0 of rank 0 is not safe yet: no staging node is connected at {where}"
    writer.close(timeout=0)


def test_an_error_of_the_application_is_not_hidden_by_that_of_closing(tmp_path: Path) -> None:
    class Hasty(Writer):
        def close(self, timeout: float | None = 0.01) -> None:
            super().close(timeout)

    with (
        pytest.raises(KeyboardInterrupt) as found,
        Hasty(tmp_path / "socket", 0, 1, [FEW], budget=1 << 16) as writer,
    ):
        writer.write(0, ONES)
        raise KeyboardInterrupt
    assert found.value.__notes__ == [
        "closing failed too: step 0 of rank 0 is not safe yet: no staging node is connected at "
        f"{tmp_path / 'socket'}"
    ]
    with (
        pytest.raises(StagingError, match="not safe yet"),
        Hasty(tmp_path / "socket", 0, 1, [FEW], budget=1 << 16) as writer,
    ):
        writer.write(0, ONES)


def test_a_step_that_was_given_up_may_be_written_again(tmp_path: Path) -> None:
    made = [Writer(tmp_path / "socket", rank, 2, [FEW], budget=1 << 16) for rank in range(2)]
    made[0].write(1, {"few": (np.zeros(2), (0,))})
    with pytest.raises(ZeroDivisionError), made[0].step(2, [FEW.block((2,))]):
        raise ZeroDivisionError
    with pytest.raises(StagingError, match="expected a number above 1"):
        made[0].write(1, {"few": (np.ones(2), (0,))})
    made[0].write(2, {"few": (np.ones(2), (0,))})
    for step in (1, 2):
        made[1].write(step, {"few": (np.zeros(2), (2,))})
    with staged(tmp_path, variables=[FEW])[0].run():
        for writer in made:
            writer.close(20)
            assert writer.fates() == [(1, ""), (2, "")]
    assert read(tmp_path / "run.h5").few.values.tolist() == [[0, 0, 0, 0], [1, 1, 0, 0]]


def test_a_step_in_hand_holds_back_the_next_and_is_named(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "socket", 0, 1, [FEW], budget=1 << 16)
    with writer.step(0, [FEW.block((4,))]):
        assert writer.why() == "step 0 of rank 0 is being written by the application"
        with pytest.raises(StagingError, match="step 0 of rank 0 is being written"):
            writer.drain(0.01)
        with pytest.raises(StagingError, match="step 1 of rank 0: expected step 0 to be complete before"):
            writer.write(1, ONES)
    writer.write(1, ONES)
    with pytest.raises(StagingError, match="the writer is closed"), writer.step(2, [FEW.block((4,))]):
        writer.close(timeout=0)


def test_a_step_whose_fate_comes_before_its_file_was_sent_is_left_out(tmp_path: Path) -> None:
    most = 400
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listens:
        listens.bind(str(tmp_path / "socket"))
        listens.listen()
        spill: Any = {"budget": 4096 + 64, "full": "spill", "spill": tmp_path}
        writer = Writer(tmp_path / "socket", 0, 1, [FEW], **spill)
        with listens.accept()[0] as node:
            node.settimeout(20)
            for step in range(most):
                writer.write(step, ONES)
            # More than a socket holds, of which nothing has been read.
            for step in range(most):
                node.send(encode(Fate(step, "")))
            writer.drain(20)
            writer.write(most, ONES)
            told, message = 0, decode(node.recv(MOST_BYTES), FromWriter)
            while not (isinstance(message, Ready) and message.step == most):
                told, message = told + 1, decode(node.recv(MOST_BYTES), FromWriter)
            assert told < most
            writer.close(timeout=0)


def test_a_connection_that_the_application_finds_cut_is_made_again(tmp_path: Path, monkeypatch: Any) -> None:
    """The application closes it while the thread is about to wait for it, and its number is taken anew."""
    real, taken = select.poll, list[int]()

    class Poll:
        def __init__(self) -> None:
            self.poll_of = real()
            self.register = self.poll_of.register

        def poll(self, timeout: float | None) -> Any:
            if armed.is_set():
                armed.clear()
                node.close()
                writer.write(0, ONES)
                taken.extend(os.pipe())
            return self.poll_of.poll(timeout)

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listens:
        listens.bind(str(tmp_path / "socket"))
        listens.listen()
        listens.settimeout(20)
        armed = threading.Event()
        monkeypatch.setattr(select, "poll", Poll)
        writer = Writer(tmp_path / "socket", 0, 1, [FEW], budget=1 << 16)
        node = listens.accept()[0]
        node.recv(MOST_BYTES)
        armed.set()
        with contextlib.suppress(OSError):
            node.send(encode(Waits("nothing")))
        with listens.accept()[0] as again:
            assert [type(decode(again.recv(MOST_BYTES), FromWriter)) for _ in range(2)] == [Hello, Ready]
            writer.close(timeout=0)
    for file in taken:
        os.close(file)


def test_a_writer_holds_no_more_steps_than_it_can_tell_of(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("evflow.staging.sending.MOST_SPILLED", 5)
    spill: Any = {"budget": 4096 + 64, "full": "spill", "spill": tmp_path}
    writer = Writer(tmp_path / "socket", 0, 2, [FEW], **spill)
    for step in range(6):
        writer.write(step, {"few": (np.ones(2), (0,))})
    with pytest.raises(
        StagingError, match=r"step 6 of rank 0 waits .*, and 5 of 5 steps are on disk; step 0"
    ):
        writer.write(6, {"few": (np.ones(2), (0,))}, timeout=0.01)
    other = Writer(tmp_path / "socket", 1, 2, [FEW], budget=1 << 16)
    with staged(tmp_path, variables=[FEW])[0].run():
        for step in range(7):
            other.write(step, {"few": (np.ones(2), (2,))})
        writer.write(6, {"few": (np.ones(2), (0,))}, timeout=20)
        for made in (writer, other):
            made.close(20)
            assert made.fates() == [(step, "") for step in range(7)]


def test_the_most_steps_that_a_writer_may_hold_fit_into_a_message() -> None:
    note = "x" * (MOST_BYTES - 9 * (MOST_STEPS + MOST_SPILLED) - 200)
    for length, full in ((0, "spill"), (9 * MOST_SPILLED, "block")):
        at: Any = ["socket", 0, 1]
        spill: Any = {"budget": 1 << 16, "full": full, "spill": "." if full == "spill" else None}
        Writer(*at, [Variable("few", "f8", (4,), (), {"note": note + "x" * length})], **spill).close(
            timeout=0
        )
        with pytest.raises(StagingError, match="expected a message of at most 131072 bytes"):
            Writer(*at, [Variable("few", "f8", (4,), (), {"note": note + "x" * (length + 400)})], **spill)


def sockets() -> set[str]:
    """Those that this process has open."""
    links = [Path("/proc/self/fd", file) for file in os.listdir("/proc/self/fd")]
    return {found for link in links if link.is_symlink() and "socket:" in (found := os.readlink(link))}


def test_bytes_in_use_are_not_told_while_room_is_being_given_back(monkeypatch: Any) -> None:
    give, told = FreeList.give, list[int]()
    writer = Writer("nobody", 0, 1, [FEW], budget=4096 + 64, full="drop oldest")
    asks = threading.Thread(target=lambda: told.append(writer.used))

    def slow(room: FreeList, *given: int) -> None:
        asks.start()
        asks.join(0.2)
        assert not told
        give(room, *given)

    writer.write(0, ONES)
    monkeypatch.setattr(FreeList, "give", slow)
    writer.write(1, ONES)
    asks.join()
    assert told == [4096 + 64]
    writer.close(timeout=0)


def test_a_fork_leaves_the_writer_to_its_parent(tmp_path: Path) -> None:
    before = sockets()
    graph, _ = staged(tmp_path, variables=[FEW])
    made = [Writer(tmp_path / "socket", rank, 2, [FEW], budget=1 << 16) for rank in range(2)]
    with graph.run():
        made[1].write(0, {"few": (np.ones(2), (2,))})
        wait_for(lambda: "rank 0 has not announced" in made[1].why(), "both connections")
        with made[0].step(0, [FEW.block((2,))]) as arrays:
            mine = sockets() - before
            fork = os.fork()
            if not fork:
                signal.alarm(20)
                code = 1
                with contextlib.suppress(BaseException):
                    # As where an error ends all "with" blocks of the fork.
                    made[0].close()
                    made[0]._sending.release(0)
                    with pytest.raises(StagingError, match="closed"):
                        made[0].write(1, ONES)
                    # Else nobody would notice when the parent is killed.
                    code = len(sockets() & mine)
                os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == 0
            arrays["few"][...] = 1
        for writer in made:
            writer.drain(20)
            assert writer.fates() == [(0, "")]
            writer.close()
