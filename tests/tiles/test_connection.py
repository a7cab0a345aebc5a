"""A client of tiles over one daemon in this process."""

from __future__ import annotations

import asyncio
import math
import queue
import time
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from evflow import tiles
from evflow.errors import EvflowError, GraphError
from evflow.matching import AreaColumns, Circle, GlobeBox, GlobeCircle, GlobePolygon

HERE, NEAR, AWAY = (46.53, 6.63, 50), (46.5305, 6.63, 50), (46.6, 6.63, 50)


def _pairs(rows: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(rows["pub"].tolist(), rows["sub"].tolist(), strict=True))


def _found(client: tiles.Connection, count: int) -> list[tuple[int, int]]:
    """The pairs of so many matches, and of those that come within a moment more."""
    found: list[tuple[int, int]] = []
    until = time.monotonic() + 20
    while len(found) < count and time.monotonic() < until:
        for rows in client.batches(0.1):
            found += _pairs(rows)
    return sorted(found)


@pytest.mark.slow
def test_moves_keep_attributes_and_deleted_subscriptions_match_no_more(contact: str) -> None:
    with tiles.connect(contact) as client:
        client.subscribe([10, 11, 12], [HERE] * 3, {"kind": "taxi"})
        client.subscribe(13, HERE, {"kind": "bus"})
        client.subscribe(14, (46.5, 6.6, 46.54, 6.64))
        client.publish(10, AWAY, {"kind": "taxi", "seats": 4})
        client.unsubscribe(11)
        client.move(12, AWAY, subscriptions=True)
        client.drain(20)
        assert _found(client, 1) == [(10, 12)]
        client.move(10, NEAR)
        assert _found(client, 2) == [(10, 10), (10, 14)]
        client.publish(10, NEAR)
        assert _found(client, 1) == [(10, 14)]
        client.unpublish(10)
        client.unsubscribe([10, 12, 13, 14])
        client.drain(20)


def test_areas_of_the_matcher_are_zones(contact: str) -> None:
    triangle = GlobePolygon([(46.5, 6.6), (46.5, 6.7), (46.6, 6.6)])
    with tiles.connect(contact) as client:
        client.subscribe([15, 16], [triangle, GlobeBox(46.59, 6.69, 46.61, 6.71)], {"kind": "taxi"})
        client.publish(15, GlobeCircle(46.56, 6.65, 1), {"kind": "taxi"})
        client.drain(20)
        client.move(15, triangle)
        assert _found(client, 1) == [(15, 15)]
        client.move(15, AreaColumns.points(46.6, 6.7, "globe"))
        assert _found(client, 1) == [(15, 16)]
        # Attributes stay when a polygon becomes a circle.
        client.move(15, HERE, subscriptions=True)
        client.move(15, NEAR)
        assert _found(client, 1) == [(15, 15)]
        client.unpublish(15)
        client.unsubscribe([15, 16])
        client.drain(20)


def test_subscriptions_ask_for_enter_inside_and_leave(contact: str) -> None:
    def told(count: int) -> list[str]:
        found: list[str] = []
        until = time.monotonic() + 20
        while len(found) < count and time.monotonic() < until:
            for rows in client.batches(0.1):
                found += [tiles.EVENTS[event] for event in rows["event"]]
        return found

    with tiles.connect(contact) as client:
        client.subscribe(18, HERE, {"kind": "taxi"}, events=["enter", "leave"])
        client.publish(18, NEAR, {"kind": "taxi"})
        assert told(1) == ["enter"]
        client.move(18, NEAR)
        client.move(18, AWAY)
        assert told(1) == ["leave"]
        # A subscription that moves asks for what it did; a client that connects anew knows who is inside.
        client.move(18, AWAY, subscriptions=True)
        assert told(1) == ["enter"]
        client._lost(client._epoch, EvflowError("cut"))
        client.publish(18, AWAY, {"kind": "bus"})
        assert told(1) == ["leave"]
        client.publish(18, AWAY, {"kind": "taxi"})
        client.unpublish(18)
        assert told(2) == ["enter", "leave"]
        client.unsubscribe(18)
        client.drain(20)
        for wrong in ("enter", [], ["match", "enter"], ["exit"]):
            with pytest.raises(EvflowError, match="or some of enter, inside and leave"):
                client.subscribe(18, HERE, events=wrong)


@pytest.mark.slow
def test_many_polygons_come_in_messages_of_a_bounded_size(contact: str) -> None:
    around = [(math.sin(k / 500 * math.pi), math.cos(k / 500 * math.pi)) for k in range(0, 1000, 5)]
    wide = [GlobePolygon([(46.5 + 0.1 * y, k * 1e-4 + 0.1 * x) for y, x in around]) for k in range(401)]
    with tiles.connect(contact) as client:
        client.subscribe(17, (46.5, 0.0, 1))
        client.publish(np.arange(1000, 1401), wide)
        assert _found(client, 401) == [(k, 17) for k in range(1000, 1401)]
        client.unpublish(np.arange(1000, 1401))
        client.unsubscribe(17)
        client.drain(20)


def test_a_handler_gets_batches_and_its_failures_cost_nothing_else(contact: str) -> None:
    got: queue.Queue[Any] = queue.Queue()

    def handler(rows: np.ndarray) -> None:
        got.put(_pairs(rows))
        raise ValueError("a handler that fails")

    with tiles.connect(contact, handler) as client:
        client.subscribe(21, HERE)
        for number in (22, 23):
            version = client.publish(number, NEAR)
            assert version > 0
            assert got.get(timeout=10) == [(number, 21)]
        client.unpublish([22, 23])
        client.unsubscribe(21)
        client.drain(20)


def test_matches_come_to_asyncio_while_its_loop_goes_on(contact: str) -> None:
    async def take(client: tiles.Connection) -> list[tuple[int, int]]:
        found = []
        async for match in client:
            found.append((int(match["pub"]), int(match["sub"])))
            if len(found) == 2:
                break
        async for rows in client.batches(10):
            found += _pairs(rows)
            break
        async for _ in client.batches(0.01):
            raise AssertionError("there is no further match")
        return found

    async def play(client: tiles.Connection) -> list[tuple[int, int]]:
        taken = asyncio.create_task(take(client))
        for number in (26, 27, 28):
            # The loop is free while the other task waits for a match.
            await asyncio.sleep(0.01)
            client.publish(number, NEAR)
            await asyncio.to_thread(client.drain, 20)
        found = await asyncio.wait_for(taken, 20)
        ended = asyncio.create_task(take(client))
        client.unpublish([26, 27, 28])
        client.unsubscribe(25)
        await asyncio.to_thread(client.drain, 20)
        await asyncio.to_thread(client.close)
        assert await asyncio.wait_for(ended, 20) == []
        return found

    with tiles.connect(contact) as client:
        client.subscribe(25, HERE)
        assert sorted(asyncio.run(play(client))) == [(26, 25), (27, 25), (28, 25)]


def test_a_client_has_the_name_that_its_keys_need(contact: str) -> None:
    with tiles.connect(contact, name="desk") as client:
        assert client._flow.node is not None and client._flow.node.name == "desk"


def test_entities_of_others_are_refused(contact: str) -> None:
    with tiles.connect(contact) as mine, tiles.connect(contact) as theirs:
        mine.subscribe(31, HERE)
        mine.drain(20)
        theirs.move(31, AWAY, subscriptions=True)
        theirs.unsubscribe(31)
        theirs.drain(20)
        theirs.publish(32, NEAR)
        assert _found(mine, 1) == [(32, 31)]
        mine.unsubscribe(31)
        theirs.unpublish(32)
        mine.drain(20)
        theirs.drain(20)


def test_a_client_that_takes_too_little_is_disconnected_and_gets_all_the_same(contact: str) -> None:
    with patch("evflow.tiles.stone._MOST_WAITING", 1), tiles.connect(contact) as client:
        client.subscribe(41, HERE)
        for _ in range(40):
            client.publish(42, NEAR)
        assert _found(client, 40) == [(42, 41)] * 40
        client.drain(20)
        client.unsubscribe(41)
        client.unpublish(42)
        client.drain(20)


def test_wrong_input_is_told_before_anything_is_sent(contact: str) -> None:
    with pytest.raises(EvflowError, match="expected an address, a deployment and a host"):
        tiles.connect("tcp://127.0.0.1:1")
    with pytest.raises(EvflowError, match="no Frontend answers"):
        tiles.connect("tcp://127.0.0.1:9/tiles/a", patience=0.1)
    with tiles.connect(contact) as client:
        for ids, zones, what in (
            (-1, HERE, "ids -1"),
            (1.5, HERE, "ids 1.5"),
            ([1, 2], HERE, "zones of shape"),
            (1, (1, 2), "zones of shape"),
            (1, (1, 2, float("nan")), "finite"),
            (1, "here", "zones"),
            ([1, 2], GlobeCircle(1, 2, 3), "expected 2 areas"),
            (1, Circle(1, 2, 3), "on the plane"),
            (1, GlobePolygon([(k * 0.01, k % 2) for k in range(1001)]), "expected at most 1,000"),
        ):
            with pytest.raises(EvflowError, match=what):
                client.publish(ids, zones)
        with pytest.raises(EvflowError, match="attribute 'kind'"):
            client.publish(1, HERE, {"kind": [1]})
        client.publish(1, (91, 0, 5))
        client.drain(20)
        assert client.refused == 1
    with pytest.raises(EvflowError, match="closed"):
        client.publish(1, HERE)


def test_hosts_come_in_groups() -> None:
    with pytest.raises(GraphError, match="a multiple of replicas=2 hosts, found 3"):
        tiles.graph("abc", replicas=2)
    with pytest.raises(GraphError, match="each once"):
        tiles.graph(["a", "a"])
    graph = tiles.graph("abc", frontends="a", states="b", tiles="c", metres=300)
    assert [stone.on for stone in graph.stones.values() if isinstance(stone, tiles.Host)] == ["a", "b", "c"]
    assert tiles.Host(**tiles.Host.settings(graph.stones["b"])).settings() == graph.stones["b"].settings()
