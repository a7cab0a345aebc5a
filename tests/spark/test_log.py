"""The log of a Spark sink: rows keep their offsets, and a kill at any moment loses and doubles none."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.disk import log as log_module
from evflow.errors import FlowError, SchemaError
from evflow.spark.sinklog.log import Frame, RowLog
from tests.examples import tried


class Row(ev.Event):
    n: int


class Note(ev.Event):
    n: int
    text: str


class Killed(BaseException):
    """Stands for the end of the process."""


def rows(*numbers: int) -> ev.EventBatch:
    return ev.EventBatch.from_columns(Row, {"n": list(numbers)})


def notes(*texts: str) -> ev.EventBatch:
    return ev.EventBatch.from_columns(Note, {"n": list(range(len(texts))), "text": list(texts)})


def numbers_in(log: RowLog) -> list[int]:
    return [int(n) for batch in log.held() for n in batch["n"]]


@contextmanager
def killed_after(steps: int) -> Iterator[None]:
    """Ends what runs in it at the beginning of a write to a file, after so many of them."""
    left = steps

    def limited(write: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return write(*args)

        return step

    with (
        patch.object(log_module, "_write", limited(log_module._write)),
        patch.object(Path, "rename", limited(Path.rename)),
        patch.object(log_module.Log, "_forget", limited(log_module.Log._forget)),
    ):
        yield


def end_files(log: RowLog | None) -> None:
    """As the kernel does when a process is killed: its files are closed, and its lock is gone."""
    if log is not None:
        log._log.close()


def test_offsets_stay_while_rows_come_and_go_and_after_reopening(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "log", segment=40)
    assert (log.first, log.next, len(log), log.schema) == (0, 0, 0, None)
    for start in range(0, 30, 3):
        log.append(rows(start, start + 1, start + 2))
    assert log.let_go(7) == 7 and log.let_go(5) == 0
    spool = log.spool
    for _ in range(2):
        assert (log.first, log.next, log.spool) == (7, 30, spool)
        assert numbers_in(log) == list(range(7, 30))
        got: list[int] = []
        while len(got) < 15:
            got += log.read(9 + len(got), 24, 1 << 20)["n"].tolist()
        assert got == list(range(9, 24))
        assert log.read(12, 30, 1)["n"].tolist() == [12]
        log.close()
        log = RowLog(tmp_path / "log", segment=40)
    assert log.let_go(30) == 23 and (log.first, log.next) == (30, 30)
    assert [file.name for file in tmp_path.glob("log*")] == ["log", "log-lock"] and log.nbytes == 0
    log.append(rows(30))
    assert log.read(30, 31, 100)["n"].tolist() == [30]
    log.close()


def test_read_of_rows_that_are_not_there_is_an_error_that_names_them() -> None:
    log = RowLog(None, segment=1000)
    log.append(rows(*range(10)))
    log.let_go(4)
    for start, stop in ((3, 5), (5, 11), (5, 5), (9, 8), (10, 11)):
        with pytest.raises(FlowError, match=f"rows {start} to {stop} are not there: .* from 4 to 10"):
            log.read(start, stop, 100)
    log.close()


def test_rows_of_variable_width_and_large_batches_are_held_in_several_files(tmp_path: Path) -> None:
    texts = ["x" * (n % 50) for n in range(5000)]
    log = RowLog(tmp_path / "log", segment=10_000)
    log.append(notes(*texts))
    assert len(list(tmp_path.glob("log.*"))) > 5
    log.let_go(1234)
    log.close()
    log = RowLog(tmp_path / "log", segment=10_000)
    assert [event.text for batch in log.held() for event in batch] == texts[1234:]
    log.close()


def test_temporary_files_go_with_the_log() -> None:
    log = RowLog(None, segment=100)
    log.append(rows(1, 2))
    held = log.held()
    folder = log._log.path.parent
    assert folder.is_dir()
    log.close()
    assert not folder.exists()
    assert held[0]["n"].tolist() == [1, 2]


def test_log_has_rows_of_one_schema(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "log", segment=100)
    log.append(rows(1))
    with pytest.raises(SchemaError, match="rows of one schema"):
        log.append(notes("a"))
    log.close()
    with pytest.raises(FlowError, match=r"has rows of .*Row.*, expected .*Note"):
        RowLog(tmp_path / "log", segment=100, schema=Note.schema)


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "log", segment=20)
    for n in range(10):
        log.append(rows(n))
    log.close()
    files = sorted(tmp_path.glob("log.*"))
    files[1].unlink()
    with pytest.raises(FlowError, match=r"file 1 is missing; bring back a copy"):
        RowLog(tmp_path / "log", segment=20)
    files[0].unlink()
    with pytest.raises(FlowError, match=r"0 and those behind it are missing, there are those from 8 to 10"):
        RowLog(tmp_path / "log", segment=20)
    (tmp_path / "log").write_bytes(b"no log" * 100)
    with pytest.raises(FlowError, match="cannot be used"):
        RowLog(tmp_path / "log", segment=20)


def test_log_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match=r"there is no folder .*none"):
        RowLog(tmp_path / "none" / "log", segment=20)


def test_log_whose_ledger_was_thrown_away_begins_anew(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "log", segment=20)
    log.append(notes("a", "b"))
    before = log.spool
    log.close()
    (tmp_path / "log").unlink()
    log = RowLog(tmp_path / "log", segment=20)
    assert not list(tmp_path.glob("log.*")) and log.spool != before and log.next == 0
    log.close()


def test_frame_that_comes_again_is_known_by_its_rows(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "log", segment=1000)
    frame: Frame = (b"route", (7,))
    assert log.append(rows(0, 1, 2), frame) == 0
    assert log.append(rows(3, 4), frame) == 0
    log.close()
    log = RowLog(tmp_path / "log", segment=1000)
    # The same frame, cut otherwise, and with more behind than had come.
    assert log.append(rows(0, 1), frame) == 2
    assert log.append(rows(2, 3, 4, 5), frame) == 3
    assert log.append(rows(6), frame) == 0
    assert log.append(rows(99, 98), (b"route", (6, 5))) == 2
    assert log.append(rows(7), (b"route", (7, 0))) == 0
    assert log.append(rows(8), (b"other", (1,))) == 0
    assert numbers_in(log) == list(range(9))
    log.close()


def test_frame_that_was_announced_only_is_not_taken_for_others_that_stand_in_its_place(
    tmp_path: Path,
) -> None:
    log = RowLog(tmp_path / "log", segment=1000)
    log.append(rows(0, 1), (b"a", (1,)))
    with killed_after(0), pytest.raises(Killed):
        log.append(rows(2, 3), (b"a", (2,)))
    end_files(log)
    log = RowLog(tmp_path / "log", segment=1000)
    assert numbers_in(log) == [0, 1]
    assert log.append(rows(10, 11, 12), (b"b", (1,))) == 0
    assert log.append(rows(2, 3), (b"a", (2,))) == 0
    assert numbers_in(log) == [0, 1, 10, 11, 12, 2, 3]
    log.close()


@settings(max_examples=tried(30), deadline=None)
@given(
    frames=st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 12)), min_size=1, max_size=12),
    pieces=st.integers(1, 5),
    kills=st.lists(st.integers(0, 12), max_size=6),
    keep=st.integers(0, 30),
)
def test_kill_at_any_write_neither_loses_nor_doubles(
    frames: list[tuple[str, int]], pieces: int, kills: list[int], keep: int
) -> None:
    """What was not acknowledged is sent again, as links do; each row is there once."""
    numbers = iter(range(sum(count for _, count in frames)))
    sent: list[tuple[Frame, list[int]]] = []
    for route, count in frames:
        path = (sum(frame[0] == route.encode() for frame, _ in sent),)
        sent.append(((route.encode(), path), [next(numbers) for _ in range(count)]))
    seen: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        acknowledged, left = 0, kills.copy()
        log = None
        while acknowledged < len(sent):
            with suppress(Killed), killed_after(left.pop() if left else 10_000):
                log = RowLog(Path(folder) / "log", segment=50)
                for frame, of_frame in sent[acknowledged:]:
                    for start in range(0, len(of_frame), pieces):
                        log.append(rows(*of_frame[start : start + pieces]), frame)
                    acknowledged += 1
                    # An offset never means another row.
                    assert all(seen.setdefault(at, n) == n for at, n in enumerate(numbers_in(log), log.first))
                    log.let_go(log.next - keep)
                log.close()
            end_files(log)
        log = RowLog(Path(folder) / "log", segment=50)
        assert numbers_in(log) == [n for at, n in sorted(seen.items()) if at >= log.first]
        assert len(log) >= min(keep, len(seen))
        log.close()
    assert [n for _, n in sorted(seen.items())] == [n for _, of_frame in sent for n in of_frame]
