"""Where committed steps are: files that are written aside, brought to the disk, and become visible in one
act."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evflow.disk import OwnFile
from evflow.disk.log import sync_file
from evflow.errors import StagingError
from evflow.outside import shown
from evflow.staging.gathering import Part
from evflow.staging.model import Variable

__all__ = ["Store", "open_store"]


class Store:
    """Committed steps. One process has a store open at a time; any number read it meanwhile.

    Attributes:
        done: step → the writers in it, of all steps that are committed: rank → the life of the writer whose
            part it has, 0 if the rank is missing. A step of an earlier version has the missing ranks only.
    """

    def __init__(self, path: Path, variables: Mapping[str, Variable]) -> None:
        self._path, self._variables = path, variables
        # What the store says of its variables, to be compared.
        self._note = repr([(v.name, v.dtype, v.shape, v.dimensions) for v in variables.values()])
        self.done: dict[int, dict[int, int]] = {}
        # Of the newest step. Steps of the same writers share it, here and on the disk.
        self._writers: dict[int, int] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
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

    def _add(self, step: int, news: dict[int, int] | None, missing: Iterable[int]) -> None:
        """A step is committed; ``news`` are what the store says of its writers, None if it says nothing."""
        if news is None:
            self._writers = dict.fromkeys(missing, 0)
        elif news:
            self._writers = self._writers | news
        self.done[step] = self._writers

    def close(self) -> None:
        """Gives the store up."""
        self._own.close()


def open_store(path: Path, variables: Mapping[str, Variable]) -> Store:
    """Opens a store, made if it is not there; ``.h5`` or ``.zarr`` at the end says of what kind it is."""
    try:
        if path.suffix == ".h5":
            from evflow.staging.stores.hdf5 import Hdf5Store

            return Hdf5Store(path, variables)
        if path.suffix == ".zarr":
            from evflow.staging.stores.zarr import ZarrStore

            return ZarrStore(path, variables)
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


def fill_value(dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """What stands for elements that no writer had: NaN, or the lowest number."""
    return np.array(np.nan if dtype.kind == "f" else np.iinfo(dtype).min, dtype)


def publish(made: Path, path: Path) -> None:
    """Puts a file that is complete in its place, in one act that survives a power cut."""
    sync_file(made)
    os.replace(made, path)
    sync_file(path.parent)
