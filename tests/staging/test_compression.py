"""Stores that compress: every bit is there again, whatever the shapes of blocks are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from evflow.errors import EvflowError, StagingError
from evflow.staging import Stage, Variable, tree
from evflow.staging.gathering import Part
from evflow.staging.model import by_name
from evflow.staging.stores import open_store
from tests.staging.test_stores import KINDS, VARIABLES, opened, part

FIELD = Variable("field", "f8", (12, 10))
BYTES = Variable("bytes", "u1", (12, 3, 2))
ROWS = Variable("rows", "i2", (None, 3))
SPLITS = [[12], [6, 6], [5, 5, 2], [1, 11], [4, 3, 5]]
"""Rows of the writers: their blocks fill chunks of the size of the first one, or do not."""

Array = np.ndarray[Any, np.dtype[Any]]


def variables_of(name: str) -> dict[str, Variable]:
    return by_name([FIELD, BYTES, ROWS] if name.endswith(".h5") else [FIELD, BYTES])


def any_bits(seed: int, variable: Variable) -> Array:
    """12 rows of elements of any bits: NaN of all kinds, negative zeros, denormalised numbers."""
    made = np.empty((12, *(size or 0 for size in variable.shape[1:])), f"<{variable.dtype}")
    made.view("u1")[...] = np.random.default_rng(seed).integers(0, 256, made.view("u1").shape)
    return made


def in_rows(step: int, split: list[int], name: str, missing: tuple[int, ...] = ()) -> Part:
    """A step of writers with so many rows each."""
    made, start = Part(step, {0.0}, missing=missing), 0
    for rank, count in enumerate(split):
        if rank not in missing:
            variables = variables_of(name).values()
            made.blocks[rank] = tuple(v.block((count, *v.shape[1:])).moved(start) for v in variables)
            made.data[rank] = [any_bits(step, v)[start : start + count].copy() for v in variables]
            made.lives[rank] = 1
        start += count
    return made


@KINDS
def test_every_bit_is_there_again(tmp_path: Path, name: str) -> None:
    for place, split in enumerate(SPLITS):
        # Each step in a store that is opened anew: chunks of Zarr stay those of the first one.
        store = open_store(tmp_path / name, variables_of(name), 5)
        store.commit(in_rows(place, split, name))
        store.close()
    found = opened(tmp_path / name)
    for place in range(len(SPLITS)):
        for one in (FIELD, BYTES):
            assert found[one.name].values[place].tobytes() == any_bits(place, one).tobytes()
        if name == "run.h5":
            with h5py.File(tmp_path / f"run.steps/{place}.h5") as file:
                assert file["rows"][0].tobytes() == any_bits(place, ROWS).tobytes()
                kept = {(file[one].compression, file[one].compression_opts) for one in variables_of(name)}
                assert kept == {("gzip", 5)}


@KINDS
@pytest.mark.parametrize("split", [[6, 6], [5, 7]])
def test_a_missing_part_is_filled(tmp_path: Path, name: str, split: list[int]) -> None:
    store = open_store(tmp_path / name, variables_of(name), 4)
    store.commit(in_rows(0, split, name, missing=(1,)))
    store.close()
    found = opened(tmp_path / name).field.values[0]
    assert found[: split[0]].tobytes() == any_bits(0, FIELD)[: split[0]].tobytes()
    assert np.isnan(found[split[0] :]).all()


@KINDS
def test_it_becomes_smaller(tmp_path: Path, name: str) -> None:
    large = Variable("large", "f8", (200, 500))
    for level in (0, 1):
        store = open_store(tmp_path / f"{level}{name}", by_name([large]), level)
        block = large.block((200, 500))
        store.commit(Part(0, {0.0}, {0: (block,)}, {0: [np.arange(1e5).reshape(200, 500)]}, lives={0: 1}))
        store.close()
    plain, small = (
        sum(file.stat().st_size for file in tmp_path.glob(f"{level}run*/**/*") if file.is_file())
        for level in (0, 1)
    )
    assert plain > 800_000 > 4 * small


@pytest.mark.parametrize(("before", "then"), [(0, 3), (3, 0), (3, 4)])
def test_a_zarr_store_keeps_its_compression(tmp_path: Path, before: int, then: int) -> None:
    open_store(tmp_path / "run.zarr", VARIABLES, before).close()
    with pytest.raises(StagingError, match="compressed at level 3"):
        open_store(tmp_path / "run.zarr", VARIABLES, then)


def test_an_hdf5_store_may_change_it_with_each_step(tmp_path: Path) -> None:
    for step, level in enumerate((0, 3, 0, 9)):
        store = open_store(tmp_path / "run.h5", VARIABLES, level)
        store.commit(part(step))
        store.close()
    assert opened(tmp_path / "run.h5").step.values.tolist() == [0, 1, 2, 3]


@KINDS
def test_chunks_are_bounded(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evflow.staging.stores.MOST_CHUNK", 320)
    store = open_store(tmp_path / name, by_name([FIELD]), 2)
    field = any_bits(3, FIELD)
    store.commit(Part(0, {0.0}, {0: (FIELD.block((12, 10)),)}, {0: [field]}, lives={0: 1}))
    store.close()
    assert opened(tmp_path / name).field.values[0].tobytes() == field.tobytes()
    if name == "run.h5":
        with h5py.File(tmp_path / "run.steps/0.h5") as file:
            assert file["field"].chunks == (1, 4, 10)
    else:
        array: Any = zarr.open_array(tmp_path / name / "field", mode="r")
        assert array.chunks == (1, 4, 10)


@pytest.mark.parametrize("level", [-1, 10, 1.5, True, "gzip"])
def test_a_level_that_is_none_is_refused(level: Any) -> None:
    with pytest.raises(EvflowError, match=r"root: compression .*expected"):
        tree([FIELD], {"left": ("left", range(1))}, "run.h5", root="disk", compression=level)
    with pytest.raises(EvflowError, match=r"stage: compression .*expected"):
        Stage([FIELD], 1, "socket", "run.h5", compression=level)
