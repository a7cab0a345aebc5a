"""Committed steps in HDF5 and Zarr: what is read is what was written, whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import h5py
import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.disk import OwnFile
from evflow.errors import StagingError
from evflow.staging import Variable
from evflow.staging.gathering import Part
from evflow.staging.model import by_name
from evflow.staging.stores import open_store
from tests.examples import tried

HEAT = Variable("heat", "f8", (4, 6), ("y", "x"), {"units": "K"})
COUNT = Variable("count", "i4", (4,), ("y",))
VARIABLES = by_name((HEAT, COUNT))
KINDS = pytest.mark.parametrize("name", ["run.h5", "run.zarr"])


def heat(step: int) -> np.ndarray[Any, Any]:
    return np.arange(24.0).reshape(4, 6) + 100 * step


def part(step: int, ranks: tuple[int, ...] = (0, 1), life: int = 7) -> Part:
    """A step of two writers, each with two rows."""
    made = Part(step, {step / 10}, missing=tuple({0, 1} - set(ranks)))
    for rank in ranks:
        rows = slice(2 * rank, 2 * rank + 2)
        made.blocks[rank] = (HEAT.block((2, 6), (2 * rank, 0)), COUNT.block((2,), (2 * rank,)))
        made.data[rank] = [heat(step)[rows].copy(), np.array([rank, step], "<i4")]
        made.lives[rank] = life
    return made


def opened(path: Path) -> xarray.Dataset:
    engine = "h5netcdf" if path.suffix == ".h5" else "zarr"
    with xarray.open_dataset(path, engine=engine) as found:
        return found.load()


@KINDS
def test_xarray_reads_what_was_committed(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / name, VARIABLES)
    for step in (0, 5, 7):
        store.commit(part(step))
    found = opened(tmp_path / name)
    assert found.heat.dims == ("step", "y", "x")
    assert found.step.values.tolist() == [0, 5, 7]
    assert found.time.values.tolist() == [0.0, 0.5, 0.7]
    assert np.array_equal(found.heat.values, np.array([heat(step) for step in (0, 5, 7)]))
    assert found["count"].values.tolist() == [[0, step, 1, step] for step in (0, 5, 7)]
    assert found.heat.attrs["units"] == "K"
    store.close()


@KINDS
def test_a_missing_part_is_filled_and_noted(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / name, VARIABLES)
    store.commit(part(3, (1,)))
    store.close()
    found = opened(tmp_path / name)
    assert np.isnan(found.heat.values[0, :2]).all()
    assert np.array_equal(found.heat.values[0, 2:], heat(3)[2:])
    assert found["count"].values[0, :2].tolist() == [-(2**31)] * 2
    again = open_store(tmp_path / name, VARIABLES)
    assert again.done == {3: {0: 0, 1: 7}}
    again.close()


def test_a_step_is_there_once_whose_metadata_could_not_be_copied(tmp_path: Path) -> None:
    store, replace = open_store(tmp_path / "run.zarr", VARIABLES), os.replace

    def full(made: Any, path: Any) -> None:
        if Path(path) == tmp_path / "run.zarr/heat/zarr.json":
            raise OSError(28, "No space left on device")
        replace(made, path)

    with mock.patch("os.replace", full), pytest.raises(OSError, match="No space"):
        store.commit(part(1))
    store.commit(part(1))
    store.close()
    assert opened(tmp_path / "run.zarr").step.values.tolist() == [1]


@KINDS
def test_a_store_knows_whose_bytes_it_has_over_restarts(tmp_path: Path, name: str) -> None:
    given = [part(0), part(1), part(2, (1,)), part(3, (1,)), part(5, life=1 << 61), part(6, life=1 << 61)]
    for before in range(0, len(given), 2):
        store = open_store(tmp_path / name, VARIABLES)
        assert store.done == {one.step: one.writers for one in given[:before]}
        for one in given[before : before + 2]:
            store.commit(one)
        assert store.done == {one.step: one.writers for one in given[: before + 2]}
        store.close()


@KINDS
def test_steps_of_an_earlier_version_have_no_known_writers(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / name, VARIABLES)
    for step in (0, 1):
        store.commit(part(step, (0,) if step else (0, 1)))
    store.close()
    if name == "run.h5":
        for place in (0, 1):
            with h5py.File(tmp_path / f"run.steps/{place}.h5", "a") as file:
                del file.attrs["writers"]
    else:
        group = json.loads((tmp_path / name / "zarr.json").read_text())
        del group["attributes"]["writers"]
        (tmp_path / name / "zarr.json").write_text(json.dumps(group))
    for more in (2, 3):
        store = open_store(tmp_path / name, VARIABLES)
        store.commit(part(more))
        store.close()
    assert open_store(tmp_path / name, VARIABLES).done == {0: {}, 1: {1: 0}} | {
        n: {0: 7, 1: 7} for n in (2, 3)
    }


@KINDS
def test_steps_are_whole_wherever_a_commit_is_cut_off(tmp_path: Path, name: str) -> None:
    class Cut(BaseException):
        pass

    store = open_store(tmp_path / name, VARIABLES)
    store.commit(part(1))
    replace, seen = os.replace, []
    for cut in range(0, 20, 4):
        left = cut

        def cut_off(*arguments: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Cut
            replace(*arguments)

        # What a kill leaves is copied, and read as a reader and as the next committer find it.
        with mock.patch("os.replace", cut_off), suppress(Cut):
            store.commit(part(2))
        copy = tmp_path / f"cut{cut}"
        copy.mkdir()
        for path in tmp_path.glob("run*"):
            if not path.name.endswith("-lock"):
                # Other threads of Zarr may still rename theirs.
                tree = partial(shutil.copytree, ignore=shutil.ignore_patterns("*.partial"))
                (tree if path.is_dir() else shutil.copy)(path, copy / path.name)
        seen.append(opened(copy / name).step.values.tolist())
        again = open_store(copy / name, VARIABLES)
        assert list(again.done) == seen[-1]
        if seen[-1] == [1]:
            again.commit(part(2))
        again.close()
        found = opened(copy / name)
        assert found.step.values.tolist() == [1, 2]
        assert np.array_equal(found.heat.values, np.array([heat(1), heat(2)]))
        if seen[-1] == [1, 2]:
            break
    store.close()
    assert seen == [[1]] * (len(seen) - 1) + [[1, 2]]
    assert len(seen) > 1


@KINDS
def test_a_store_of_other_variables_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    open_store(tmp_path / name, VARIABLES).close()
    with pytest.raises(StagingError, match="expected the variables"):
        open_store(tmp_path / name, by_name((HEAT,)))


@KINDS
def test_a_store_has_one_committer(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / name, VARIABLES)
    impatient = partial(OwnFile, patience=0)
    with mock.patch("evflow.staging.stores.OwnFile", impatient), pytest.raises(BlockingIOError):
        open_store(tmp_path / name, VARIABLES)
    store.close()


def test_rows_of_an_open_variable_are_in_the_file_of_each_step(tmp_path: Path) -> None:
    rows = Variable("rows", "i2", (None, 2))
    made = Part(4, {0.0}, {0: (rows.block((1, 2)),), 1: (rows.block((2, 2)).moved(1),)})
    made.data = {0: [np.array([[1, 2]], "<i2")], 1: [np.array([[3, 4], [5, 6]], "<i2")]}
    store = open_store(tmp_path / "run.h5", by_name((rows,)))
    store.commit(made)
    store.close()
    with h5py.File(tmp_path / "run.steps" / "0.h5") as file:
        assert file["rows"][:].tolist() == [[[1, 2], [3, 4], [5, 6]]]
    with pytest.raises(StagingError, match="Zarr needs a shape without None"):
        open_store(tmp_path / "run.zarr", by_name((rows,)))


@given(
    refused=st.sampled_from(["nothing", "open", "writev"]),
    rows=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    width=st.sampled_from([1, 3, 512, 1000]),
    shift=st.sampled_from([0, 8]),
    problem=st.sampled_from([errno.EINVAL, errno.EIO]),
)
@settings(max_examples=tried(8), deadline=None)
def test_steps_of_one_form_have_their_own_elements(
    refused: str, rows: list[int], width: int, shift: int, problem: int
) -> None:
    """Blocks that stand at any place in memory and in the file; a file system without direct writes."""
    real = {"open": os.open, "writev": os.writev, "nothing": None}

    def refuses(*given: Any) -> Any:
        flags = fcntl.fcntl(given[0], fcntl.F_GETFL) if refused == "writev" else given[1]
        if flags & os.O_DIRECT:
            raise OSError(problem if refused == "writev" else errno.EINVAL, "refused")
        return real[refused](*given)  # type: ignore[misc]

    known = by_name(
        (
            Variable("free", "f8", (None, width), ("row", "x")),
            Variable("fixed", "f8", (1 + sum(rows), width), ("y", "x")),
            Variable("columns", "f4", (2, 2 * len(rows))),
        )
    )
    with TemporaryDirectory(dir=Path.cwd()) as folder, ExitStack() as stack:
        stack.enter_context(mock.patch("os.fsync"))
        if refused != "nothing":
            stack.enter_context(mock.patch(f"os.{refused}", refuses))
        store = open_store(Path(folder) / "run.h5", known)
        stack.callback(store.close)
        for step in range(4):
            whole = np.random.default_rng(step).random((1 + sum(rows), width))
            made, begun = Part(step, {step / 2}), 0
            for rank, own in enumerate(rows):
                size = own + (rank == 0)
                data = np.frombuffer(bytearray(shift + size * width * 8), np.uint8)[shift:]
                data.view("f8")[:] = whole[begun : begun + size].ravel()
                blocks = [known["free"].block((size, width)).moved(begun)]
                if size:
                    blocks.append(known["fixed"].block((size, width), (begun, 0)))
                # As columns in the third step: blocks that are not in one piece of the file.
                if step == 2:
                    blocks.append(known["columns"].block((2, 2), (0, 2 * rank)))
                elif rank == 0:
                    blocks.append(known["columns"].block((2, 2 * len(rows))))
                made.blocks[rank] = tuple(blocks)
                columns = np.full(blocks[-1].nbytes // 4, step + rank, "f4").view(np.uint8)
                made.data[rank] = [columns if block.dtype == "f4" else data for block in blocks]
                made.lives[rank] = 7 + step // 3
                begun += size
            store.commit(made)
            with h5py.File(store._folder / f"{step}.h5") as file:
                assert [file["step"][0], file["time"][0]] == [step, step / 2]
                assert np.array_equal(file["free"][0], whole)
                assert np.array_equal(file["fixed"][0], whole)
                expected = np.repeat(np.arange(len(rows)), 2) if step == 2 else 0
                assert np.array_equal(file["columns"][0], np.full((2, 2 * len(rows)), step + expected))


def test_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match=r"ends in \.h5 or \.zarr"):
        open_store(tmp_path / "run.nc", VARIABLES)


LARGE = by_name((Variable("large", "f8", (500, 200)),))


def large(step: int, columns: int) -> Part:
    """A step of which each writer has some columns; no filter makes it smaller."""
    made, width = Part(step, {0.0}), 200 // columns
    for rank in range(columns):
        made.blocks[rank] = (LARGE["large"].block((500, width), (0, rank * width)),)
        made.data[rank] = [np.random.default_rng([step, rank]).random((500, width))]
        made.lives[rank] = 7
    return made


def check_large(store: Path, columns: int, steps: list[int]) -> None:
    found = opened(store).large.values
    expected = [np.hstack([data for (data,) in large(step, columns).data.values()]) for step in steps]
    assert found.tobytes() == np.array(expected).tobytes()


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As ``ulimit -f``."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@KINDS
@pytest.mark.parametrize(("columns", "compression"), [(1, 0), (4, 0), (4, 1)])
def test_a_step_that_the_disk_has_no_room_for_succeeds_later(
    tmp_path: Path, name: str, columns: int, compression: int
) -> None:
    store, made = open_store(tmp_path / name, LARGE, compression), partial(large, columns=columns)
    store.commit(made(0))
    with files_of_at_most(100_000):
        for _ in range(2):
            with pytest.raises(OSError, match="too large"):
                store.commit(made(1))
            check_large(tmp_path / name, columns, [0])
    store.commit(made(1))
    store.close()
    check_large(tmp_path / name, columns, [0, 1])


@pytest.mark.parametrize(("columns", "compression"), [(1, 0), (4, 0), (1, 1), (4, 1)])
def test_hdf5_never_meets_a_disk_that_becomes_full(tmp_path: Path, columns: int, compression: int) -> None:
    """It ends the process then, if not at once, so all that it makes goes through memory."""
    real = os.writev

    def full(*given: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with mock.patch("os.writev", full), pytest.raises(OSError, match="No space left"):
        open_store(tmp_path / "run.h5", LARGE, compression)
    store = open_store(tmp_path / "run.h5", LARGE, compression)
    for step in range(2):
        with mock.patch("os.writev", full):
            for _ in range(2):
                with pytest.raises(OSError, match="No space left"):
                    store.commit(large(step, columns))
        with mock.patch("os.writev", lambda file, data: real(file, [bytes(data[0][:5000])])):
            store.commit(large(step, columns))
    store.close()
    check_large(tmp_path / "run.h5", columns, [0, 1])


@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("limit", [0, 100, 3_000, 9_000, 600_000])
def test_a_limit_of_files_refuses_only_what_is_larger(
    tmp_path: Path, capfd: Any, compression: int, limit: int
) -> None:
    store = open_store(tmp_path / "run.h5", LARGE, compression)
    with files_of_at_most(limit):
        for _ in range(2):
            with pytest.raises(OSError, match="File too large"):
                store.commit(large(0, 4))
    with files_of_at_most(900_000):
        store.commit(large(0, 4))
    store.close()
    gc.collect()
    check_large(tmp_path / "run.h5", 4, [0])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("compression", [0, 1])
def test_bytes_that_memory_takes_bit_by_bit_are_all_there(tmp_path: Path, compression: int) -> None:
    real, short = os.write, list[int]()

    def write(file: int, data: Any) -> int:
        short.append(len(data))
        return real(file, data[: 1 + len(data) // 2])

    with mock.patch("os.write", write):
        store = open_store(tmp_path / "run.h5", LARGE, compression)
        store.commit(large(0, 4))
        store.close()
    assert max(short) > 1000
    check_large(tmp_path / "run.h5", 4, [0])


def test_a_try_that_failed_does_not_disturb_the_next_and_leaves_nothing(tmp_path: Path) -> None:
    """Threads of Zarr may still write for a try that has failed, so its folder may stay for a while."""

    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = open_store(tmp_path / "run.zarr", LARGE)
    store.commit(large(0, 1))
    with mock.patch("shutil.rmtree"):
        with mock.patch("os.replace", full), pytest.raises(OSError, match="No space left"):
            store.commit(large(1, 1))
        store.commit(large(1, 1))
    store.commit(large(2, 1))
    store.close()
    check_large(tmp_path / "run.zarr", 1, [0, 1, 2])
    names = {path.name for path in (tmp_path / "run.zarr").iterdir()}
    assert names == {"zarr.json", "step", "time", "large"}


@pytest.mark.parametrize(("most", "missing"), [(1, ()), (3 * 9 * 4 * 2 + 1, (2,)), (1 << 20, (0, 1, 3))])
def test_blocks_of_any_place_become_one_array(tmp_path: Path, most: int, missing: tuple[int, ...]) -> None:
    cube = Variable("cube", "i2", (7, 9, 4))
    whole = np.arange(7 * 9 * 4, dtype="i2").reshape(7, 9, 4)
    sides = [(slice(0, 4), slice(0, 9)), (slice(4, 7), slice(0, 2)), (slice(4, 6), slice(2, 9))]
    sides.append((slice(6, 7), slice(2, 9)))
    made, expected = Part(0, {0.0}, missing=missing), np.full_like(whole, -32768)
    for rank, (y, x) in enumerate(sides):
        if rank not in missing:
            block = cube.block(whole[y, x].shape, (y.start, x.start, 0))
            made.blocks[rank], made.data[rank] = (block,), [whole[y, x].copy()]
            made.lives[rank], expected[y, x] = 7, whole[y, x]
    store = open_store(tmp_path / "run.h5", by_name((cube,)))
    with mock.patch("evflow.staging.stores.MOST_SLAB", most):
        store.commit(made)
    store.close()
    with h5py.File(tmp_path / "run.h5") as file:
        assert file["cube"][0].tobytes() == expected.tobytes()


@KINDS
@pytest.mark.parametrize("stem", ["%", "é漢 *[a%b 50%"])
def test_the_name_of_a_store_may_have_any_characters(tmp_path: Path, name: str, stem: str) -> None:
    path = tmp_path / name.replace("run", stem)
    store = open_store(path, VARIABLES)
    store.commit(part(1))
    store.commit(part(2))
    store.close()
    assert np.array_equal(opened(path).heat.values, np.array([heat(1), heat(2)]))


@pytest.mark.parametrize(
    ("name", "there", "what"),
    [
        ("run.h5", "run.h5/", "an HDF5 file that can be read, found a folder"),
        ("run.h5", "run.h5", "an HDF5 file that can be read, found another file"),
        ("run.h5", "run.steps", "a folder, found another file"),
        ("run.zarr", "run.zarr", "a folder, found another file"),
    ],
)  # fmt: skip
def test_something_else_at_the_place_of_a_store_is_refused_in_words(
    tmp_path: Path, name: str, there: str, what: str
) -> None:
    if there.endswith("/"):
        (tmp_path / there).mkdir()
    else:
        (tmp_path / there).write_text("of mine")
    words = f"store {tmp_path / name}: expected {what} at {tmp_path / there}; move it away, or choose another"
    with pytest.raises(StagingError, match=words):
        open_store(tmp_path / name, VARIABLES)
    assert [found.name for found in tmp_path.iterdir()] == [there.rstrip("/")]


@KINDS
def test_what_is_not_a_store_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / name, VARIABLES)
    store.commit(part(1))
    store.close()
    path = tmp_path / name
    # Steps without what joins them: somebody has removed that, and may want other variables now.
    whole = path if path.is_file() else path / "zarr.json"
    for junk in (None, "", "{", "[]", '{"attributes": []}'):
        whole.unlink(missing_ok=True)
        if junk is not None:
            whole.write_text(junk)
        before = {found: found.stat().st_mtime_ns for found in tmp_path.rglob("*") if found.is_file()}
        with pytest.raises((StagingError, OSError)):
            open_store(path, by_name((COUNT,)))
        assert {found: found.stat().st_mtime_ns for found in before} == before
