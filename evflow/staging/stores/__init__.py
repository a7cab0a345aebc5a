"""Where committed steps are: files that are written aside, brought to the disk, and become visible in one
act."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evflow.disk import OwnFile
from evflow.errors import StagingError
from evflow.outside import shown
from evflow.staging.gathering import Part
from evflow.staging.model import Shape, Variable
from evflow.staging.stores.index import Facts, Index

__all__ = ["Store", "open_store"]

MOST_CHUNK = 1 << 30
"""Bytes of a chunk: HDF5 has none of 4 GiB, and Blosc none of 2."""


MOST_SLAB = 1 << 26
"""Bytes of a step that are put together at a time, and one row at least."""


class Store:
    """Committed steps. One process has a store open at a time; any number read it meanwhile.

    Attributes:
        done: step → the writers in it, of all steps that are committed: rank → the life of the writer whose
            part it has, 0 if the rank is missing. A step of an earlier version has the missing ranks only.
    """

    def __init__(self, path: Path, variables: Mapping[str, Variable], compression: int = 0) -> None:
        self._path, self._variables, self._compression = path, variables, compression
        # What the store says of its variables, to be compared.
        self._note = repr([(v.name, v.dtype, v.shape, v.dimensions) for v in variables.values()])
        self.done: dict[int, dict[int, int]] = {}
        # Of the newest step. Steps of the same writers share it, here and on the disk.
        self._writers: dict[int, int] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._index: Index | None = None
        self._own = OwnFile(path)
        try:
            self._open()
        except BaseException as error:
            self.close()
            if isinstance(error, ValueError | KeyError | AttributeError | TypeError):
                raise StagingError(f"store {path}: not a store of evflow: {shown(error)}") from None
            raise

    def _open(self) -> None:
        """Reads what is there; makes what is not."""
        raise NotImplementedError

    def _expect(self, what: str, at: Path, fits: bool) -> None:
        if at.exists() and not fits:
            found = f"found {'a folder' if at.is_dir() else 'another file'} at {at}"
            raise StagingError(
                f"store {self._path}: expected {what}, {found}; move it away, or choose another store"
            )

    def _check(self, note: object) -> None:
        if note != self._note:
            expected = f"expected the variables {self._note}, found {note}"
            raise StagingError(f"store {self._path}: {expected}; choose another store")

    def commit(self, part: Part) -> None:
        """Writes a step, with a number above all others: on the disk and visible when this returns. After an
        OSError nothing of the step is visible, and the same may succeed later."""
        raise NotImplementedError

    def _news(self, part: Part) -> dict[int, int]:
        """Writers of a step that are not those of the step before."""
        return {rank: life for rank, life in part.writers.items() if self._writers.get(rank) != life}

    def _add(self, facts: Facts) -> None:
        """A step is there."""
        if facts.news or not facts.known:
            self._writers = (self._writers if facts.known else {}) | facts.news
        self.done[facts.step] = self._writers

    def _committed(self, part: Part, news: dict[int, int]) -> None:
        facts = Facts(part.step, news)
        assert self._index is not None
        self._index.add(len(self.done), facts)
        self._add(facts)

    def close(self) -> None:
        """Gives the store up."""
        if self._index is not None:
            self._index.close()
        self._own.close()


def open_store(path: Path, variables: Mapping[str, Variable], compression: int = 0) -> Store:
    """Opens a store, made if it is not there; ``.h5`` or ``.zarr`` at the end says of what kind it is.
    ``compression`` is as of ``Stage``."""
    # The working directory of the process may change.
    path = path.absolute()
    try:
        if path.suffix == ".h5":
            from evflow.staging.stores.hdf5 import Hdf5Store

            return Hdf5Store(path, variables, compression)
        if path.suffix == ".zarr":
            from evflow.staging.stores.zarr import ZarrStore

            return ZarrStore(path, variables, compression)
    except ModuleNotFoundError as missing:
        raise StagingError(f"store {path}: {missing}; run: pip install 'evflow[staging]'") from None
    raise StagingError(f"store {path}: expected a name that ends in .h5 or .zarr")


def places(part: Part, name: str) -> list[tuple[tuple[slice, ...], Any]]:
    """Where the blocks of a variable stand in a step, and their elements."""
    return [
        (tuple(slice(o, o + n) for o, n in zip(block.offset, block.shape, strict=True)), block.view(data))
        for _, block, data in part.of_variable(name)
        if block.nbytes
    ]


def runs(part: Part, variable: Variable, shape: Shape) -> list[Any] | None:
    """The bytes of a variable in a step, one buffer behind the other; None if a block is not in one piece
    there, or elements are missing.

    Args:
        part: the step.
        variable: the variable.
        shape: of all of it in this step.
    """
    found: dict[int, Any] = {}
    sizes = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    for _, block, data in part.of_variable(variable.name):
        if block.nbytes:
            # Behind the first dimension of which it has more than one, it has all of each.
            first = next((place for place, size in enumerate(block.shape) if size > 1), len(shape))
            if block.shape[first + 1 :] != shape[first + 1 :]:
                return None
            found[sum(map(operator.mul, block.offset, sizes))] = data
    whole = math.prod(shape) * int(variable.dtype[1:])
    return (
        [found[at] for at in sorted(found)] if sum(data.nbytes for data in found.values()) == whole else None
    )


def slabs(part: Part, variable: Variable, shape: Shape) -> Iterator[Any]:
    """The elements of a variable in a step, some rows after the other, whatever blocks they are in.

    Args:
        part: the step.
        variable: the variable.
        shape: of all of it in this step.
    """
    found, dtype = places(part, variable.name), np.dtype(f"<{variable.dtype}")
    rows = max(1, MOST_SLAB // (dtype.itemsize * math.prod(shape[1:])))
    for first in range(0, shape[0], rows):
        made = np.full((min(rows, shape[0] - first), *shape[1:]), fill_value(dtype))
        for (side, *rest), block in found:
            low, high = max(side.start, first), min(side.stop, first + len(made))
            if low < high:
                made[(slice(low - first, high - first), *rest)] = block[low - side.start : high - side.start]
        yield made


def chunked(
    part: Part, variable: Variable, shape: Shape, known: Shape | None = None
) -> tuple[Shape, list[tuple[tuple[slice, ...], Any]]]:
    """Of what shape the chunks of a variable in a step are, and what is to be written where, so that each
    chunk is written once: the blocks, if each fills its chunks, or all of the variable.

    Args:
        part: the step.
        variable: the variable.
        shape: of all of it in this step.
        known: the shape of chunks, if earlier steps have settled it.
    """
    found, dtype = places(part, variable.name), np.dtype(f"<{variable.dtype}")
    chunk = known or (found[0][1].shape if found else shape)
    if not all(
        s.start % n == 0 and (s.stop % n == 0 or s.stop == size)
        for where, _ in found
        for s, n, size in zip(where, chunk, shape, strict=True)
    ):
        whole = np.full(shape, fill_value(dtype))
        for where, block in found:
            whole[where] = block
        found, chunk = [((), whole)], known or shape
    sizes = [dtype.itemsize * math.prod(chunk[place + 1 :]) for place in range(len(chunk))]
    small = (min(n, max(1, MOST_CHUNK // size)) for n, size in zip(chunk, sizes, strict=True))
    return known or tuple(small), found


def fill_value(dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """What stands for elements that no writer had: NaN, or the lowest number."""
    return np.array(np.nan if dtype.kind == "f" else np.iinfo(dtype).min, dtype)
