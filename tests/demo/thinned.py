"""The flights of the demos, thinned: tests that are not about their number need few."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from evflow.tools.demo import flights, spark

__all__ = ["thin"]


def thin(patch: pytest.MonkeyPatch, folder: Path, every: int) -> int:
    """Has the demos read one flight of so many.

    Args:
        patch: takes that back.
        folder: where the files are written.
        every: of how many flights the first is kept.

    Returns:
        How many flights are left.
    """
    whole = flights.data_file()
    name = whole.stem
    with zipfile.ZipFile(whole) as packed:
        head, *lines = packed.read(name).splitlines(keepends=True)
    few = folder / whole.name
    with zipfile.ZipFile(few, "w") as packed:
        packed.writestr(name, b"".join([head, *lines[::every]]))
    shutil.copy(whole.with_name("airports.csv"), folder)
    for module in (flights, spark):
        patch.setattr(module, "data_file", lambda: few)
    return len(lines[::every])
