"""The behaviour cases of a stone library in EVPath's style, each by its name."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import evflow as ev


class Rec(ev.Event):
    seq: int
    price: float = 0.0
    size: ev.i32 = 0
    tag: str = ""


class Out(ev.Event):
    a: int
    b: float
    c: ev.Str[4]


class A(ev.Event):
    value: int


class B(ev.Event):
    value: int


class C(ev.Event):
    value: int


class Trade(ev.Event):
    trade_price: float


class Wind(ev.Event):
    wind_velocity: ev.Array[ev.f64, 253, 37]


class Average(ev.Event):
    average_velocity: float


class Wide(ev.Event):
    x: float


class Narrow(ev.Event):
    x: ev.f32


FIGURE_6 = """
{
   if ((input.trade_price < 75.5) ||
        (input.trade_price > 78.5)) {
      return 1; /* pass event over output link */
   }
   return 0; /* discard event */
}
"""

FIGURE_7 = """
{
    int i, j;
    double sum = 0.0;
    for(i = 0; i<37; i= i+1) {
        for(j = 0; j<253; j=j+1) {
            sum = sum + input.wind_velocity[j][i];
        }
    }
    output.average_velocity = sum / (37 * 253);
    return 1;
}
"""

HOP = """{
    set_int_attr(event_attrs, "hop_count", attr_ivalue(event_attrs, "hop_count") + 1);
    return 1;
}"""


class Collect(list[Any]):
    """A handler that keeps a copy of each event."""

    def __call__(self, event: Any) -> None:
        self.append(event.to_event())

    def field(self, name: str) -> list[Any]:
        return [getattr(event, name) for event in self]


def submit_all(flow: ev.Flow, name: str, events: Any) -> None:
    for event in events:
        flow[name].submit(event)
    flow.drain()


@pytest.fixture
def got() -> Iterator[Collect]:
    yield Collect()


def test_typed_terminal() -> None:
    """One event with an attribute reaches the handler once, all fields and the attribute equal."""
    seen = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda event: seen.append((event.to_event(), event.attrs)))
    with g.run() as flow:
        flow["recs"].submit(Rec(1, 2.5, 3, "four"), attrs={"k": 45678})
    assert seen == [(Rec(1, 2.5, 3, "four"), {"k": 45678})]


def test_filter_parity(got: Collect) -> None:
    """A filter on odd numbers passes exactly the odd ones, in order."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Filter("input.seq % 2 == 1") >> ev.Terminal(got)
    with g.run() as flow:
        submit_all(flow, "recs", (Rec(seq) for seq in range(20)))
    assert got.field("seq") == list(range(1, 20, 2))


def test_filter_paper(got: Collect) -> None:
    """Figure 6 of the EVPath paper, verbatim."""
    g = ev.Graph()
    g.source("trades", Trade) >> ev.Filter(FIGURE_6) >> ev.Terminal(got)
    with g.run() as flow:
        submit_all(flow, "trades", (Trade(price) for price in (70.0, 75.5, 76.0, 78.5, 79.0)))
    assert got.field("trade_price") == [70.0, 79.0]


def test_filter_untyped() -> None:
    """Filters that use attributes only take any format; a chain of three counts three hops."""
    hops = []
    g = ev.Graph()
    chain = g.source("any") >> ev.Filter(HOP) >> ev.Filter(HOP) >> ev.Filter(HOP)
    chain >> ev.Terminal(lambda event: hops.append((event.schema.name, event.attrs["hop_count"])))
    with g.run() as flow:
        submit_all(flow, "any", [Rec(1), A(2), Rec(3)])
    assert hops == [("Rec", 3), ("A", 3), ("Rec", 3)]


def test_router_ports() -> None:
    """A static counter sends odd events to ports 0, 1 and 2; even ones nowhere."""
    code = """{
        static int odd = 0;
        if (input.seq % 2 == 0) return -1;
        odd = odd + 1;
        if (odd <= 5) return 0;
        if (odd <= 8) return 1;
        return 2;
    }"""
    ports = [Collect(), Collect(), Collect()]
    g = ev.Graph()
    router = g.source("recs", Rec) >> ev.Router(code)
    for port, got in enumerate(ports):
        router[port] >> ev.Terminal(got)
    with g.run() as flow:
        submit_all(flow, "recs", (Rec(seq) for seq in range(20)))
    assert [got.field("seq") for got in ports] == [[1, 3, 5, 7, 9], [11, 13, 15], [17, 19]]


def test_router_out_of_range() -> None:
    """A port that is negative, not linked or not there drops the event and counts it."""
    zero, two = Collect(), Collect()
    g = ev.Graph()
    router = g.source("recs", Rec) >> ev.Router("return input.seq;", name="router")
    router[0] >> ev.Terminal(zero)
    router[2] >> ev.Terminal(two)
    with g.run() as flow:
        submit_all(flow, "recs", (Rec(seq) for seq in range(-1, 5)))
        stats = flow.stats()["router"]
    assert (zero.field("seq"), two.field("seq")) == ([0], [2])
    assert (stats["in"], stats["out"], stats["dropped"]) == (6, 2, 4)


def test_transform_new_type(got: Collect) -> None:
    """A transform fills a record of another type; fields not set are zero."""
    g = ev.Graph()
    made = g.source("recs", Rec) >> ev.Transform(
        "output.a = input.seq * 10; return input.seq != 0;", output=Out
    )
    made >> ev.Terminal(got)
    with g.run() as flow:
        submit_all(flow, "recs", (Rec(seq) for seq in range(3)))
    assert got == [Out(10, 0.0, ""), Out(20, 0.0, "")]


def test_transform_average(got: Collect) -> None:
    """Figure 7 of the EVPath paper over a real array, to the last bit of a loop in the same order."""
    wind = np.random.default_rng(7).normal(10.0, 4.0, (253, 37))
    total = 0.0
    for i in range(37):
        for j in range(253):
            total = total + float(wind[j, i])
    g = ev.Graph()
    g.source("wind", Wind) >> ev.Transform(FIGURE_7, output=Average) >> ev.Terminal(got)
    with g.run() as flow:
        submit_all(flow, "wind", [Wind(wind)])
    assert got.field("average_velocity") == [total / (37 * 253)]


def test_split_tree(got: Collect) -> None:
    """A tree of splits 1-2-4-8 delivers one event eight times."""
    g = ev.Graph()
    level = [g.source("recs", Rec) >> ev.Split()]
    for _ in range(2):
        level = [stone >> ev.Split() for stone in level for _ in range(2)]
    for stone in level:
        for _ in range(2):
            stone >> ev.Terminal(got)
    with g.run() as flow:
        submit_all(flow, "recs", [Rec(5)])
    assert got.field("seq") == [5] * 8


def test_multi_typed_stone() -> None:
    """One stone with handlers for two formats and a raw one: each event to its match, the rest to raw."""
    seen = []
    g = ev.Graph()
    g.source("any") >> ev.Terminal(
        {
            A: lambda event: seen.append(("A", event.value)),
            Rec: lambda event: seen.append(("Rec", event.seq)),
        },
        raw=lambda data, schema: seen.append((schema.name, type(data))),
    )
    with g.run() as flow:
        submit_all(flow, "any", [A(1), Rec(2), Trade(3.0), A(4)])
    assert seen == [("A", 1), ("Rec", 2), ("Trade", bytes), ("A", 4)]


def test_no_action(got: Collect, capfd: pytest.CaptureFixture[str]) -> None:
    """An event that no action accepts is counted and a dead letter, nothing is printed, later ones pass."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(got, input=Rec, name="end")
    with g.run() as flow:
        submit_all(flow, "recs", [Rec(1), Trade(70.0), Rec(2)])
        letters = flow.dead_letters()
        stats = flow.stats()["end"]
    assert got.field("seq") == [1, 2]
    assert [(letter.stone, letter.event.trade_price) for letter in letters] == [("end", 70.0)]
    assert stats["unmatched"] == 1
    assert capfd.readouterr() == ("", "")


JOIN = """{
    if (count(a) > 0 && count(b) > 0) {
        c.value = a[0].value + b[0].value;
        submit(0, c);
        discard(a, 0);
        discard(b, 0);
    }
}"""


@pytest.mark.parametrize("seed", range(5))
def test_queue_join(got: Collect, seed: int) -> None:
    """One of each queued makes one sum; fifty of each in any interleaving make fifty, each used once."""
    g = ev.Graph()
    joined = g.source("any") >> ev.Queue(JOIN, inputs={"a": A, "b": B}, outputs={"c": C})
    joined >> ev.Terminal(got)
    events = [A(1000 * n) for n in range(50)] + [B(n) for n in range(50)]
    order = random.Random(seed)
    mixed: list[Any] = []
    first, second = events[:50], events[50:]
    while first or second:
        mixed.append((first if first and (not second or order.random() < 0.5) else second).pop(0))
    with g.run() as flow:
        submit_all(flow, "any", mixed)
    assert got.field("value") == [1001 * n for n in range(50)]


def test_submit_from_code(got: Collect) -> None:
    """A function builds a record, submits it and returns 0: only built records arrive."""
    g = ev.Graph()
    made = g.source("recs", Rec) >> ev.Transform(
        "output.a = input.seq; submit(0, output); return 0;", output=Out
    )
    made >> ev.Terminal(got)
    with g.run() as flow:
        submit_all(flow, "recs", (Rec(seq) for seq in range(3)))
    assert got == [Out(0, 0.0, ""), Out(1, 0.0, ""), Out(2, 0.0, "")]


@pytest.mark.slow
def test_generator(got: Collect) -> None:
    """A generator that returns true the first time only makes one event; always true, about ten a second."""
    once = Collect()
    g = ev.Graph()
    single = g.add(
        ev.Generator("output.value = 1; return input.count == 0;", output=A, period=0.1, name="once")
    )
    always = g.add(ev.Generator("output.value = input.count; return 1;", output=A, period=0.1, name="always"))
    single >> ev.Terminal(once)
    always >> ev.Terminal(got)
    with g.run():
        time.sleep(1.05)
    assert len(once) == 1
    assert 6 <= len(got) <= 11
    assert got.field("value") == list(range(len(got)))


def test_freeze_unfreeze(got: Collect) -> None:
    """A frozen stone holds events in order, with the values at submission though one record is used again."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(got, name="end")
    with g.run() as flow:
        flow.freeze("end")
        rec = Rec(0)
        for seq in range(3):
            rec.seq = seq
            flow["recs"].submit(rec)
        flow.drain()
        assert got == []
        flow.unfreeze("end")
        flow.drain()
    assert got.field("seq") == [0, 1, 2]


def test_storage_limit(got: Collect) -> None:
    """A storage of five lets the first ten of fifteen go on and holds five until they are sent."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Storage(5, name="store") >> ev.Terminal(got)
    with g.run() as flow:
        submit_all(flow, "recs", (Rec(seq) for seq in range(15)))
        assert got.field("seq") == list(range(10))
        assert flow.stats()["store"]["queued"] == 5
        flow.send_stored("store")
        flow.drain()
    assert got.field("seq") == list(range(15))


def test_fields_f64_to_f32(got: Collect) -> None:
    """1.5 through a conversion to a narrower reader's field is exactly 1.5."""
    g = ev.Graph()
    g.source("wide", Wide) >> ev.Terminal(got, input=Narrow)
    with g.run() as flow:
        submit_all(flow, "wide", [Wide(1.5)])
    assert got == [Narrow(1.5)]
