from __future__ import annotations

import builtins
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.graph.draw import Picture, draw
from tests.examples import tried

pytest.importorskip("pygraphviz")


class Flight(ev.Event):
    origin: ev.Str[3]
    delay: float


class Speed(ev.Event):
    mph: float


ROUTE = 'return input.origin == "EWR" ? 0 : 1;'


def flights() -> ev.Graph:
    g = ev.Graph("flights")
    source = g.source("flights", Flight)
    route = source >> ev.Filter("input.delay > 60", name="late") >> ev.Router(ROUTE, name="origin")
    route[0] >> ev.Terminal(print, name="EWR")
    route[1] >> ev.Terminal(print, name="rest")
    with g.on("edge"):
        speed = source >> ev.Transform("output.mph = input.delay; return 1;", output=Speed, name="speed")
    speed >> ev.Storage(5, name="held") >> ev.Terminal(print, name="end")
    return g


def texts(picture: Picture) -> list[str]:
    """Everything a reader can read in the picture."""
    return [
        text.replace("\xa0", " ") for text in ElementTree.fromstring(picture.svg).itertext() if text.strip()
    ]


def tooltips(picture: Picture) -> list[str]:
    title = "{http://www.w3.org/1999/xlink}title"
    return [node.attrib[title] for node in ElementTree.fromstring(picture.svg).iter() if title in node.attrib]


def test_picture_shows_every_stone_with_its_kind_and_function() -> None:
    g = flights()
    shown = texts(g.draw())
    for name, stone in g.stones.items():
        assert name in shown
        assert stone.kind in shown
    assert "input.delay > 60" in shown
    assert "flights.split" in shown


def test_picture_shows_hosts_and_ports() -> None:
    shown = texts(flights().draw())
    assert "edge" in shown
    assert {"0", "1"} <= {text.strip() for text in shown}


def test_picture_shows_the_input_that_a_link_names() -> None:
    g = ev.Graph()
    either = g.source("any") >> ev.Terminal({Flight: print, Speed: print}, name="either")
    g.source("other") >> either["Speed"]
    assert any("Speed" in text for text in texts(g.draw()))


def two_nodes(bridge: ev.Bridge | None = None) -> ev.Graph:
    g = ev.Graph("two")
    with g.on("edge"):
        way = g.source("flights", Flight)
        way = way if bridge is None else way >> bridge
    with g.on("office"):
        way >> ev.Terminal(print, name="end")
    return g


def test_link_between_nodes_is_dashed() -> None:
    assert draw(two_nodes()).svg.count("stroke-dasharray") == len(("edge", "office", "the link"))
    assert draw(flights()).svg.count("stroke-dasharray") == len(("edge",))


def test_picture_shows_what_a_bridge_does_unlike_others() -> None:
    def peaks(congestion: ev.Congestion) -> None: ...

    plain_bridge = texts(draw(two_nodes(ev.Bridge(name="way"))))
    assert {"way", "bridge"} <= set(plain_bridge)
    assert not any("block" in text or "least" in text for text in plain_bridge)
    other = ev.Bridge(name="way", delivery="at_most_once", policy="keep latest", congestion=peaks)
    assert "way\nat most once, keep latest, peaks" in tooltips(draw(two_nodes(other)))


def test_picture_shows_where_a_bridge_leads_out_of_the_graph() -> None:
    g = ev.Graph()
    g.source("flights", Flight) >> ev.Bridge("tcp://127.0.0.1:7000", "arrivals", name="out")
    assert "out\nto arrivals of tcp://127.0.0.1:7000" in tooltips(draw(g))


def test_flow_on_a_node_is_drawn_with_its_bridges() -> None:
    node = ev.Node("edge", listen="tcp://127.0.0.1:0")
    with two_nodes().run(node=node) as flow:
        shown = texts(flow.draw())
    assert {"flights→end", "edge", "office"} <= set(shown)


def test_picture_shows_counts_of_a_flow() -> None:
    with flights().run() as flow:
        for delay in (100.0, 70.0, 3.0):
            flow["flights"].submit(Flight("EWR", delay))
        flow.drain()
        shown = texts(flow.draw())
    assert "3 in  2 out" in shown
    assert "3 queued" in shown
    assert "2 in" in shown


def test_counts_on_a_link_are_those_that_went_over_it() -> None:
    def counts(in_: int, out: int) -> dict[str, float]:
        return {"in": in_, "out": out}

    g = ev.Graph()
    route = g.source("a", Flight) >> ev.Router(ROUTE, name="route")
    end = route[0] >> ev.Terminal(print, name="end")
    route[1] >> ev.Terminal(print, name="rest")
    g.source("b", Flight) >> end
    stats = {"a": counts(70, 70), "route": counts(70, 60), "end": counts(51, 0), "rest": counts(20, 0)}
    shown = [text.strip() for text in texts(draw(g, stats={**stats, "b": counts(11, 11)}))]
    assert [shown.count(number) for number in ("70", "11", "20")] == [1, 1, 1]
    # Two links lead to "end", and the router's count is of both its ports: nothing tells this one.
    assert "51" not in shown
    assert "60" not in shown


def test_filter_is_not_blamed_for_what_it_drops() -> None:
    stats = {name: {"in": 9, "out": 5, "dropped": 4} for name in flights().stones}
    shown = texts(draw(flights(), stats=stats))
    assert shown.count("4 dropped") == len(stats) - 1


def test_tooltip_holds_the_whole_function() -> None:
    code = "\n".join(f"/* {n} */" for n in range(20)) + '\nreturn input.origin == "\\\\N";'
    g = ev.Graph()
    g.source("a", Flight) >> ev.Filter(code, name="long") >> ev.Terminal(print)
    assert f"long\n{code}" in tooltips(g.draw())


def test_python_function_is_shown_by_its_source() -> None:
    g = ev.Graph()
    g.source("a", Flight) >> ev.Filter(lambda input: input.delay > 1) >> ev.Terminal(print)
    assert "lambda input: input.delay > 1" in texts(g.draw())


def test_excerpt_leaves_out_comments_and_lonely_braces() -> None:
    g = ev.Graph()
    code = "{\n    /* why\n    so */\n    int i = 1; // one\n    i++;\n    return i;\n}"
    g.source("a", Flight) >> ev.Filter(code) >> ev.Terminal(print)
    shown = texts(g.draw())
    assert "int i = 1;" in shown
    assert "i++; …" in shown


@pytest.mark.parametrize(
    "name",
    [
        '"quoted"',
        "<b>bold</b>",
        "a & b &amp; c",
        "\\N \\G \\L \\\\",
        "日本語 é",
        "a;b}{]",
        "<>",
        "--",
        "cluster_0",
    ],
)
def test_any_name_is_shown_as_it_is(name: str) -> None:
    g = ev.Graph()
    with g.on(name):
        source = g.source(name, Flight)
    source >> ev.Filter(f"return 1; /* {name} */", name="f") >> ev.Terminal(print)
    picture = g.draw()
    assert texts(picture).count(name) == 2
    assert any(name in text for text in tooltips(picture))


@pytest.mark.slow
@settings(max_examples=tried(20), deadline=None)
@given(name=st.text(min_size=1, max_size=60), host=st.text(max_size=60))
def test_any_text_gives_well_formed_svg(name: str, host: str) -> None:
    g = ev.Graph(name)
    (
        g.source(name, Flight, on=host)
        >> ev.Filter(f"return 1; /* {name} */", name=f"{name}2")
        >> ev.Terminal(print)
    )
    assert ElementTree.fromstring(g.draw().svg).tag.endswith("svg")


def test_newlines_in_a_name_become_spaces() -> None:
    g = ev.Graph()
    g.source("two\nlines", Flight)
    assert "two lines" in texts(g.draw())


@pytest.mark.parametrize(("ending", "start"), [(".svg", b"<svg"), (".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_picture_is_saved_by_its_ending(ending: str, start: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"graph{ending}"
    assert isinstance(flights().draw(str(path)), Picture)
    assert path.read_bytes().startswith(start)


def test_unknown_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ev.GraphError, match=r"\.svg, \.png, \.pdf"):
        flights().draw(str(tmp_path / "graph.gif"))


def test_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ev.GraphError, match="cannot be written"):
        flights().draw(str(tmp_path / "no" / "graph.svg"))


def test_notebook_shows_graph_flow_and_picture() -> None:
    g = flights()
    assert g._repr_svg_() == g.draw()._repr_svg_()
    with g.run() as flow:
        assert flow._repr_svg_().startswith("<svg")


def test_unfinished_graph_is_drawn() -> None:
    g = ev.Graph()
    g.source("alone", Flight) >> ev.Filter("input.no_such_field +")
    assert "alone" in texts(g.draw())
    assert ElementTree.fromstring(ev.Graph("empty").draw().svg).tag.endswith("svg")


def test_without_pygraphviz_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "pygraphviz":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "pygraphviz", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ev.GraphError, match=r"pip install 'evflow\[demo\]'"):
        flights().draw()


def test_drawing_leaves_standard_error_alone(capfd: pytest.CaptureFixture[str]) -> None:
    print("before", file=sys.stderr, flush=True)
    flights().draw()
    print("after", file=sys.stderr, flush=True)
    assert capfd.readouterr().err == "before\nafter\n"
