from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

import pytest

import evflow as ev
from evflow.deploy.hosts import Hosts
from evflow.errors import DeployError
from evflow.graph.draw import Picture
from evflow.tools.watch.live import chosen, picture
from evflow.tools.watch.placement import placement_problems, placement_table
from tests.watch.fake import Trade, deployment, status, stone, survey, trades

pytest.importorskip("pygraphviz")


def texts(drawn: Picture) -> list[str]:
    return [t.replace("\xa0", " ").strip() for t in ElementTree.fromstring(drawn.svg).itertext() if t.strip()]


def office(**given: object) -> dict[str, object]:
    stones = {"trades/show": stone("terminal", **{"in": 400})}
    return status("office", host="lab2", pid=99, stones=stones, links={}, **given)


def test_picture_has_nodes_as_frames_with_counts_and_rates() -> None:
    high = stone(**{"in": 3000, "out": 900, "dropped": 2100})
    later = status(uptime=93786.0, stones={"trades/trades": stone("source"), "trades/high": high})
    shown = texts(picture(survey(status(), office()), survey(later, office(), at=102.0), "trades"))
    assert "edge · lab1 · tcp://10.0.0.2:7000" in shown
    assert "office · lab2 · tcp://10.0.0.3:7000" in shown
    assert "3,000 in 900 out" in [" ".join(text.split()) for text in shown]
    assert "1,000/s in 250/s out" in [" ".join(text.split()) for text in shown]
    assert "idle" in shown


def test_handlers_are_named_though_this_host_has_no_such_module() -> None:
    assert "show" in texts(picture(None, survey(status()), "trades"))
    assert "alerts_of_the_office" not in sys.modules


def test_dead_and_unasked_nodes_are_told_in_their_frames() -> None:
    dead = {"trades": deployment(members={"edge": "alive", "office": "dead for 7 s"})}
    shown = texts(picture(None, survey(status(deployments=dead)), "trades"))
    assert "office · tcp://10.0.0.3:7000 · dead for 7 s" in shown
    shown = texts(picture(None, survey(status()), "trades"))
    assert "office · tcp://10.0.0.3:7000 · not asked, or no answer" in shown


def test_frozen_stones_and_attributes_are_noted() -> None:
    stones = {"trades/high": stone(frozen=True, queued=7, attributes={"limit": 5})}
    shown = texts(picture(None, survey(status(stones=stones)), "trades"))
    assert "frozen limit=5" in shown
    assert "7 queued" in shown


def test_only_deployment_is_chosen_and_of_several_one_has_to_be_named() -> None:
    assert chosen(survey(status())) == "trades"
    two = survey(status(deployments={"a": deployment(), "b": deployment(), "gone": deployment(graph=None)}))
    assert chosen(two, "b") == "b"
    with pytest.raises(DeployError, match="several deployments: there are a, b; say which with --deployment"):
        chosen(two)
    with pytest.raises(DeployError, match="'gone': there are a, b"):
        chosen(two, "gone")
    with pytest.raises(DeployError, match="nothing is deployed on the nodes that were asked"):
        chosen(survey(status(deployments={})))
    with pytest.raises(DeployError, match="'trades': no node that answers has any"):
        chosen(survey(status(deployments={})), "trades")


@pytest.mark.parametrize("graph", [{}, {"name": "x", "stones": 7, "links": []}])
def test_graph_that_cannot_be_read_is_told(graph: dict[str, object]) -> None:
    with pytest.raises(ev.EvflowError, match="graph data is malformed"):
        picture(None, survey(status(deployments={"trades": deployment(graph=graph)})), "trades")


# Where a graph would be placed

HOSTS = Hosts({"edge": "tcp://10.0.0.2:7000", "office": "tcp://10.0.0.3:7000"})


def test_placement_tells_stones_neighbours_and_modules() -> None:
    assert placement_problems(trades(), HOSTS) == []
    lines = placement_table(trades(), HOSTS).splitlines()
    assert lines[1].split() == [
        "edge", "tcp://10.0.0.2:7000", "3", "1", "bridge,", "1", "filter,", "1", "source", "office", "–"
    ]  # fmt: skip
    assert lines[2].split() == [
        "office",
        "tcp://10.0.0.3:7000",
        "1",
        "1",
        "terminal",
        "–",
        "alerts_of_the_office",
    ]
    assert "alerts_of_the_office" not in sys.modules


def test_handler_of_the_graphs_own_file_is_a_problem() -> None:
    g = trades()
    g["high"] >> ev.Terminal("evflow_program:show", name="own", on="office")
    (problem,) = placement_problems(g, HOSTS)
    assert problem.startswith("stone 'own' (terminal): handler show is defined in the graph's own file")


def test_everything_that_keeps_a_graph_from_hosts_is_told_at_once() -> None:
    g = ev.Graph("bad")
    source = g.source("in", Trade, on="moon")
    (
        source
        >> ev.Filter("input.prize > 1", name="high")
        >> ev.Terminal(lambda event: None, name="end", on="edge")
    )
    problems = "\n".join(placement_problems(g, HOSTS))
    assert "stone 'in' (source) is placed on 'moon', which is none of the hosts edge, office" in problems
    assert "stone 'high' (filter) is placed on no host" in problems
    assert "prize" in problems
    assert "cannot be named as 'module:function'" in problems
