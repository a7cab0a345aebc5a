"""The replay of the benchmark of tiles, beside the plainest one: each move with all of the other side."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.tiles.world import metres

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
Key = tuple[int, int, int, int]


def test_the_replay_finds_what_each_move_matches_and_notices_one_more_or_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from tiles import fleet, turns
    from tiles_replay import Sums, replay

    random = np.random.default_rng(1)
    entities = fleet(150, 0.5, random)
    entities["zone"][:, :2] = (46, 6) + (entities["zone"][:, :2] - (46, 6)) / 4
    sides = [entities.compress(entities["flags"] == flag) for flag in (0, 1)]
    given = [(side["id"], side["zone"]) for side in sides]
    moves = [(flag, ids, zones.copy()) for flag, ids, zones in islice(turns(entities, 60, random), 20)]
    held: tuple[dict[int, tuple[int, list[float]]], ...] = ({}, {})
    keys = list[Key]()
    for call, (flag, ids, zones) in enumerate([(0, *given[0]), (1, *given[1]), *moves]):
        for own, zone in zip(ids.tolist(), zones.tolist(), strict=True):
            held[flag][own] = call, zone
            for other, (before, there) in held[1 - flag].items():
                if metres((zone[0], zone[1]), (there[0], there[1])) <= 100:
                    keys.append((other, before, own, call) if flag else (own, call, other, before))

    spans = list(range(22))
    due, _ = replay(given, iter(moves))
    for told, differs in ((keys, []), (keys[:-1], [keys[-1]]), ([*keys, keys[9]], [keys[9]])):
        came = Sums()
        came.add(*np.array(told).T)
        wrong = np.flatnonzero((came.over(spans) != due.over(spans)).any(axis=1))
        assert wrong.tolist() == [max(key[1], key[3]) for key in differs]
    assert len(keys) > 3000 and due.counts[1:22].all()
