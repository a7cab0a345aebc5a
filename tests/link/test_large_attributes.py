"""Attributes of megabytes: they go in several frames, or are refused where they are emitted."""

from __future__ import annotations

from typing import Any

import pytest

import evflow as ev
from evflow.errors import LinkError
from evflow.events.attributes import MOST_ATTRIBUTES, Attributes
from evflow.net.link import attributes as attributes_module
from evflow.net.link import messages as m
from evflow.net.link.attributes import divided, pack, unpack
from tests.link.pair import Network, Pair, Peer, Ping, pings

SMALL = 4000


def noted(texts: list[Any], **more: list[Any]) -> ev.EventBatch:
    """Pings with a text each."""
    return pings(*range(len(texts))).with_attributes(Attributes.from_lists({"note": texts, **more}))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a header could have few bytes of attributes."""
    for name in ("attributes", "outlet"):
        monkeypatch.setattr(f"evflow.net.link.{name}.MOST_EXTENT", SMALL)


def test_parts_are_the_batch_in_order_and_none_is_too_large(small: None) -> None:
    batch = noted([str(number) * (number % 90) for number in range(300)], rank=[*range(300)])
    parts = divided(batch)
    assert len(parts) > 10
    assert [e for part in parts for e in part.to_events()] == batch.to_events()
    for part in parts:
        assert part.attributes is not None
        data = m.Data(0, 1, 0, 1, b"", [], pack(part.attributes), None)
        assert len(m.pack(data)) <= SMALL + 64


@pytest.mark.slow
def test_events_with_many_names_between_them_go_in_several_frames() -> None:
    """None has more than an event may have; one that has is refused."""
    rows: list[Any] = [{f"{seq}.{number}": seq for number in range(MOST_ATTRIBUTES - 1)} for seq in range(5)]
    batch = pings(*range(5)).with_attributes(Attributes.from_rows(rows))
    sent = [
        {name: column.values[seq] for name, column in read.columns.items() if column.present[seq]}
        for part in divided(batch)
        if (read := unpack(pack(part.attributes), len(part))) is not None
        for seq in range(len(part))
    ]
    assert sent == rows
    rows[3] = {f"a{number}": 0 for number in range(MOST_ATTRIBUTES + 1)}
    with pytest.raises(LinkError, match="expected at most 1,000 attributes of an event, found 1,001"):
        divided(batch.with_attributes(Attributes.from_rows(rows)))


def test_a_batch_with_few_attributes_is_not_divided() -> None:
    batch = noted(["x"] * 1000)
    assert divided(batch) == [batch]
    assert divided(pings(1, 2)) != []


@pytest.mark.parametrize("value", [7, 0.5, "a text"])
def test_a_batch_whose_events_share_what_came_over_a_bridge_is_not_divided(value: Any, small: None) -> None:
    """However many there are: one value is sent for all."""
    shared = unpack(pack(Attributes.from_lists({"note": [value] * 5000})), 5000)
    assert shared is not None
    batch = pings(*range(5000)).with_attributes(shared)
    assert divided(batch) == [batch]


def test_texts_of_a_part_have_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes_module, "MOST_TEXTS", 64)
    parts = divided(
        noted([str(number) for number in range(100)], other=[str(number) for number in range(100)])
    )
    assert [len(part) for part in parts] == [25] * 4


def test_what_is_as_large_as_may_be_is_not_refused(small: None) -> None:
    # ASCII has a byte a character, and others up to four.
    assert len(divided(noted(["x" * (SMALL - 100)]))) == 1
    with pytest.raises(LinkError, match=f"expected at most {SMALL} bytes, found 4013"):
        divided(noted(["x" * SMALL]))
    with pytest.raises(LinkError, match="what is large belongs into a field"):
        divided(noted(["\U0001f600" * 1100]))


@pytest.mark.parametrize("between", [None, "filter"])
def test_events_with_long_texts_arrive_in_several_frames(small: None, between: str | None) -> None:
    pair = Pair(ev.Filter("return true;", name="between", on="b") if between else None)
    for _ in range(3):
        pair.a.submit("pings", noted(["x" * 500] * 99 + ["y"]))
    pair.run()
    assert pair.arrived == [*range(100)] * 3
    assert all(len(m.pack(said)) < SMALL + 2000 for said in pair.network.said(m.Data))
    assert not pair.a.hub.owes and not pair.b.hub.refused


def test_an_event_with_too_large_a_text_is_a_dead_letter_and_no_other_waits(small: None) -> None:
    pair = Pair()
    pair.a.submit("pings", noted(["a"]))
    pair.a.submit("pings", noted(["x" * SMALL]))
    pair.a.submit("pings", noted(["b"]))
    pair.run()
    assert len(pair.arrived) == 2
    (letter,) = pair.a.letters.letters()
    assert "the attributes of an event: expected at most 4000 bytes, found 4013" in letter.reason
    assert not pair.a.hub.owes
    assert len(pair.network.said(m.Hello)) == 1


def test_a_frame_that_led_to_too_large_a_text_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node in the middle can send none of it on, and owes nothing for it."""
    arrived: list[int] = []
    graph = ev.Graph()
    way = graph.source("pings", Ping, on="a") >> ev.Filter("return true;", on="b")
    way >> ev.Terminal(lambda event: arrived.append(event.number), on="c")
    network = Network()
    Peer(network, "c", graph)
    b = Peer(network, "b", graph, {"c": "c"})
    a = Peer(network, "a", graph, {"b": "b"})
    network.run()
    a.submit("pings", noted(["x" * SMALL]))
    monkeypatch.setattr(attributes_module, "MOST_EXTENT", SMALL)
    network.run()
    assert arrived == [] and len(b.letters.letters()) == 1
    assert not a.hub.owes and not b.hub.owes


@pytest.mark.slow
def test_thousands_of_events_with_long_texts_arrive() -> None:
    pair = Pair()
    pair.network.logs = False
    pair.a.submit("pings", noted(["x" * 20_000, "y" * 20_000] * 4096))
    pair.run(1.0)
    assert pair.arrived == [*range(8192)]
    assert len(pair.a.letters.letters()) == 0 and not pair.a.hub.owes
