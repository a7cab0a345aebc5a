"""Where committed steps are: files that are written aside, brought to the disk, and become visible in one
act."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from evflow.errors import StagingError
from evflow.staging.gathering import Part
from evflow.staging.model import Variable

__all__ = ["Store", "open_store"]

MOST_STEPS = 100_000_000


class Store(Protocol):
    """Committed steps. One process has a store open at a time; any number read it meanwhile.

    Attributes:
        done: step → ranks that are missing in it, of all steps that are committed.
    """

    done: dict[int, tuple[int, ...]]

    def commit(self, part: Part) -> None:
        """Writes a step whose ``data`` holds the bytes of its blocks; on the disk and visible when it
        returns.

        Args:
            part: the step; its number is above all that are committed.

        Raises:
            OSError: the disk refuses; nothing of the step is visible, and the same may succeed later.
        """

    def close(self) -> None:
        """Gives the store up."""


def open_store(path: Path, variables: Mapping[str, Variable]) -> Store:
    """Opens a store, made if it is not there; its name says of what kind it is.

    Args:
        path: ends in ``.h5`` or ``.zarr``.
        variables: what it has; the same as when it was made.

    Raises:
        StagingError: the name or the variables do not fit, or a package is missing.
        OSError: it cannot be opened.
    """
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


def described(variables: Mapping[str, Variable]) -> str:
    """What a store notes of its variables, to be compared."""
    return repr([(v.name, v.dtype, v.shape, v.dimensions) for v in variables.values()])


def check_described(path: Path, found: object, variables: Mapping[str, Variable]) -> None:
    """Refuses a store of other variables.

    Raises:
        StagingError: it has others.
    """
    if found != described(variables):
        raise StagingError(
            f"store {path}: expected the variables {described(variables)}, found {found}; "
            "choose another store"
        )


def places(part: Part, name: str) -> list[tuple[tuple[slice, ...], Any]]:
    """Where the blocks of a variable stand in a step, and their elements."""
    found = []
    for rank, blocks in part.blocks.items():
        for block, data in zip(blocks, part.data[rank], strict=True):
            if block.variable == name and block.nbytes:
                where = tuple(slice(o, o + n) for o, n in zip(block.offset, block.shape, strict=True))
                found.append((where, block.view(data)))
    return found


def sync(paths: Sequence[Path]) -> None:
    """Brings files and folders to the disk itself."""
    for path in paths:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def publish(made: Path, path: Path) -> None:
    """Puts a file that is complete in its place, in one act that survives a power cut."""
    sync([made])
    os.replace(made, path)
    sync([path.parent])
