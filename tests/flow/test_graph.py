"""A graph is data: what may be described, and what is refused before anything runs."""

from __future__ import annotations

import json

import pytest

import evflow as ev


class Rec(ev.Event):
    seq: int


class Other(ev.Event):
    name: str


def handler(event: object) -> None:
    """A handler that can be named."""


def test_linking_a_port_twice_adds_a_split() -> None:
    """The second link from a port goes through a split that the graph shows."""
    g = ev.Graph()
    recs = g.source("recs", Rec)
    for name in ("a", "b", "c"):
        recs >> ev.Terminal(handler, name=name)
    assert g.stones["recs.split"].kind == "split"
    assert [(k.source, k.target) for k in g.links] == [
        ("recs", "recs.split"), ("recs.split", "a"), ("recs.split", "b"), ("recs.split", "c"),
    ]  # fmt: skip


def test_a_router_port_fans_out_by_itself() -> None:
    """Each port of a router gets a split of its own."""
    g = ev.Graph()
    router = g.source("recs", Rec) >> ev.Router("return 1;", name="router")
    for port in (0, 0, 1, 1):
        router[port] >> ev.Terminal(handler)
    assert {"router.split", "router.split1"} <= set(g.stones)


def test_one_stone_takes_two_links() -> None:
    """Two sources may be linked to one and the same stone."""
    g = ev.Graph()
    end = ev.Terminal(handler)
    g.source("left", Rec) >> end
    g.source("right", Rec) >> end
    assert list(g.stones) == ["left", "terminal", "right"]
    g.check()


def test_names_are_made_and_must_differ() -> None:
    """Stones without a name are numbered; a name can be given once."""
    g = ev.Graph()
    recs = g.source("recs", Rec)
    recs >> ev.Filter("1") >> ev.Filter("1") >> ev.Terminal(handler)
    assert list(g.stones) == ["recs", "filter", "filter_2", "terminal"]
    with pytest.raises(ev.GraphError, match="two stones are named 'filter'"):
        g.add(ev.Terminal(handler, name="filter"))


def test_a_cycle_is_refused() -> None:
    """Links that form a cycle are named."""
    g = ev.Graph()
    first = g.source("recs", Rec) >> ev.Filter("1", name="first", input=Rec)
    second = first >> ev.Filter("1", name="second", input=Rec)
    second >> first
    with pytest.raises(ev.GraphError, match=r"cycle: .*first.*second"):
        g.check()


def test_a_stone_behind_a_transform_must_take_the_input_that_it_submits() -> None:
    """What leaves a transform is its output, and what came to it where its function submits that."""

    def checked(code: str, end: type[ev.Event]) -> None:
        g = ev.Graph()
        changed = g.source("recs", Rec) >> ev.Transform(code, output=Other)
        changed >> ev.Terminal(handler, input=end, name="end")
        g.check()

    checked("{ submit(0, output); return 0; }", Other)
    with pytest.raises(ev.EvflowError, match=r"stone 'end'.*name"):
        checked("{ if (input.seq > 3) submit(0, input); return 1; }", Other)
    with pytest.raises(ev.EvflowError, match=r"stone 'end'.*seq"):
        checked("{ submit(0, input); return 1; }", Rec)


def test_a_stone_that_cannot_take_what_arrives_is_refused() -> None:
    """A terminal for one schema linked to a source of another is an error of the graph."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(handler, input=Other, name="end")
    with pytest.raises(ev.EvflowError, match=r"stone 'end'.*name"):
        g.check()


@pytest.mark.parametrize(
    ("describe", "words"),
    [
        (lambda g: g.source("recs", Rec)[1] >> ev.Terminal(handler), "port 1"),
        (
            lambda g: g.source("recs", Rec) >> ev.Terminal(handler) >> ev.Terminal(handler, name="z"),
            "no output",
        ),
        (lambda g: None, "no stones"),
        (lambda g: g.source("recs", Rec) >> ev.Router("return 0;", name="r"), "leads nowhere"),
    ],
)
def test_wrong_links_are_refused(describe: object, words: str) -> None:
    """Each kind of wrong link has its message."""
    g = ev.Graph()
    describe(g)  # type: ignore[operator]
    with pytest.raises(ev.GraphError, match=words):
        g.check()


def test_a_stone_that_is_in_no_graph_says_how_to_link_it() -> None:
    """The error of a link without a source, and of a port taken too early, says what to write."""
    with pytest.raises(ev.GraphError, match=r"filter odd is in no graph; begin with graph\.source"):
        ev.Filter("1", name="odd") >> ev.Terminal(handler)
    with pytest.raises(ev.GraphError, match=r"router is in no graph; write \(… >> stone\)\[2\]"):
        ev.Graph().source("recs", Rec) >> ev.Router("return 2;")[2]


def test_the_error_of_two_stones_of_one_name_says_what_to_do() -> None:
    g = ev.Graph()
    g.source("recs", Rec)
    with pytest.raises(ev.GraphError, match="two stones are named 'recs'; rename one of them"):
        g.source("recs", Rec)


def test_a_public_name_that_is_written_wrong_is_suggested() -> None:
    """As for the names of stones and fields."""
    with pytest.raises(AttributeError, match=r"no attribute 'Filtre' \(did you mean 'Filter'\?\)"):
        getattr(ev, "Filtre")  # noqa: B009


def test_stones_of_two_graphs_cannot_be_linked() -> None:
    """A link stays within its graph."""
    one, two = ev.Graph("one"), ev.Graph("two")
    with pytest.raises(ev.GraphError, match="belongs to graph 'two'"):
        one.link(one.source("a", Rec), two.source("b", Rec))


def test_a_graph_goes_through_json() -> None:
    """A graph written as data and read again describes the same, and runs."""
    g = ev.Graph("trip")
    recs = g.source("recs", Rec)
    with g.on("edge"):
        router = recs >> ev.Filter("input.seq > 0", fuel=99) >> ev.Router("return input.seq % 2;")
    router[0] >> ev.Storage(3) >> ev.Terminal(handler)
    router[1] >> ev.Transform('output.name = "x"; return 1;', output=Other) >> ev.Terminal({Other: handler})
    g.morph(Rec, Other, 'output.name = "old"; return 1;')
    data = json.loads(json.dumps(g.to_dict()))
    again = ev.Graph.from_dict(data)
    assert again.to_dict() == data
    assert again.stones["filter"].on == "edge"
    with again.run() as flow:
        flow["recs"].submit(Rec(3))
        flow.drain()
        assert flow.stats()["terminal_2"]["in"] == 1


def test_python_functions_travel_as_source() -> None:
    """A Python function is in the data as its text."""

    def positive(event: object) -> bool:
        return event.seq > 0  # type: ignore[attr-defined, no-any-return]

    g = ev.Graph()
    g.source("recs", Rec) >> ev.Filter(positive) >> ev.Terminal(handler)
    again = ev.Graph.from_dict(json.loads(json.dumps(g.to_dict())))
    with again.run() as flow:
        for seq in (-1, 0, 1, 2):
            flow["recs"].submit(Rec(seq))
        flow.drain()
        assert flow.stats()["filter"]["out"] == 2


def test_a_lambda_handler_cannot_be_data() -> None:
    """A handler without a name is refused by ``to_dict``, not by ``run``."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda event: None)
    with pytest.raises(ev.GraphError, match="module:function"):
        g.to_dict()


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"name": "x", "stones": [{"name": "a", "kind": "nonsense", "on": None, "settings": {}}], "links": []},
        {"name": "x", "stones": 3, "links": [], "morphs": []},
        {"name": "x", "stones": [], "links": [[1]], "morphs": []},
        {"name": "x", "stones": [], "links": [["a", float("inf"), "b", ""]], "morphs": []},
        {"name": "x", "stones": [{"name": "t", "kind": "terminal", "on": None,
         "settings": {"batch": False, "handlers": [["input", None, 7]]}}],
         "links": [], "morphs": []},
    ],
)  # fmt: skip
def test_malformed_graph_data_is_refused(data: dict[str, object]) -> None:
    """Whatever is not a graph's data gets a GraphError."""
    with pytest.raises(ev.GraphError):
        ev.Graph.from_dict(data)


def test_a_named_handler_is_imported_where_it_runs() -> None:
    """A graph may name handlers that this host has not; to run it here is refused, and names the handler."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal("no.such.module:f", name="end")
    again = ev.Graph.from_dict(g.to_dict())
    assert again.stones["end"].imports == ("no.such.module:f",)
    with pytest.raises(ev.GraphError, match=r"'end'.*'no.such.module:f' cannot be imported"):
        again.check()


@pytest.mark.parametrize("target", [5, print, ev.Filter, None])
def test_linking_what_is_no_stone_is_refused(target: object) -> None:
    """The error names the stone and what was found instead of another."""
    g = ev.Graph()
    with pytest.raises(ev.GraphError, match="'recs' can be linked to a stone"):
        g.source("recs", Rec) >> target  # type: ignore[operator]


@pytest.mark.parametrize("port", [-1, 1.5, slice(1, 2), "other"])
def test_a_port_that_cannot_be_is_refused(port: object) -> None:
    """A port is a number from 0 on, an input a name that the stone has."""
    g = ev.Graph()
    with pytest.raises(ev.GraphError, match="stone 'recs'"):
        g.source("recs", Rec)[port]  # type: ignore[index]


@pytest.mark.parametrize("fuel", [0, -1, 1.5, "x", 2**63])
def test_fuel_is_a_whole_number(fuel: object) -> None:
    """Each stone with a function refuses other fuel when it is made."""
    for stone in (
        lambda: ev.Filter("1", fuel=fuel),  # type: ignore[arg-type]
        lambda: ev.Transform("1", output=Rec, fuel=fuel),  # type: ignore[arg-type]
        lambda: ev.Queue("1", inputs={"recs": Rec}, fuel=fuel),  # type: ignore[arg-type]
    ):
        with pytest.raises(ev.GraphError, match=r"fuel .*expected an integer of 1 or more"):
            stone()


def test_a_stone_refuses_settings_of_another_kind() -> None:
    """A wrong setting is an error of evflow, raised where the stone is made."""
    for stone in (
        lambda: ev.Queue("1", inputs=[Rec]),  # type: ignore[arg-type]
        lambda: ev.Storage(1, path=5),  # type: ignore[arg-type]
        lambda: ev.Generator("1", output=Rec, period="1 s"),  # type: ignore[arg-type]
        lambda: ev.Generator("1", output=Rec, period=float("inf")),
    ):
        with pytest.raises(ev.GraphError, match="expected"):
            stone()


@pytest.mark.parametrize("column", [1, 40, 300, 590])
def test_a_long_line_is_shown_around_the_place(column: int) -> None:
    """Of a line of 600 characters the error shows 100, and the caret is under the place."""
    text = ("x" * (column - 1) + "!").ljust(600, "y")
    error = str(ev.CodeError("wrong", text, 1, column))
    _, shown, caret = error.splitlines()
    assert len(shown) < 120
    assert shown[caret.index("^")] == "!"
