"""Files of rows: what was appended is read again, cut anywhere, also after a kill."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.spark.rowfile import RowFile
from tests.examples import tried
from tests.spark.staged import Note, Row, rows

KINDS = [Row, Note]


def _filled(path: Path, kind: Any, counts: list[int]) -> RowFile:
    file = RowFile(path, kind.schema)
    at = 0
    for count in counts:
        file.append(rows(at, count, kind))
        at += count
    return file


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(
    counts=st.lists(st.integers(0, 40), max_size=6),
    first=st.integers(0, 300),
    frame=st.integers(1, 2000),
    reopened=st.booleans(),
)
def test_read_gives_the_rest_of_a_frame(
    tmp_path_factory: pytest.TempPathFactory,
    kind: Any,
    counts: list[int],
    first: int,
    frame: int,
    reopened: bool,
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    with patch("evflow.spark.rowfile.FRAME", frame):
        file = _filled(folder / "file", kind, counts)
    if reopened:
        file.close()
        file = RowFile(folder / "file")
    whole = sum(counts)
    assert file.rows == whole
    assert file.size == (folder / "file").stat().st_size
    if first > whole:
        with pytest.raises(ev.FlowError, match="none from"):
            file.read(first)
    else:
        found = file.read(first)
        expected = rows(first, len(found), kind)
        assert (len(found) == 0) == (first == whole)
        assert found.to_bytes() == (expected.to_bytes() if len(found) else b"")
        assert len(found) <= 1 or found.nbytes <= frame
        if len(found):
            assert found.to_events() == expected.to_events()
            more = file.read(first + len(found))
            ends = set(accumulate(counts))
            if len(more) and first + len(found) not in ends:
                assert found.nbytes + more.slice(0, 1).nbytes > frame or first not in {0, *ends}
    size = file.size
    assert RowFile.remove(folder / "file") == size
    file.close()
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_stays_when_the_file_grows_and_is_deleted(tmp_path: Path, kind: Any) -> None:
    file = _filled(tmp_path / "file", kind, [100])
    before = file.read(10)
    assert not before.data.flags.writeable
    file.append(rows(100, 1000, kind))
    file.delete()
    assert before["seq"].tolist() == list(range(10, 100))
    assert list(tmp_path.iterdir()) == []
    file.delete()


def test_a_selection_is_appended_without_what_it_leaves_out(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "file", Note.schema)
    batch = rows(0, 50, Note)
    file.append(batch.select([1, 5, 49]))  # type: ignore[arg-type]
    file.append(batch.slice(7, 9))
    assert file.read(0)["seq"].tolist() + file.read(3)["seq"].tolist() == [1, 5, 49, 7, 8]
    file.close()


def test_a_file_of_another_schema_or_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = _filled(path, Row, [3])
    with pytest.raises(ev.SchemaError, match="expected events of"):
        file.append(rows(0, 1, Note))
    file.close()
    with pytest.raises(ev.SchemaError, match="has events of"):
        RowFile(path, Note.schema)
    with pytest.raises(ev.FlowError, match="cannot be used"):
        RowFile(tmp_path / "missing")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(ev.FlowError, match="it is cut: expected 3 events"):
        RowFile(path)
    path.write_bytes(b"x" + content[1:])
    with pytest.raises(ev.FlowError, match="not a row file of this version"):
        RowFile(path)
    path.write_bytes(content[:12])
    with pytest.raises(ev.FlowError, match="cannot be used"):
        RowFile(path)
    # A process that was killed before it had written the schema leaves this.
    assert RowFile(path, Row.schema).rows == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_was_not_written_whole_is_not_there(
    tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write in turn is the last that is done, and half of it."""
    path, write = tmp_path / "file", os.pwrite
    _filled(path, kind, [5]).close()
    for last in range(2):
        file, done = RowFile(path), 0

        def broken(to: int, data: Any, at: int, last: int = last) -> int:
            nonlocal done
            done += 1
            if done > last:
                write(to, bytes(data)[: len(bytes(data)) // 2], at) if len(data) > 16 else None
                raise OSError(28, "No space left on device")
            return write(to, data, at)

        monkeypatch.setattr(os, "pwrite", broken)
        with pytest.raises(ev.FlowError, match="No space left"):
            file.append(rows(5, 20, kind))
        monkeypatch.undo()
        assert file.rows == 5
        file.close()
        assert RowFile(path).read(0)["seq"].tolist() == list(range(5))
    file = RowFile(path)
    file.append(rows(5, 3, kind))
    assert file.read(0).to_bytes() + file.read(5).to_bytes() == rows(0, 8, kind).to_bytes()
    assert RowFile(path).rows == 8
    file.close()


_WRITER = """
import sys
from pathlib import Path
from evflow.spark.rowfile import RowFile
from tests.spark.staged import Note, rows
file = RowFile(Path(sys.argv[1]), Note.schema)
batches = [rows(at, 1000, Note) for at in range(0, 20_000, 1000)]
for number in range(100_000):
    file.append(batches[number % 20])
    if number == 20:
        print("go", flush=True)
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_whole_batches(tmp_path: Path) -> None:
    one_round = rows(0, 20_000, Note).to_bytes()
    for turn in range(tried(2)):
        path = tmp_path / str(turn)
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            writer.kill()
        file = RowFile(path)
        assert file.rows >= 20_000 and file.rows % 1000 == 0
        content = b"".join(file.read(at).to_bytes() for at in range(0, 20_000, 1000))
        assert content == one_round
        last = file.read(file.rows - 1000)
        start = (file.rows - 1000) % 20_000
        assert last.to_bytes() == rows(start, 1000, Note).to_bytes()
        file.delete()
