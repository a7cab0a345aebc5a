"""The index of a store saves opening its steps, and never says anything else than they do."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import h5py
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.errors import StagingError
from evflow.staging.model import by_name
from evflow.staging.stores import open_store
from evflow.staging.stores.index import Facts, Index
from tests import preloaded
from tests.examples import tried
from tests.node.processes import ROOT
from tests.staging.application import HEAT
from tests.staging.test_stores import KINDS, VARIABLES, opened, part


def written(path: Path, steps: int = 6) -> dict[int, dict[int, int]]:
    """A new store of so many steps, and what it has of them."""
    store = open_store(path, VARIABLES)
    for step in range(steps):
        store.commit(part(10 * step, (step % 2, 1), life=7 + step // 3))
    store.close()
    return store.done


def found(path: Path, variables: Any = VARIABLES) -> tuple[dict[int, dict[int, int]], int]:
    """What a store has when it is opened, and how many steps are opened for that."""
    steps = 0

    def reads(file: Any, *given: Any, **named: Any) -> Any:
        nonlocal steps
        steps += Path(file).parent.suffix == ".steps"
        return real(file, *given, **named)

    def reads_array(array: Any, *given: Any, **named: Any) -> Any:
        nonlocal steps
        read = real_array(array, *given, **named)
        steps += len(read)
        return read

    real, real_array = h5py.File, zarr.Array.__getitem__
    with mock.patch("h5py.File", reads), mock.patch("zarr.Array.__getitem__", reads_array):
        store = open_store(path, variables)
        store.close()
    return store.done, steps


def files_of(path: Path) -> Path:
    return path.with_suffix(".steps") if path.suffix == ".h5" else path / "step" / "c"


def file_of(path: Path, place: int) -> Path:
    return files_of(path) / f"{place}{'.h5' if path.suffix == '.h5' else ''}"


@KINDS
def test_no_step_is_opened_that_the_index_knows(tmp_path: Path, name: str) -> None:
    done = written(tmp_path / name)
    assert found(tmp_path / name) == (done, 0)


@KINDS
def test_without_an_index_all_steps_are_opened_once(tmp_path: Path, name: str) -> None:
    done = written(tmp_path / name)
    (files_of(tmp_path / name) / ".index").unlink()
    assert found(tmp_path / name) == (done, 6)
    assert found(tmp_path / name) == (done, 0)


@KINDS
def test_a_step_that_was_replaced_is_opened(tmp_path: Path, name: str) -> None:
    done = written(tmp_path / name)
    other = open_store(tmp_path / "other" / name, VARIABLES)
    for step in (0, 11):
        other.commit(part(step, life=7))
    other.close()
    shutil.copy2(file_of(tmp_path / "other" / name, 1), file_of(tmp_path / name, 1))
    assert file_of(tmp_path / name, 1).stat().st_size == file_of(tmp_path / name, 2).stat().st_size
    again, steps = found(tmp_path / name)
    assert (list(again), steps) == ([0, 11, *list(done)[2:]], 1)
    assert list(again) == opened(tmp_path / name).step.values.tolist()


@KINDS
def test_a_copy_with_other_times_is_read_anew(tmp_path: Path, name: str) -> None:
    done = written(tmp_path / name)
    for file in files_of(tmp_path / name).iterdir():
        os.utime(file, (1, 1))
    assert found(tmp_path / name) == (done, 6)
    assert found(tmp_path / name) == (done, 0)


@KINDS
def test_a_store_that_lost_a_step_is_refused_by_the_name_of_its_file(tmp_path: Path, name: str) -> None:
    written(tmp_path / name)
    lost = file_of(tmp_path / name, 3)
    lost.unlink()
    with pytest.raises(StagingError, match=f"{lost}: No such file or directory; put it back"):
        open_store(tmp_path / name, VARIABLES)


@KINDS
@pytest.mark.parametrize("place", range(3))
def test_a_step_that_cannot_be_looked_at_is_never_written_over(tmp_path: Path, name: str, place: int) -> None:
    done = written(tmp_path / name, 3)
    # It is on another disk, which is not mounted.
    step, away = file_of(tmp_path / name, place), tmp_path / "away"
    step.rename(away)
    step.symlink_to("/not/mounted")
    with pytest.raises(StagingError, match=f"{step}: No such file or directory; put it back"):
        open_store(tmp_path / name, VARIABLES)
    assert os.readlink(step) == "/not/mounted"
    step.unlink()
    step.symlink_to(away)
    assert found(tmp_path / name) == (done, 0)


def test_the_newest_steps_may_be_deleted(tmp_path: Path) -> None:
    done = written(tmp_path / "run.h5")
    for place in (4, 5):
        file_of(tmp_path / "run.h5", place).unlink()
    kept = dict(list(done.items())[:4])
    assert found(tmp_path / "run.h5") == (kept, 0)
    store = open_store(tmp_path / "run.h5", VARIABLES)
    store.commit(part(77))
    store.close()
    assert opened(tmp_path / "run.h5").step.values.tolist() == [*kept, 77]
    assert found(tmp_path / "run.h5") == (kept | {77: {0: 7, 1: 7}}, 0)


@KINDS
def test_other_files_beside_steps_are_left_alone(tmp_path: Path, name: str) -> None:
    done = written(tmp_path / name)
    step = file_of(tmp_path / name, 1)
    others = ["notes.txt", f"{step.name}.bak", f"077{step.suffix}", "77" + ".h5" * (not step.suffix)]
    others += [f"-{step.name}", "²"]
    for other in others:
        (step.parent / other).write_text("of mine")
    assert found(tmp_path / name) == (done, 0)
    assert all((step.parent / other).read_text() == "of mine" for other in others)


def test_steps_out_of_order_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "run.h5")
    shutil.copy(file_of(tmp_path / "run.h5", 2), file_of(tmp_path / "run.h5", 6))
    with pytest.raises(StagingError, match=r"6\.h5 has step 20, and the one before 50; "):
        open_store(tmp_path / "run.h5", VARIABLES)


def test_a_step_that_is_damaged_is_named(tmp_path: Path) -> None:
    written(tmp_path / "run.h5")
    for junk in (b"", b"junk", file_of(tmp_path / "run.h5", 4).read_bytes()[:3000]):
        file_of(tmp_path / "run.h5", 4).write_bytes(junk)
        with pytest.raises(StagingError, match=r"4\.h5"):
            open_store(tmp_path / "run.h5", VARIABLES)
    with h5py.File(file_of(tmp_path / "run.h5", 4), "w") as file:
        file["step"] = 3
    with pytest.raises(StagingError, match=r"4\.h5"):
        open_store(tmp_path / "run.h5", VARIABLES)


@given(data=st.data())
@settings(max_examples=tried(15), deadline=None)
def test_a_damaged_index_costs_time_only(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder, mock.patch("os.fsync"):
        path = Path(folder) / "run.h5"
        done, file = written(path, 3), files_of(path) / ".index"
        whole = file.read_bytes()
        at = data.draw(st.integers(0, len(whole) - 1))
        damaged = data.draw(
            st.sampled_from(
                [whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], bytes(len(whole))]
            )
        )
        file.write_bytes(damaged)
        assert found(path) == (done, 3)
        assert found(path) == (done, 0)


def test_a_step_that_is_there_is_committed_whatever_its_index_meets(tmp_path: Path) -> None:
    """Nothing of a step may be visible after an OSError, and the next one has the next place."""
    path, real = tmp_path / "run.h5", os.stat

    def fails(file: Any, **named: Any) -> os.stat_result:
        if Path(file).parent == files_of(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(file, **named)

    store = open_store(path, VARIABLES)
    store.commit(part(0))
    with mock.patch("os.stat", fails):
        store.commit(part(1))
    with mock.patch("evflow.staging.stores.index.BEHIND", 1), mock.patch("msgspec.msgpack.encode") as encode:
        encode.side_effect = MemoryError
        store.commit(part(2))
    store.commit(part(3))
    store.close()
    assert opened(path).step.values.tolist() == list(store.done) == [0, 1, 2, 3]
    assert found(path) == (store.done, 1)


def test_what_is_written_of_the_index_is_in_proportion_to_the_steps(tmp_path: Path) -> None:
    steps, status, index, entries = 30_000, os.stat(tmp_path), Index(tmp_path / "none", ""), list[int]()
    with (
        mock.patch("os.stat", lambda file: status),
        mock.patch("msgspec.msgpack.encode", lambda given: entries.append(len(given)) or b""),
    ):
        for step in range(steps):
            index.add(step, Facts(step, {}))
    assert sum(entries) <= 10 * steps


def test_an_index_that_cannot_be_written_stops_no_step(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    path.with_suffix(".steps").mkdir()
    (files_of(path) / ".index").mkdir()
    done = written(path)
    assert found(path) == (done, 6)


@KINDS
def test_a_kill_at_any_moment_costs_the_steps_behind_the_index_only(tmp_path: Path, name: str) -> None:
    for seed in range(2):
        program = "tests.staging.application:commits"
        process = preloaded.start(
            program, [str(tmp_path / name)], cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8"
        )
        for _ in range(random.Random(seed).randint(4, 12)):
            told = int(process.stdout.readline())
        process.kill()
        process.wait()
        process.stdout.close()
        done, steps = found(tmp_path / name, by_name([HEAT]))
        assert list(done) == opened(tmp_path / name).step.values.tolist() == list(range(len(done)))
        assert done == {step: {0: 7 + step // 5, 1: 0 if step % 2 else 9} for step in done}
        assert len(done) > told
        assert steps <= 3
