"""Recordings: what was written is read, whatever happens to the last of it, and nothing else is believed."""

from __future__ import annotations

import contextlib
import resource
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.errors import FlowError
from evflow.events.attributes import Attributes
from evflow.tools.watch import recording as recording_module
from evflow.tools.watch.recording import Recorder, Recording, Replayed, replay
from tests import preloaded
from tests.examples import tried


class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float


class Note(ev.Event):
    text: str
    pixels: ev.Array[float, 2, 2]


def trades(*prices: float) -> ev.EventBatch:
    return ev.EventBatch.from_columns(Trade.schema, {"symbol": ["IBM"] * len(prices), "price": prices})


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trades.evrec"


@pytest.fixture
def written(path: Path) -> bytes:
    """A recording of three batches, at 0, 1 and 2 seconds."""
    with Recorder(path, stone="trades/high", node="edge", wall=lambda: 1e9) as recorder:
        for number in range(3):
            recorder.write(trades(number), seconds=number)
    return path.read_bytes()


def read(path: Path) -> list[tuple[float, list[float]]]:
    return [(seconds, batch["price"].tolist()) for seconds, batch in Recording(path)]


def piece(meta: Any, body: bytes = b"") -> bytes:
    """A piece, packed by hand."""
    packed = meta if isinstance(meta, bytes) else msgpack.packb(meta)
    head = struct.pack("<IIII", len(packed), len(body), zlib.crc32(packed), zlib.crc32(body))
    return head + struct.pack("<I", zlib.crc32(head)) + packed + body


MAGIC = b"evflow log 1\n"
BEGINS = MAGIC + piece(["recording 2", 0, 0])


def test_events_are_read_with_times_schemas_and_attributes(path: Path) -> None:
    clock = Clock()
    attributes = Attributes.from_rows([{"hops": 1}, None, {"hops": 3, "via": "lab"}])
    notes = ev.EventBatch.from_events([Note("a", np.eye(2)), Note("bb", np.ones((2, 2)))])
    with Recorder(path, clock=clock) as recorder:
        recorder.write(trades(1.0, 2.0, 3.0).with_attributes(attributes))
        clock.now += 1.5
        recorder.write(notes)
        clock.now += 1.0
        recorder.write(trades(4.0))
        assert recorder.events == 6
    found = list(Recording(path))
    assert [seconds for seconds, _ in found] == [0.0, 1.5, 2.5]
    assert [batch.schema.fingerprint for _, batch in found] == [
        Trade.schema.fingerprint, Note.schema.fingerprint, Trade.schema.fingerprint
    ]  # fmt: skip
    assert [event.attrs for event in found[0].batch] == [{"hops": 1}, {}, {"hops": 3, "via": "lab"}]
    assert found[1].batch.to_bytes() == notes.to_bytes()
    assert found[1].batch[1].text == "bb"


def test_only_the_selected_events_of_a_batch_are_written(path: Path) -> None:
    with Recorder(path) as recorder:
        recorder.write(trades(1.0, 2.0, 3.0).select(np.array([0, 2])), seconds=0.0)
        recorder.write(trades(1.0).slice(0, 0))
    assert read(path) == [(0.0, [1.0, 3.0])]


def test_large_batches_become_several_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "_LARGE", 100)
    whole = trades(*range(20)).with_attributes(Attributes.from_rows([{"n": n} for n in range(20)]))
    with Recorder(path) as recorder:
        recorder.write(whole, seconds=1.0)
    found = list(Recording(path))
    assert len(found) > 3
    assert all(batch.nbytes <= 100 for _, batch in found)
    assert [(e.price, e.attrs["n"]) for _, batch in found for e in batch] == [(n, n) for n in range(20)]


def test_recording_says_where_it_is_from(path: Path, written: bytes) -> None:
    recording = Recording(path)
    list(recording)
    (session,) = recording.sessions
    assert session == (1e9, "trades/high", "edge", ev.__version__)
    assert recording.torn == 0


def test_file_is_continued_and_its_sessions_follow_each_other(path: Path, written: bytes) -> None:
    with Recorder(path) as recorder:
        recorder.write(trades(7.0), seconds=0.25)
    assert path.read_bytes()[: len(written)] == written
    assert read(path)[-2:] == [(2.0, [2.0]), (2.25, [7.0])]


def test_format_is_what_the_module_says(path: Path, written: bytes) -> None:
    assert written.startswith(BEGINS)
    at, kinds = len(BEGINS), []
    while at < len(written):
        meta, body, meta_check, body_check = struct.unpack_from("<IIII", written, at)
        assert struct.unpack_from("<I", written, at + 16)[0] == zlib.crc32(written[at : at + 16])
        data = written[at + 20 : at + 20 + meta + body]
        assert (zlib.crc32(data[:meta]), zlib.crc32(data[meta:])) == (meta_check, body_check)
        kinds.append(msgpack.unpackb(data[:meta])[0])
        at += 20 + meta + body
    assert kinds == ["session", "schema", "events", "events", "events"]


# The end of a file


@pytest.mark.slow
def test_file_cut_anywhere_holds_what_was_whole(path: Path, written: bytes) -> None:
    whole = read(path)
    for size in range(len(written)):
        path.write_bytes(written[:size])
        found = read(path)
        assert found == whole[: len(found)]
    assert len(found) == 2


def test_torn_piece_is_counted_and_overwritten_by_the_next_recorder(path: Path, written: bytes) -> None:
    path.write_bytes(written[:-5])
    recording = Recording(path)
    assert len(list(recording)) == 2
    assert 0 < recording.torn < 100
    with Recorder(path) as recorder:
        recorder.write(trades(7.0), seconds=0.5)
    assert read(path) == [(0.0, [0.0]), (1.0, [1.0]), (1.5, [7.0])]


def test_zeros_that_a_lost_host_leaves_are_left_out(path: Path, written: bytes) -> None:
    path.write_bytes(written + bytes(5000))
    recording = Recording(path)
    assert len(list(recording)) == 3
    assert recording.torn == 5000


def test_last_piece_with_wrong_bytes_is_torn(path: Path, written: bytes) -> None:
    path.write_bytes(written[:-1] + b"\xff")
    assert len(read(path)) == 2


@pytest.mark.parametrize("size", range(0, len(BEGINS), 5))
def test_recorder_killed_at_its_first_bytes_leaves_a_file_that_can_be_continued(
    path: Path, size: int
) -> None:
    path.write_bytes(BEGINS[:size])
    assert read(path) == []
    with Recorder(path) as recorder:
        recorder.write(trades(1.0), seconds=0.0)
    assert read(path) == [(0.0, [1.0])]


KILLED = """
import sys
import evflow as ev
from evflow.tools.watch.recording import Recorder
class Trade(ev.Event):
    number: int
    text: str
batch = ev.EventBatch.from_events([Trade(n, "x" * n) for n in range(200)])
with Recorder(sys.argv[1]) as recorder:
    while True:
        recorder.write(batch)
        print(recorder.events, flush=True)
"""


@pytest.mark.slow
def test_recording_of_a_killed_process_holds_all_it_had_written(path: Path) -> None:
    program = path.with_name("program.py")
    program.write_text(KILLED)
    process = preloaded.start(program, [str(path)], stdout=subprocess.PIPE, encoding="utf-8")
    assert process.stdout is not None
    for _ in range(20):
        told = int(process.stdout.readline())
    process.kill()
    process.communicate(60)
    assert sum(len(batch) for _, batch in Recording(path)) >= told


# Damage


def test_damage_in_the_middle_is_told_with_its_place(path: Path, written: bytes) -> None:
    places = [written.index(b"schema"), written.index(b"events"), len(BEGINS) + 2]
    for place in places:
        path.write_bytes(written[:place] + b"\xfe" + written[place + 1 :])
        with pytest.raises(
            FlowError, match=r"trades.evrec cannot be used: it is damaged at byte [\d,]+: .*bring"
        ):
            read(path)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([["moon"]], "expected a session, schema or events"),
        ([[]], "expected an array"),
        ([b"\xc1"], "expected msgpack"),
        ([b"\xdd\xff\xff\xff\xff"], "expected msgpack"),
        ([["schema", 0, "{}"]], "expected a session"),
        ([["session", "now", "", "", ""]], "expected ['session', seconds"),
        ([["session", 0.0, "", "", ""], ["schema", 0, "{}"]], "schema description"),
        ([["session", 0.0, "", "", ""], ["schema", 0, "{"]], "the piece at byte"),
        ([["session", 0.0, "", "", ""], ["events", 0.0, 0, 1, None]], "its schema was not described"),
        ([["session", 0.0, "", "", ""], ["events", -1.0, 0, 1, None]], "expected seconds"),
        ([["session", 0.0, "", "", ""], ["events", float("nan"), 0, 1, None]], "expected seconds"),
        ([["session", 0.0, "", "", ""], ["events", 0.0, 0, None, None]], "expected a session, schema"),
    ],
)
def test_pieces_that_are_wrong_are_refused(path: Path, pieces: list[Any], said: str) -> None:
    path.write_bytes(BEGINS + b"".join(map(piece, pieces)))
    with pytest.raises(FlowError) as refused:
        list(Recording(path))
    assert said in str(refused.value)


@pytest.mark.parametrize("events", [b"", b"\x92", b"\xff" * 20])
def test_events_that_are_none_are_refused(path: Path, written: bytes, events: bytes) -> None:
    bad = piece(["events", 3.0, 0, 1, None], events)
    path.write_bytes(written + bad)
    with pytest.raises(FlowError, match="the piece at byte"):
        list(Recording(path))


def test_length_from_outside_takes_no_memory(path: Path) -> None:
    head = struct.pack("<IIII", 100, 0xFFFF_FFFF, 0, 0)
    path.write_bytes(BEGINS + head + struct.pack("<I", zlib.crc32(head)) + b"x" * 50)
    assert read(path) == []


@settings(max_examples=tried(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_cost_a_flow_error_at_most(path: Path, written: bytes, data: st.DataObject) -> None:
    changed = bytearray(written)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(changed))
    try:
        found = read(path)
    except FlowError as error:
        assert "trades.evrec" in str(error)
    else:
        # What the check sums let through is what was written.
        assert found == [(float(n), [float(n)]) for n in range(len(found))]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=tried(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    metas=st.lists(
        st.lists(
            st.sampled_from(["session", "schema", "events", 0, 1, 0.0, '{"name": "x", "fields": []}'])
            | VALUES
        )
        | VALUES,
        max_size=4,
    ),
    body=st.binary(max_size=40),
)
def test_pieces_of_anything_cost_a_flow_error_at_most(path: Path, metas: list[Any], body: bytes) -> None:
    path.write_bytes(
        BEGINS + piece(["session", 0.0, "", "", ""]) + b"".join(piece(meta, body) for meta in metas)
    )
    try:
        list(Recording(path))
    except FlowError as error:
        assert str(path) in str(error)


# Errors of whoever uses it


def test_file_that_is_no_recording_is_left_as_it_is(path: Path) -> None:
    path.write_text("dear diary\n")
    for use in (lambda: list(Recording(path)), lambda: Recorder(path)):
        with pytest.raises(FlowError, match="it is not a file of evflow: it begins with"):
            use()
    assert path.read_text() == "dear diary\n"


def test_file_that_is_not_there_is_told(path: Path) -> None:
    with pytest.raises(FlowError, match=r"cannot be used: .*No such file"):
        list(Recording(path))
    with pytest.raises(FlowError, match=r"cannot be used: .*No such file"):
        Recorder(path / "deeper")


@pytest.mark.usefixtures("impatient")
def test_two_recorders_do_not_write_one_file(path: Path) -> None:
    with Recorder(path), pytest.raises(FlowError, match="another stone, flow, node or process has it open"):
        Recorder(path)


def test_closed_recorder_writes_no_more(path: Path) -> None:
    recorder = Recorder(path)
    recorder.close()
    recorder.close()
    with pytest.raises(FlowError, match=r"recording .* cannot be used: it is closed"):
        recorder.write(trades(1.0))


# Replay


@pytest.fixture
def played(path: Path, written: bytes) -> Callable[..., tuple[list[tuple[float, float]], Replayed]]:
    """Replays the file of three batches under a clock of its own; gives time and price of each."""

    def play(took: float = 0.0, **options: Any) -> tuple[list[tuple[float, float]], Replayed]:
        clock, got, done = Clock(), [], Replayed()

        def wait(seconds: float) -> None:
            clock.now += seconds

        def submit(batch: ev.EventBatch) -> None:
            got.append((clock.now - 50.0, batch[0].price))
            clock.now += took
            if len(got) == 7:
                raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            replay(Recording(path), submit, clock=clock, wait=wait, done=done, **options)
        return got, done

    return play


def test_replay_keeps_the_times_between_events(played: Callable[..., Any]) -> None:
    got, done = played()
    assert got == [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]
    assert done.events == 3


def test_replay_can_be_faster_or_as_fast_as_possible(played: Callable[..., Any]) -> None:
    assert played(speed=4.0)[0] == [(0.0, 0.0), (0.25, 1.0), (0.5, 2.0)]
    assert played(speed=None)[0] == [(0.0, 0.0), (0.0, 1.0), (0.0, 2.0)]


def test_replay_that_is_held_up_catches_up(played: Callable[..., Any]) -> None:
    assert [at for at, _ in played(took=0.4)[0]] == [0.0, 1.0, 2.0]
    got, _ = played(took=1.5)
    assert [at for at, _ in got] == [0.0, 1.5, 3.0]


def test_replay_in_a_loop_begins_again_until_it_is_interrupted(played: Callable[..., Any]) -> None:
    got, done = played(loop=True)
    assert [price for _, price in got] == [0, 1, 2, 0, 1, 2, 0]
    assert [at for at, _ in got] == [0, 1, 2, 2, 3, 4, 4]
    assert done.events == 6


def test_loop_over_nothing_ends(path: Path) -> None:
    Recorder(path).close()
    assert replay(Recording(path), lambda batch: None, loop=True).events == 0


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_replay_at_no_speed_is_refused(path: Path, written: bytes, speed: float) -> None:
    with pytest.raises(FlowError, match="expected a number above 0"):
        replay(Recording(path), lambda batch: None, speed=speed)


def test_what_a_full_disk_cannot_take_can_be_written_again(tmp_path: Path) -> None:
    path, before = tmp_path / "file.evrec", resource.getrlimit(resource.RLIMIT_FSIZE)
    with Recorder(path) as recorder:
        recorder.write(trades(1.0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, before[1]))
        try:
            with pytest.raises(
                ev.UnwrittenError, match=r"recording .*file.evrec cannot be used: .*room"
            ) as full:
                recorder.write(trades(2.0, 3.0))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert full.value.taken == 0
        recorder.write(trades(2.0, 3.0))
        assert recorder.events == 3
    recording = Recording(path)
    assert [event.price for recorded in recording for event in recorded.batch] == [1.0, 2.0, 3.0]
    assert recording.torn == 0
