"""A system of tiles, which the tests of clients of a file share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import evflow as ev
from evflow import tiles


@pytest.fixture(scope="module")
def contact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("tiles")
    with (
        ev.Daemon("a", "tcp://127.0.0.1:0", storage=folder, handlers=["evflow.tiles.stone"]) as a,
        tiles.graph(["a"]).deploy({"a": a.contact}),
    ):
        yield f"{a.contact}/tiles/a"
