"""Looking at several nodes, of which some are dead or say nonsense, and the tables of what was seen."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from evflow.errors import LinkError
from evflow.tools.watch.diagnosis import Probe
from evflow.tools.watch.status import NodeStatus
from evflow.tools.watch.survey import Rate, Watcher, rates
from evflow.tools.watch.view import status_data, status_text
from tests.watch.fake import FakeClient, deployment, link, nobody, place, says, status, stone, survey


def refused(contact: str) -> Probe:
    return Probe("refused", f"{contact} refuses connections")


def rows(text: str) -> dict[str, list[str]]:
    """The tables by their first column; of two rows that begin alike the first."""
    lines = [line.split() for line in click.unstyle(text).splitlines() if line.strip()]
    return {cells[0]: cells[1:] for cells in reversed(lines)}


def test_status_is_read_with_its_stones_links_and_deployments() -> None:
    read = NodeStatus.parse(status())
    assert (read.node, read.pid, read.memory) == ("edge", 4711, 120_000_000)
    assert (read.stones["trades/high"].taken, read.stones["trades/high"].dropped) == (1000, 600)
    assert read.links["office"].bandwidth == 1.5e6
    assert read.deployments["trades"].members == {"edge": "alive", "office": "alive"}


def test_status_of_an_older_or_newer_node_is_read_too() -> None:
    assert NodeStatus.parse({"node": "edge"}).stones == {}
    assert NodeStatus.parse(status(moons=2)).node == "edge"


@pytest.mark.parametrize(
    "said",
    [
        None, [], {}, {"node": 7}, {"node": "edge", "pid": "x"}, {"node": "edge", "load": float("nan")},
        {"node": "edge", "load": float("inf")}, {"node": "edge", "stones": []}, {"node": "edge", "pid": True},
        {"node": "edge", "stones": {"a/b": 7}}, {"node": "edge", "links": {"office": {}}},
        {"node": "edge", "stones": {"a/b": {"attributes": {"x": []}}}}, {"node": "edge", "handlers": "all"},
        {"node": "edge", "deployments": {"a": {"graph": 7}}}, {"node": "edge", "refused": {7: 7}},
    ],
)  # fmt: skip
def test_status_that_is_none_is_refused_with_what_was_found(said: Any) -> None:
    with pytest.raises(LinkError, match=r"status: .*xpected .*another version|status: Object missing"):
        NodeStatus.parse(said)


def test_node_that_cannot_be_asked_is_told_and_the_others_are_seen() -> None:
    with Watcher([nobody(), place(says(status()))], probe=refused, here="desk") as watcher:
        seen = watcher.look()
    assert list(seen.alive) == ["edge"]
    (trouble,) = seen.troubles()
    assert trouble.kind == "refused connection"
    assert trouble.what.startswith("this command on desk dials office at tcp://127.0.0.1:1: ")


def test_connection_is_kept_until_it_fails_and_made_anew() -> None:
    opened: list[FakeClient] = []
    broken = False

    def ask() -> Any:
        if broken:
            raise LinkError("no answer")
        return status()

    def opener() -> FakeClient:
        opened.append(FakeClient({"status": ask}))
        return opened[-1]

    where = place(says(status()))
    with Watcher([type(where)(where.name, where.contact, opener)], probe=refused) as watcher:
        assert watcher.look().alive and watcher.look().alive
        assert len(opened) == 1
        broken = True
        assert not watcher.look().alive
        assert opened[0].closed
        broken = False
        assert watcher.look().alive
        assert len(opened) == 2
    assert opened[1].closed


def test_node_that_says_nonsense_is_a_trouble_and_no_end() -> None:
    with Watcher([place(FakeClient({"status": lambda: "hello"}))], probe=lambda c: Probe("answers", "")) as w:
        (trouble,) = w.look().troubles()
    assert "status: Expected `object`, got `str`" in trouble.what


def test_newest_version_of_a_deployment_is_the_one_shown() -> None:
    old, new = status(), status("office", deployments={"trades": deployment(version=4, changing="move high")})
    assert survey(old, new).deployments()["trades"].version == 4
    assert survey(new, old).deployments()["trades"].changing == "move high"


def test_dead_member_is_a_trouble_once_though_all_nodes_tell() -> None:
    told = {"trades": deployment(members={"edge": "alive", "office": "dead for 7 s"})}
    (trouble,) = survey(status(deployments=told), status("lab", deployments=told)).troubles()
    assert trouble.what == "deployment trades: node office at tcp://10.0.0.3:7000 is dead for 7 s"


def test_visitor_who_has_gone_is_no_trouble_and_not_shown() -> None:
    gone = link("down", trouble="the peer has ended: node desk-77 has ended", contact="")
    seen = survey(status(links={"desk-77": gone, "desk-78": link(contact="")}))
    assert seen.troubles() == []
    text = status_text(seen)
    assert "desk-77" not in text and "edge → desk-78" in text


def test_link_that_this_node_has_ended_itself_is_no_trouble() -> None:
    assert survey(status(links={"office": link("down")})).troubles() == []
    (trouble,) = survey(status(links={"office": link("down", waiting=3)})).troubles()
    assert trouble.what.endswith("down")


def test_peer_that_is_gone_and_has_not_handled_everything_is_a_trouble() -> None:
    gone = link("down", trouble="the peer has ended: node lab has ended", contact="", waiting=3)
    (trouble,) = survey(status(links={"lab": gone})).troubles()
    assert trouble.kind == "ended"


def test_deployment_that_does_not_run_on_a_node_is_a_trouble_of_that_node() -> None:
    bad = status(
        "office", deployments={"trades": deployment(trouble="handler 'alerts:show'\ncannot be imported")}
    )
    (trouble,) = survey(status(), bad).troubles()
    assert trouble.what == (
        "deployment trades does not run on node office: handler 'alerts:show' cannot be imported"
    )


# Tables


def test_tables_show_nodes_links_and_stones() -> None:
    text = status_text(survey(status()))
    table = rows(text)
    assert table["edge"][:3] == ["lab1", "tcp://10.0.0.2:7000", "alive"]
    assert "1 d 2 h" in text and "120 MB" in text
    assert table["trades/high"] == ["filter", "edge", "1,000", "400", "600", "0.25", "s"]
    assert "0.42 ms" in text and "1.5 MB/s" in text
    assert "trouble\n" not in text


def test_seldom_counts_and_notes_of_stones_are_shown_where_there_are_any() -> None:
    quiet = status(stones={"t/a": stone()})
    assert "queued" not in status_text(survey(quiet))
    loud = status(stones={"t/a": stone(queued=7, frozen=True, attributes={"limit": 5})})
    assert rows(status_text(survey(loud)))["t/a"][-2:] == ["frozen", "limit=5"]


def test_trouble_stands_beneath_the_tables_with_what_to_check() -> None:
    bad = link("down", trouble="no answer from tcp://10.0.0.3:7000")
    text = status_text(survey(status(links={"office": bad})))
    assert "node edge on lab1 dials office at tcp://10.0.0.3:7000: no answer" in text
    assert text.index("trades/high") < text.index("1 trouble\n") < text.index("  check: ")


def test_unreachable_node_is_a_row_with_the_kind_of_trouble() -> None:
    with Watcher([nobody()], probe=refused) as watcher:
        seen = watcher.look()
    assert rows(status_text(seen))["office"] == ["tcp://127.0.0.1:1", "refused", "connection"]


def test_texts_of_nodes_cannot_move_the_cursor() -> None:
    text = status_text(
        survey(status(host="lab\x1b[2J\nroot", links={"x\ry": link("down", trouble="\x1b[1m")}))
    )
    assert "\x1b[2J" not in text and "\r" not in text and "\nroot" not in text
    assert "\x1b[1m" not in click.unstyle(text)


def test_json_holds_the_answers_as_they_came_and_the_troubles() -> None:
    with Watcher([place(says(status(new="thing"))), nobody()], probe=refused) as watcher:
        data = json.loads(json.dumps(status_data(watcher.look())))
    assert data["nodes"][0]["status"]["new"] == "thing"
    assert data["nodes"][1]["status"] is None
    assert data["nodes"][1]["trouble"]["kind"] == "refused connection"
    assert len(data["troubles"]) == 1


# Rates


def later(**counts: Any) -> dict[str, Any]:
    high = stone(**{"in": 1500, "out": 500, "dropped": 1000, "busy": 1.25, **counts})
    return status(uptime=93786.0, stones={"trades/high": high})


def test_rates_are_differences_a_second() -> None:
    found = rates(survey(status(), at=10.0), survey(later(), at=12.0))
    assert found == {("edge", "trades/high"): Rate(taken=250.0, left=50.0, lost=200.0, busy=0.5)}


def test_rates_need_two_looks_and_time_between() -> None:
    assert rates(None, survey(status())) == {}
    assert rates(survey(status(), at=5.0), survey(status(), at=5.0)) == {}


def test_node_that_began_anew_has_no_rates_yet() -> None:
    anew = later() | {"pid": 4712, "uptime": 1.0}
    assert rates(survey(status()), survey(anew, at=102.0)) == {}


def test_stone_that_counts_anew_has_the_rate_since_then() -> None:
    found = rates(survey(status()), survey(later(**{"in": 10, "out": 4, "dropped": 6}), at=102.0))
    assert found["edge", "trades/high"] == Rate(5.0, 2.0, 3.0, 0.625)
