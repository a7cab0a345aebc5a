"""Which tiles are split and joined, and that no match is lost or doubled meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import evflow as ev
from evflow import tiles
from evflow.errors import GraphError
from evflow.tiles import Grid, Layout, Message, Place, Ring, TileManager
from evflow.tiles.density import Crowd, balanced, crowds
from evflow.tools.cli import main
from tests.tiles.rows import moves
from tests.tiles.test_processes import Fleet
from tests.tiles.world import Circle

HOT = 4**15 + 11591 * 2**15 + 16984


def test_the_heaviest_tiles_are_split_and_light_parts_are_joined() -> None:
    grid, most = Grid(15), 100.0
    # In tiles of 1222 m (at 46 degrees north 849 m): half of a part is 212 m.
    told = {HOT: Crowd(120, 120, 50.0), HOT + 1: Crowd(99, 99, 50.0), HOT + 2: Crowd(10_000, 20, 0.0)}
    assert balanced(grid, told, most) == {HOT}
    assert balanced(grid, {HOT: Crowd(120, 120, 110.0)}, most) == set()
    split = Grid(15, [HOT])
    first, *rest = split.parts(HOT)
    assert balanced(split, {first: Crowd(102, 102)}, most) == {HOT, first}
    assert balanced(split, {first: Crowd(51, 51)}, most) == {HOT}
    assert balanced(split, {part: Crowd(12, 12) for part in rest}, most) == set()


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=4, max_size=4))
def test_what_was_split_is_not_joined_at_the_next_look(shares: list[tuple[int, int]]) -> None:
    whole = Crowd(sum(p for p, _ in shares), sum(s for _, s in shares))
    splits = balanced(Grid(15), {HOT: whole}, 100.0)
    parts = dict(zip(Grid.parts(HOT), (Crowd(*share) for share in shares), strict=True))
    assert splits <= balanced(Grid(15, splits), parts, 100.0)


def test_a_tile_manager_tells_how_many_zones_its_tiles_have() -> None:
    grid = Grid(13)
    layout = Layout(grid, Ring({0: ("a",)}), Ring({0: ("a",)}))
    manager, random = TileManager(Place("tile", 0), layout), np.random.default_rng(1)
    zones = [Circle(46.5 + a, 6.6 + b, 40.0) for a, b in random.normal(0, 0.03, (900, 2))]
    rows = moves(zones, subscriptions=[i % 3 == 0 for i in range(900)])
    at, touched = grid.tiles(rows)
    told = rows[at]
    told["tile"] = touched
    manager.receive(Place("state", 0), Message("moves", told))
    counts = [Counter(touched[(at % 3 == 0) == side].tolist()) for side in (False, True)]
    wanted = {tile: (counts[0][tile], counts[1][tile]) for tile in {*counts[0], *counts[1]}}
    heavy = {tile: (p, s) for tile, (p, s) in wanted.items() if 2 * p * s > 20 * (p + s)}
    found = crowds(manager, 20.0)
    assert {tile: crowd[:2] for tile, crowd in found.items()} == heavy and len(heavy) > 3
    assert all(39 < crowd.reach < 41 for crowd in found.values())


@pytest.mark.slow
def test_no_match_is_lost_or_doubled_when_the_grid_follows_density(tmp_path: Path) -> None:
    g = tiles.graph("ab", replicas=2, metres=5000)
    allowed = {"handlers": ["evflow.tiles.stone"]}
    with (
        ev.Daemon("a", "tcp://127.0.0.1:0", storage=str(tmp_path / "a"), **allowed) as a,
        ev.Daemon("b", "tcp://127.0.0.1:0", storage=str(tmp_path / "b"), **allowed) as b,
        g.deploy({"a": a.contact, "b": b.contact}) as handle,
        tiles.connect(f"{a.contact}/tiles/a") as client,
    ):
        hosts = tmp_path / "hosts.toml"
        hosts.write_text(f'[hosts]\na = "{a.contact}"\nb = "{b.contact}"\n')
        run = ["tiles", "balance", "--hosts", str(hosts), "--most"]
        fleet, told = Fleet(client, 60), list[str]()
        fleet.settle()
        for change in (
            lambda: told.append(str(tiles.balance(handle, most=8))),
            lambda: told.append(CliRunner().invoke(main, [*run, "1000"]).output),
        ):
            changing = threading.Thread(target=change)
            changing.start()
            while changing.is_alive():
                for which in (0, 1):
                    fleet.move(which)
                    fleet.settle()
        assert int(told[0]) > 0 and told[1] == "0 tiles are split\n"
        assert "positive number of zones" in CliRunner().invoke(main, [*run, "0"]).output
        with pytest.raises(GraphError, match="positive number of zones"):
            tiles.balance(handle, most=0)
