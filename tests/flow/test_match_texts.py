"""Texts as ids of a match stone: a dict says what it has to say, over changes, restarts and moves."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random
from typing import Any

import pytest

import evflow as ev
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.matcher import Matcher
from evflow.stones.matching.asked import Asked, Known
from evflow.stones.matching.book import Book
from evflow.stones.matching.ledger import Entry, Forgotten, Ledger, Moved, unpack
from tests.examples import tried
from tests.flow.alerts import Change, Flight, flight, found, match, matching, submit

Named = ev.NamedSubscriptionChange

WORDS = ["a", "b", "50", "é𝄞", "x" * 255]
OWN: dict[str | int, str] = {"a": "v == 0", "mine": "v == 1 and within(0, 0, 1)", 60: "v == 2"}
EVENTS = {
    "v": [v for v in range(3) for _ in range(4)],
    "x": [float(x) for x in range(4)] * 3,
    "y": [0.0] * 12,
}


def book(names: list[str | int], ledger: Ledger | None) -> Book:
    """A book of a graph with these of ``OWN``, in this order."""
    matcher = Matcher("reference")
    numbers = [60 if name == 60 else place for place, name in enumerate(names)]
    texts = [None if name == 60 else str(name) for name in names]
    matcher.subscribe_many([OWN[name] for name in names], numbers, texts=texts)
    return Book(matcher, {}, 100, ledger, Asked("match", Known([], []), ("x", "y")))


def matched(of: Book) -> list[set[str | int]]:
    matches = of.matcher.match_batch(EVENTS)
    listed = [matches[n].tolist() for n in range(len(matches))]
    return [{t or n for n, t in zip(ids, of.matcher.texts(ids), strict=True)} for ids in listed]


@pytest.mark.parametrize("seed", range(tried(2)))
def test_a_book_and_its_file_say_what_a_dict_says(seed: int, tmp_path: Path) -> None:
    random, names = Random(seed), list(OWN)
    now = book(names, Ledger(tmp_path / "kept"))
    # Of each subscription: its value of v (None: any), and where its area is (None: it has none).
    held: dict[str | int, tuple[int, float | None]] = {"a": (0, None), "mine": (1, 0.0), 60: (2, None)}

    def wanted() -> list[set[str | int]]:
        rows = zip(EVENTS["v"], EVENTS["x"], strict=True)
        return [
            {k for k, (value, at) in held.items() if value == v and (at is None or abs(x - at) <= 1)}
            for v, x in rows
        ]

    for step in range(60):
        kind = random.choice([str, int])
        known = [key for key in held if isinstance(key, kind)]
        free = [key for key in ([*WORDS, "mine"] if kind is str else [50, 60, 70]) if key not in held]
        some: list[Any] = random.sample(known, random.randint(0, len(known)))
        given = [(random.randrange(3), random.choice([None, 0.0, 3.0])) for _ in WORDS]
        match random.choice(["add", "put", "remove", "move", "again"]):
            case "add" if free:
                some = random.sample(free, random.randint(1, len(free)))
                now.add(columns(given[: len(some)]), some, 0)
                held |= dict(zip(some, given, strict=False))
            case "put":
                some = [*some, *free[:1]][: len(given)]
                now.put(columns(given[: len(some)]), some, [0] * len(some))
                held |= dict(zip(some, given, strict=False))
            case "remove":
                now.remove(some)
                held = {key: one for key, one in held.items() if key not in some}
            case "move":
                some = [key for key in some if held[key][1] is not None]
                now.move(some, [2.0] * len(some), 0.0)
                held |= {key: (held[key][0], 2.0) for key in some}
            case _:
                # The same graph in another order gives its texts other integers.
                random.shuffle(names)
                packed = now.pack() or b""
                elsewhere = book(names, None)
                elsewhere.overlay(*unpack(packed))
                assert matched(elsewhere) == wanted()
                now.close()
                now = book(names, Ledger(tmp_path / "kept"))
        assert matched(now) == wanted(), step
        assert len(now.matcher) == len(held)
    # What comes and goes leaves nothing behind.
    entries, moves = unpack(now.pack() or b"")
    assert {entry.text or entry.id for entry in entries} <= {*OWN, *held, 50, 70}
    assert {move.text or move.id for move in moves} <= set(held)
    now.close()


def columns(given: list[tuple[int, float | None]]) -> FilterColumns:
    return FilterColumns.from_subscriptions(
        [f"v == {v}" + ("" if at is None else f" and within({at}, 0, 1)") for v, at in given]
    )


def test_a_file_without_texts_is_that_of_before(tmp_path: Path) -> None:
    with_texts = [Entry(0, 0, None, "a"), Entry(1, 2, b"x", "b")]
    plain = [Entry(0, 1, b"x"), Entry(5, 0, None)]
    moves = [Moved(0, -1, 1.0, 2.0, None), Moved(1, 2, 1.0, 2.0, 3.0, "b")]
    ledger = Ledger(tmp_path / "kept")
    # Rows as an evflow without texts wrote them.
    ledger.change([[0, 1, b"x"], [5, 0, None], [0, -1, 1.0, 2.0, None]])
    assert ledger.read() == (plain, moves[:1])
    told = "930192 930001c40178 930500c0 91 9500ff cb3ff0000000000000 cb4000000000000000 c0"
    assert ledger.pack() == bytes.fromhex(told)
    ledger.subscribed([*with_texts, Entry(9, 0, b"x", "gone"), Forgotten("gone")])
    ledger.moved([moves[1]])
    ledger.close()
    again = Ledger(tmp_path / "kept")
    assert again.read() == ([plain[0], *with_texts, plain[1]], moves)
    again.close()


def test_a_text_that_is_gone_from_the_graph_and_was_moved_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = book(["mine"], Ledger(tmp_path / "kept"))
    now.move(["mine"], 3.0, 0.0)
    now.close()
    with caplog.at_level(logging.WARNING, "evflow.matching"):
        again = book(["a"], Ledger(tmp_path / "kept"))
    assert "subscription 'mine': its area was moved, and is no longer there" in caplog.text
    again.close()
    back = book(["a", "mine"], Ledger(tmp_path / "kept"))
    assert [n for n, ids in enumerate(matched(back)) if "mine" in ids] == [6, 7]
    # Somebody else's integer is not taken from a text.
    back.close()
    taken = book([60], Ledger(tmp_path / "other"))
    taken.add(columns([(0, None)]), [0], 0)
    taken.close()
    with pytest.raises(ev.FlowError, match="does not fit it any more: id 0 is that of 'a'"):
        book(["a"], Ledger(tmp_path / "other"))


def test_a_stone_takes_texts_wherever_it_takes_ids(tmp_path: Path) -> None:
    own = {"subscription": "number == 1", "id": "home/1", "port": 0}
    with matching(own, "number == 2", path=tmp_path / "kept", lookup=True) as (flow, seen):
        alerts: Any = flow["alerts"]
        assert alerts.subscribe("number == 3 and within(0, 0, 1)", id="taxi-7") == 2
        assert alerts.subscribe_many(["number == 3", "number == 4"], ids=["b", "7"]).tolist() == [3, 4]
        assert alerts.subscribe("number == 4", id=7) == 7
        assert alerts.texts([0, 1, 2, 7]) == ["home/1", None, "taxi-7", None]
        assert sorted(alerts.texts()) == ["7", "b", "home/1", "taxi-7"]
        alerts.move("taxi-7", 5.0, 0.0)
        alerts.move_many(["taxi-7"], 6.0, 0.0)
        assert str(alerts.subscription("taxi-7")) == "number == 3 and within(6, 0, 1)"
        assert [id for id, _ in alerts.items()] == [0, 1, 2, 3, 4, 7]
        assert alerts.texts(alerts.find(around=(6, 0))) == ["taxi-7"]
        assert alerts.explain(flight(3, x=6), "taxi-7").holds
        assert [told.id for told in alerts.explain(flight(4))] == ["7", 7]
        alerts.unsubscribe("home/1")
        alerts.unsubscribe_many(["b"])
        submit(flow, flight(1), flight(2), flight(3), flight(3, x=6), flight(4))
        assert found(seen) == [(2, [1]), (3, [2]), (4, [4, 7])]
        with pytest.raises(ev.SubscriptionError, match="'b'"):
            alerts.subscription("b")
    with matching(own, "number == 2", path=tmp_path / "kept") as (flow, seen):
        submit(flow, flight(1), flight(2), flight(3), flight(3, x=6), flight(4))
        assert found(seen) == [(2, [1]), (3, [2]), (4, [4, 7])]
        assert sorted(flow["alerts"].texts()) == ["7", "taxi-7"]


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([""], "id '': expected 1 to 255 bytes of UTF-8, found 0"),
        (["é" * 128], "expected 1 to 255 bytes of UTF-8, found 256"),
        (["x", "x"], "id 'x' stands twice"),
        (["used"], "id 'used' is in use"),
        (["x", 3], "expected texts or whole numbers, not both, found 3"),
        (["x", "y", "z"], "2 subscriptions and 3 ids"),
        ([b"x"], "ids: expected whole numbers"),
    ],
)
def test_a_wrong_text_changes_nothing(ids: list[Any], said: str, tmp_path: Path) -> None:
    with matching(path=tmp_path / "kept") as (flow, _):
        alerts: Any = flow["alerts"]
        alerts.subscribe("number == 1", id="used")
        with pytest.raises(ev.SubscriptionError, match=said):
            alerts.subscribe_many(["number == 2"] * min(len(ids), 2), ids=ids)
        for call in (alerts.unsubscribe, alerts.subscription, lambda id: alerts.move(id, 1.0, 1.0)):
            with pytest.raises(ev.SubscriptionError, match="there is no subscription 'x'"):
                call("x")
        with pytest.raises(ev.SubscriptionError, match="stands twice"):
            alerts.unsubscribe_many(["used", "used"])
        assert alerts.statistics().subscriptions == 1


@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("", "number 1: id ''"),
        ("x" * 256, "number 1: id 'xxx.* found 256"),
        ("a", "number 1: id 'a' is in use already"),
        (1.5, "expected a whole number from 0 on"),
    ],
)
def test_a_wrong_text_of_the_graph_names_its_place(id: object, said: str) -> None:
    both = [{"subscription": "number == 1", "id": one} for one in ("a", id)]
    with pytest.raises(ev.SubscriptionError, match=said):
        match(both).check()


def test_limit_bounds_texts() -> None:
    with matching(limit=2) as (flow, _):
        alerts = flow["alerts"]
        alerts.subscribe_many(["number == 1"] * 2, ids=["a", "b"])
        with pytest.raises(ev.SubscriptionError, match="id 2: expected 0 to 1; limit="):
            alerts.subscribe("number == 1", id="c")
        flow["changes"].submit(Change.subscribe(0, "number == 2"))
        flow.drain()
        assert [letter.reason for letter in flow.dead_letters()] == ["id 0 is that of 'a'; choose another"]
        assert alerts.texts() == ["a", "b"]


def test_changes_by_texts_come_over_a_bridge_and_the_other_node_asks_for_texts() -> None:
    seen: list[Any] = []
    far, near = ev.Graph("far"), ev.Graph("near")
    with far.on("there"):
        alerts = far.source("events", Flight) >> match(["number == 0"])
        far.source("changes", Change, Named) >> alerts
        alerts >> ev.Terminal(lambda event: seen.append(event.to_event()))
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    with near.on("here"):
        near.source("wishes", Change, Named) >> ev.Bridge(there.contact, "changes")
    with far.run(node=there) as flow, near.run(node=ev.Node("here")) as asking:
        asking["wishes"].submit(Named.subscribe("taxi-7", "number == 1 and within(0, 0, 1)"))
        asking["wishes"].submit(Change.subscribe(7, "number == 1"))
        asking["wishes"].submit_batch(
            [Named.subscribe("b", "number == 1"), Named.subscribe("b", "number == 2")]
        )
        asking["wishes"].submit(Named.move("taxi-7", 5.0, 0.0))
        wrong = [
            Named.subscribe("", "number == 1"),
            Named.subscribe("x" * 256, "number == 1"),
            Named.unsubscribe("taxi-8"),
        ]
        asking["wishes"].submit_batch(wrong)
        asking.drain(timeout=20)
        submit(flow, flight(1), flight(1, x=5), flight(2))
        assert found(seen) == [(1, [7]), (1, [1, 7]), (2, [2])]
        question = {"texts": [0, 1, 2, 7]}
        assert asking.ask(there.contact, "alerts", question, 20) == [None, "taxi-7", "b", None]
        for asked in ({}, {"texts": ["b"]}, {"texts": [[1]]}, {"texts": [True]}, {"texts": [1], "x": 1}):
            with pytest.raises(ev.FlowError, match=r"expected \{'texts': "):
                asking.ask(there.contact, "alerts", asked, 20)
        reasons = [letter.reason for letter in flow.dead_letters()]
        assert ["expected 1 to 255 bytes" in reason for reason in reasons] == [True, True, False]
        assert reasons[2] == "there is no subscription 'taxi-8'"
