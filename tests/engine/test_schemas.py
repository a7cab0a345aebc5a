"""Events of schemas without end: a peer may bring a new one with each event."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import evflow as ev
from evflow.engine.fit import Adapter
from evflow.engine.plan import Route
from tests.engine.rig import Rec, Rig


def _alive(kind: type) -> int:
    gc.collect()
    return sum(type(one) is kind for one in gc.get_objects())


def test_what_is_known_of_schemas_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event is handled, whether its schema is new, known or forgotten; memory does not grow."""
    monkeypatch.setattr("evflow.engine.engine.MOST_SCHEMAS", 5)
    before = _alive(Route), _alive(Adapter)
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda event: seen.append(event.seq), input=Rec)
    rig = Rig(g)
    numbers = [*range(20), *range(20), 19, 19]
    for number in numbers:
        columns: dict[str, Any] = {"seq": [number], "source": [0], f"more{number}": [1.0]}
        schema = ev.Schema(f"Rec{number}", {"seq": int, "source": int, f"more{number}": float})
        rig.engine.submit(rig.slot("recs"), ev.EventBatch.from_columns(schema, columns))
        rig.engine.run()
    assert seen == numbers
    assert rig.letters() == []
    # One more for each of the two stones.
    assert _alive(Route) - before[0] <= 7
    assert _alive(Adapter) - before[1] <= 7
