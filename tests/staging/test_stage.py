"""Writers and the stage, with sockets, shared memory and files; with processes that are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import xarray

import evflow as ev
from evflow.disk import Lock
from evflow.errors import StagingError
from evflow.staging import All, AvoidCongestion, Block, InOrder, RateLimit, Stage, Variable, Writer
from evflow.staging.messages import VERSION, Hello, Ready, Refused, ToWriter, decode, encode
from tests import preloaded
from tests.deploy.daemons import DaemonProcess, hosts_of
from tests.examples import tried
from tests.node.processes import ROOT, wait_for
from tests.staging.application import HEAT, PLENTY, heat, write

ROWS = Variable("rows", "i4", (None, 2))
HALF = 32 * 32 * 8


def read(path: Path) -> xarray.Dataset:
    with xarray.open_dataset(path, engine="h5netcdf" if path.suffix == ".h5" else "zarr") as found:
        return found.load()


def check(path: Path, steps: list[int]) -> None:
    """Exactly these steps are there, with the bytes that the writers had."""
    found = read(path)
    assert found.step.values.tolist() == steps
    assert found.time.values.tolist() == [step / 4 for step in steps]
    assert found.heat.values.tobytes() == np.array([heat(step) for step in steps]).tobytes()


def staged(folder: Path, store: str = "run.h5", **settings: Any) -> tuple[ev.Graph, list[int]]:
    seen: list[int] = []
    graph = ev.Graph("run")
    variables = settings.pop("variables", [HEAT])
    stage = Stage(variables, 2, folder / "socket", folder / store, name="stage", **settings)
    graph.add(stage) >> ev.Terminal(lambda event: seen.append(event.step))
    return graph, seen


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[list[Writer]]:
    made = [Writer(tmp_path / "socket", rank, 2, [HEAT], budget=PLENTY) for rank in range(2)]
    yield made
    for writer in made:
        writer.close(timeout=0)


@pytest.mark.parametrize("store", ["run.h5", "run.zarr"])
def test_what_two_writers_write_is_committed(tmp_path: Path, writers: list[Writer], store: str) -> None:
    scheduler = All([InOrder(), AvoidCongestion(), RateLimit(1e9)])
    graph, seen = staged(tmp_path, store, scheduler=scheduler, piece=5000)
    with graph.run() as flow:
        for step in (2, 3, 7):
            for rank, writer in enumerate(writers):
                write(writer, rank, step)
        for writer in writers:
            writer.drain(20)
            assert writer.fates() == [(2, ""), (3, ""), (7, "")]
            assert writer.safe == 7
            assert writer.why() == ""
        flow.drain(20)
        check(tmp_path / store, [2, 3, 7])
    assert seen == [2, 3, 7]


def test_budget_holds_before_a_step_is_taken_and_the_wait_has_a_reason(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "socket", 0, 2, [HEAT], budget=4096 + 2 * HALF)
    for step in range(2):
        write(writer, 0, step)
    assert writer.used == 4096 + 2 * HALF
    with pytest.raises(
        StagingError, match=r"step 2 of rank 0 waits for 8192 bytes: 0 of a budget of 20480 .* no "
    ):
        write(writer, 0, 2, timeout=0.05)
    assert writer.used == 4096 + 2 * HALF
    writer.close(timeout=0)


def test_a_step_larger_than_the_budget_is_an_error(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "socket", 0, 2, [HEAT], budget=4096 + HALF)
    with pytest.raises(StagingError, match="there is never room for more than 8192"):
        writer.write(0, {"heat": (heat(0), (0, 0))})
    writer.close()


def test_oldest_steps_are_dropped_and_told(tmp_path: Path) -> None:
    budget, folder = 4096 + 3 * HALF, tmp_path
    made = [
        Writer(folder / "socket", rank, 2, [HEAT], budget=budget, full="drop oldest") for rank in range(2)
    ]
    for step in range(5):
        for rank, writer in enumerate(made):
            write(writer, rank, step)
    graph, _ = staged(folder)
    with graph.run():
        for rank, writer in enumerate(made):
            writer.drain(20)
            dropped = f"dropped by rank {rank}: its budget of {budget} bytes was full"
            assert writer.fates() == [(0, dropped), (1, dropped), (2, ""), (3, ""), (4, "")]
            writer.close()
    check(folder / "run.h5", [2, 3, 4])


def test_steps_without_room_are_spilled_within_a_limit(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"budget": 4096 + HALF, "full": "spill", "spill": tmp_path, "disk": 2 * HALF}
    made = [Writer(tmp_path / "socket", rank, 2, [HEAT], **settings) for rank in range(2)]
    for step in range(3):
        for rank, writer in enumerate(made):
            write(writer, rank, step)
            assert writer.used <= 4096 + HALF
    with pytest.raises(StagingError, match="and of 16384 bytes on disk 0"):
        write(made[0], 0, 3, timeout=0)
    graph, _ = staged(tmp_path)
    with graph.run():
        for writer in made:
            writer.close(20)
    check(tmp_path / "run.h5", [0, 1, 2])


def test_a_step_that_is_given_up_is_never_announced(tmp_path: Path, writers: list[Writer]) -> None:
    def fails() -> None:
        with writers[0].step(0, [HEAT.block((32, 32))]):
            raise RuntimeError("the application")

    with pytest.raises(RuntimeError, match="the application"):
        fails()
    assert writers[0].used == 4096
    graph, _ = staged(tmp_path)
    with graph.run():
        for rank, writer in enumerate(writers):
            if rank:
                write(writer, rank, 0)
            write(writer, rank, 1)
        writers[1].drain(20)
        assert writers[1].fates() == [(0, "step 0 is not committed: it lacks the part of rank 0"), (1, "")]


def test_a_writer_that_never_comes_is_waited_for_with_a_reason(tmp_path: Path) -> None:
    graph, _ = staged(tmp_path, patience=0.3, incomplete="fill")
    why = "rank 0 has not connected; step 0 waits 0.3 s for it"
    with graph.run() as flow, Writer(tmp_path / "socket", 1, 2, [HEAT], budget=PLENTY) as writer:
        write(writer, 1, 0)
        wait_for(lambda: why in writer.why(), "the reason")
        with pytest.raises(ev.FlowError, match=why):
            flow.drain(0.05)
        writer.drain(20)
    found = read(tmp_path / "run.h5")
    assert np.isnan(found.heat.values[0, :32]).all()
    assert np.array_equal(found.heat.values[0, 32:], heat(0)[32:])


def test_overlapping_blocks_cost_their_step_only(tmp_path: Path, writers: list[Writer]) -> None:
    graph, _ = staged(tmp_path)
    with graph.run():
        for writer in writers:
            writer.write(0, {"heat": (heat(0)[:33], (0, 0))})
        for rank, writer in enumerate(writers):
            write(writer, rank, 1)
        writers[0].drain(20)
        why = "step 0 is not committed: heat: the block of rank 1 at (0, 0) overlaps that of rank 0"
        assert writers[0].fates() == [(0, why), (1, "")]
    check(tmp_path / "run.h5", [1])


def test_nothing_is_pulled_while_the_application_communicates(tmp_path: Path, writers: list[Writer]) -> None:
    graph, _ = staged(tmp_path, scheduler=AvoidCongestion())
    with graph.run():
        write(writers[1], 1, 0)
        with writers[0].communicating():
            write(writers[0], 0, 0)
            wait_for(lambda: "the application of rank 0 is communicating" in writers[0].why(), "the reason")
            time.sleep(0.05)
            assert writers[0].safe == -1
        writers[0].drain(20)
        assert writers[0].safe == 0


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "No space left on device; make room on its disk"),
        pytest.param(
            ValueError("what a library raises"),
            "step 0 cannot be written: ValueError: what a library raises",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_disk_that_fails_is_waited_for(
    tmp_path: Path, writers: list[Writer], monkeypatch: Any, error: Exception, words: str
) -> None:
    real = os.fsync
    monkeypatch.setattr("evflow.staging.committing.AGAIN", 0.05)

    def full(file: int) -> None:
        raise error

    graph, _ = staged(tmp_path, live={"heat": (32, 32)})
    blocks: list[int] = []
    graph["stage"][1] >> ev.Terminal(lambda block: blocks.append(block.rank))
    with graph.run():
        monkeypatch.setattr(os, "fsync", full)
        for rank, writer in enumerate(writers):
            write(writer, rank, 0)
        wait_for(lambda: words in writers[0].why(), "the reason")
        assert writers[0].safe == -1
        monkeypatch.setattr(os, "fsync", real)
        writers[0].drain(20)
    check(tmp_path / "run.h5", [0])
    assert blocks == [0, 1]


def test_a_writer_of_other_variables_is_refused(tmp_path: Path) -> None:
    graph, _ = staged(tmp_path)
    with graph.run():
        writer = Writer(tmp_path / "socket", 0, 2, [ROWS], budget=PLENTY)
        wait_for(lambda: writer.why() or writer._sending.refused, "the answer")
        with pytest.raises(StagingError, match="refused this writer: expected the variables"):
            writer.write(0, {"rows": (np.zeros((1, 2), "i4"), (0, 0))})
        writer.close()


def hostile() -> Iterator[tuple[list[bytes], int]]:
    """Messages, and how many files come with the first."""
    hello = encode(Hello(VERSION, 0, 2, (HEAT,), -1, (), 1))
    block = HEAT.block((32, 32))
    yield [b""], 0
    yield [b"\xc1" * 100], 1
    yield [os.urandom(1000)], 1
    yield [hello], 0
    yield [hello, hello], 1
    yield [encode(Hello(99, 0, 2, (HEAT,), -1, ()))], 1
    # As version 1 had it.
    yield [msgspec.msgpack.encode([1, 1, 0, 2, [HEAT], -1, []])], 1
    yield [encode(Hello(VERSION, 7, 2, (HEAT,), -1, (), 1))], 1
    for life in (0, -1, 1 << 62):
        yield [encode(Hello(VERSION, 0, 2, (HEAT,), -1, (), life))], 1
    yield [encode(Ready(0, 0.0, (block,), 4096, 1, 0))], 0
    yield [hello, encode(Ready(0, 0.0, (block,), 4096, -1, 0))], 1
    yield [hello, encode(Ready(-1, 0.0, (block,), 4096, 1, 0))], 1
    yield [hello, encode(Ready(0, float("nan"), (block,), 4096, 1, 0))], 1
    yield [hello, encode(Ready(0, 0.0, (block, block), 4096, 1, 0))], 1
    for place in ((1 << 63, 1), (-1, 1), (0, 1000), (0, -2)):
        yield [hello, encode(Ready(0, 0.0, (block,), *place, 0))], 1
    for shape in ((65, 1), (-5, 1), (1 << 62, 1 << 62), (1,)):
        yield [hello, encode(Ready(0, 0.0, (Block("heat", (0, 0), shape, "f8"),), 4096, 1, 0))], 1


def test_hostile_writers_are_refused_and_disturb_nobody(tmp_path: Path, writers: list[Writer]) -> None:
    graph, _ = staged(tmp_path)
    with graph.run():
        for messages, files in hostile():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made, open(os.devnull) as null:
                made.connect(str(tmp_path / "socket"))
                made.settimeout(20)
                socket.send_fds(made, [messages[0]], [null.fileno()] * files)
                # It may be refused already.
                with contextlib.suppress(BrokenPipeError):
                    for message in messages[1:]:
                        made.send(message)
                if messages[0]:
                    assert isinstance(decode(made.recv(1 << 17), ToWriter), Refused)
        # One that promises bytes which are not there holds up its own step only.
        for rank, writer in enumerate(writers):
            write(writer, rank, 1)
        writers[1].drain(20)
        assert writers[1].fates() == [(1, "")]


def test_rows_of_writers_stand_in_the_order_of_ranks(tmp_path: Path) -> None:
    graph, _ = staged(tmp_path, variables=[ROWS])
    rows = [np.array([[1, 2]], "i4"), np.array([[3, 4], [5, 6]], "i4")]
    made = [Writer(tmp_path / "socket", rank, 2, [ROWS], budget=PLENTY) for rank in range(2)]
    with graph.run():
        for rank, writer in reversed(list(enumerate(made))):
            writer.write(0, {"rows": (rows[rank], (0, 0))})
        for writer in made:
            writer.close(20)
    assert read(tmp_path / "run.steps" / "0.h5")["rows"].values[0].tolist() == [[1, 2], [3, 4], [5, 6]]


def test_open_variables_of_one_dimension_have_as_many_rows(tmp_path: Path) -> None:
    names = Variable("names", "i4", (None,), ("rows_0",))
    graph, _ = staged(tmp_path, variables=[ROWS, names])
    made = [Writer(tmp_path / "socket", rank, 2, [ROWS, names], budget=PLENTY) for rank in range(2)]
    with graph.run():
        for step, count in enumerate((3, 2)):
            for writer in made:
                rows = {"rows": (np.zeros((2, 2), "i4"), (0, 0)), "names": (np.zeros(count, "i4"), (0,))}
                writer.write(step, rows)
        for writer in made:
            writer.close(20)
            why = "step 0 is not committed: rows_0: expected one size, found 4 (rows) and 6 (names)"
            assert writer.fates() == [(0, why), (1, "")]


def test_rows_of_open_variables_are_whole(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "socket", 0, 1, [ROWS], budget=PLENTY)
    for shape in ((1 << 39, 0), (5, 1)):
        with pytest.raises(StagingError, match="expected a block of i4 within"):
            ROWS.block(shape)
    writer.close()


@pytest.mark.slow
def test_many_missing_ranks_are_told_in_few_words(tmp_path: Path) -> None:
    graph = ev.Graph("run")
    ranks = 20_000
    stage = Stage([HEAT], ranks, tmp_path / "socket", tmp_path / "run.h5", patience=0, name="stage")
    graph.add(stage) >> ev.Terminal(print)
    with graph.run(), Writer(tmp_path / "socket", 0, ranks, [HEAT], budget=PLENTY) as writer:
        write(writer, 0, 0)
        writer.drain(60)
        ((_, reason),) = writer.fates()
    assert reason.endswith("it lacks the part of rank 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 19989 more")


def test_a_socket_on_which_another_program_listens_is_left_alone(tmp_path: Path) -> None:
    graph, _ = staged(tmp_path)
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as other:
            other.bind(str(tmp_path / "socket"))
            other.listen()
            with pytest.raises(ev.EvflowError, match="Address already in use"):
                graph.run()
        assert (tmp_path / "socket").is_socket()
        with graph.run():
            pass


def test_a_stage_waits_for_one_before_it_that_is_ending(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("evflow.disk.lock.PATIENCE", 0.3)
    graph, _ = staged(tmp_path)
    before = Lock(tmp_path / "socket-lock")
    ending = threading.Timer(0.1, before.close)
    ending.start()
    with graph.run():
        ending.join()
    with graph.run(), pytest.raises(ev.EvflowError, match="another stone, flow, node or process has it"):
        staged(tmp_path, "other.h5")[0].run()


def test_settings_describe_the_stage(tmp_path: Path) -> None:
    scheduler = All([InOrder(("rank", "step")), RateLimit(np.float64(5))])
    graph, _ = staged(tmp_path, scheduler=scheduler, patience=np.float64(9))
    stage = graph.stones["stage"]
    assert Stage.from_settings(stage.settings()).settings() == stage.settings()
    for settings, what in (
        ({"store": "run.nc"}, "ends in"), ({"incomplete": "no"}, "incomplete"), ({"patience": -1}, "seconds"),
        ({"listen": "x" * 101}, "100 bytes"), ({"listen": ""}, "100 bytes"),
        ({"scheduler": {"type": "Fast"}}, "scheduler"), ({"piece": 1}, "piece"),
        ({"variables": []}, "1 to 256 variables"),
    ):  # fmt: skip
        with pytest.raises(ev.EvflowError, match=what):
            Stage.from_settings(stage.settings() | settings)


@pytest.mark.slow
def test_what_a_killed_writer_has_announced_is_committed(tmp_path: Path, writers: list[Writer]) -> None:
    graph, _ = staged(tmp_path, patience=0.1)
    writers[0].close()
    with graph.run():
        process = preloaded.start("tests.staging.application:dies", [str(tmp_path / "socket")], cwd=ROOT)
        assert process.wait(20) == -signal.SIGKILL
        for step in range(4):
            write(writers[1], 1, step)
        writers[1].drain(20)
        lacks = "step 3 is not committed: it lacks the part of rank 0"
        assert writers[1].fates() == [(0, ""), (1, ""), (2, ""), (3, lacks)]
    check(tmp_path / "run.h5", [0, 1, 2])


@pytest.mark.slow
def test_killing_the_staging_node_loses_no_step(tmp_path: Path, writers: list[Writer]) -> None:
    graph = ev.Graph("run")
    scheduler = RateLimit(2e6)
    graph.add(Stage([HEAT], 2, tmp_path / "socket", "run.h5", scheduler=scheduler, name="stage", on="area"))
    steps, safe = 30, set()
    with DaemonProcess("area", tmp_path, "--allow", "evflow.staging:Stage") as daemon:
        with graph.deploy(hosts_of(daemon)):
            pass
        ending = threading.Event()

        def kill() -> None:
            for seed in range(tried(2)):
                time.sleep(0.05 + 0.07 * seed)
                daemon.kill()
                daemon.restart()
            ending.set()

        killer = threading.Thread(target=kill)
        killer.start()
        step = 0
        while step < steps or not ending.is_set():
            for rank, writer in enumerate(writers):
                write(writer, rank, step, timeout=60)
                safe |= {number for number, reason in writer.fates() if not reason}
            step += 1
            time.sleep(0.01)
        killer.join()
        for writer in writers:
            writer.close(60)
        store = next(tmp_path.glob("area/**/run.h5"))
        check(store, list(range(step)))
        assert safe <= set(range(step))


class Mean(ev.Event):
    step: int
    rank: int
    mean: float


MEAN = """{
    int i, j;
    double sum = 0;
    for (i = 0; i < 32; i++)
        for (j = 0; j < 32; j++)
            sum += input.values[i][j];
    output.step = input.step;
    output.rank = input.rank;
    output.mean = sum / 1024;
    return 1;
}"""


def test_blocks_of_live_variables_leave_before_their_step_is_committed(
    tmp_path: Path, writers: list[Writer]
) -> None:
    seen: list[Any] = []
    graph = ev.Graph("run")
    settings: dict[str, Any] = {"live": {"heat": (32, 32)}, "name": "stage"}
    stage = graph.add(Stage([HEAT], 2, tmp_path / "socket", tmp_path / "run.h5", **settings))
    stage[0] >> ev.Terminal(lambda done: seen.append(done.step))
    stage[1] >> ev.Terminal(lambda heat: seen.append((heat.step, heat.time, heat.rank, heat.offset.tolist())))
    means = stage[1] >> ev.Transform(MEAN, output=Mean)
    means >> ev.Terminal(lambda found: seen.append(found.to_event()))
    with graph.run() as flow:
        for step in (3, 5):
            for rank, writer in enumerate(writers):
                write(writer, rank, step)
            writers[1].drain(20)
            flow.drain(20)
            both = [heat(step)[:32], heat(step)[32:]]
            assert seen.pop() == step
            assert [one for one in seen if isinstance(one, tuple)] == [
                (step, step / 4, 0, [0, 0]),
                (step, step / 4, 1, [32, 0]),
            ]
            found = [one for one in seen if isinstance(one, Mean)]
            assert [(one.step, one.rank) for one in found] == [(step, 0), (step, 1)]
            np.testing.assert_allclose([one.mean for one in found], [half.mean() for half in both])
            seen.clear()
    check(tmp_path / "run.h5", [3, 5])


@pytest.mark.slow
def test_a_stone_that_takes_no_blocks_holds_up_the_steps_and_the_writers_are_told(
    tmp_path: Path, writers: list[Writer]
) -> None:
    goes_on = threading.Event()
    graph = ev.Graph("run")
    stage = graph.add(Stage([HEAT], 2, tmp_path / "socket", tmp_path / "run.h5", live={"heat": (32, 32)}))
    stage[1] >> ev.Terminal(lambda block: goes_on.wait(20), workers=1, queue=2)
    with graph.run():
        for step in range(9):
            for rank, writer in enumerate(writers):
                write(writer, rank, step)
        wait_for(lambda: "waits for stones behind the stage" in writers[0].why(), "the stage waits")
        assert writers[0].safe < 8
        goes_on.set()
        for writer in writers:
            writer.drain(20)
    check(tmp_path / "run.h5", list(range(9)))


def test_a_stage_that_ends_while_blocks_wait_does_not_commit_their_step(
    tmp_path: Path, writers: list[Writer]
) -> None:
    blocks: list[int] = []
    graph, _ = staged(tmp_path, live={"heat": (32, 32)})
    graph["stage"][1] >> ev.Terminal(lambda block: blocks.append(block.rank))
    flow = graph.run()
    flow.freeze("stage")
    for rank, writer in enumerate(writers):
        write(writer, rank, 0)
    wait_for(lambda: "waits for stones behind the stage" in writers[0].why(), "the stage waits")
    flow.stop()
    assert not blocks
    assert not [*tmp_path.glob("run.steps/*.h5")]
    with graph.run():
        for writer in writers:
            writer.drain(20)
    assert blocks == [0, 1]
    check(tmp_path / "run.h5", [0])


def test_a_block_of_another_shape_than_the_stage_hands_on_is_refused(tmp_path: Path) -> None:
    graph = ev.Graph("run")
    graph.add(Stage([HEAT], 1, tmp_path / "socket", tmp_path / "run.h5", live={"heat": (32, 32)}))
    writer = Writer(tmp_path / "socket", 0, 1, [HEAT], budget=PLENTY)
    writer.write(0, {"heat": (heat(0), (0, 0))})
    refused = r"shape \(64, 32\): expected \(32, 32\), as the stage hands"
    with graph.run(), pytest.raises(StagingError, match=refused):
        writer.drain(20)
    writer.close(timeout=0)


@pytest.mark.parametrize(
    ("live", "words"),
    [
        ({"cold": (32, 32)}, "live 'cold': expected one of heat"),
        ({"heat": (65, 32)}, "block"),
        ({"heat": (32,)}, "block"),
        ({"heat": (0, 32)}, "block"),
        ({"heat": 7}, "live"),
        ({7: (1, 1)}, "live"),
        (["heat"], "live"),
    ],
)
def test_what_cannot_be_handed_on_is_refused(tmp_path: Path, live: Any, words: str) -> None:
    with pytest.raises(StagingError, match=words):
        Stage([HEAT], 2, tmp_path / "socket", tmp_path / "run.h5", live=live)
