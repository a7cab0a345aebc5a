"""Channels between processes that live in one program."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow import echo
from evflow.net.node.keys import generate
from tests.node.processes import wait_for


class Trade(ev.Event):
    symbol: ev.Str[8]
    size: int


class Wide(ev.Event):
    symbol: ev.Str[8]
    size: int
    price: float = 1.5


class Size(ev.Event):
    size: int


class Old(ev.Event):
    cents: int


@pytest.fixture
def two() -> Iterator[tuple[echo.Process, echo.Process]]:
    with echo.Process("desk") as desk, echo.Process("office") as office:
        yield desk, office


Two = tuple[echo.Process, echo.Process]


def sizes(seen: list[int]) -> Any:
    return lambda trade: seen.append(trade.size)


def test_the_stones_are_those_of_figure_9(two: Two) -> None:
    desk, office = two
    trades = desk.create("trades", Trade)
    key = trades.key
    there = office.open(trades.contact)
    assert set(desk.flow.stats()) == {f"{key} upper", f"{key} lower"}
    subscription = there.subscribe(print)
    assert set(desk.flow.stats()) == {f"{key} upper", f"{key} lower", f"{key} → office"}
    links = {(link.source, link.target) for link in desk.keeper.graph.links}
    assert links == {(f"{key} upper", f"{key} lower"), (f"{key} upper", f"{key} → office")}
    bridge = desk.keeper.graph.stones[f"{key} → office"]
    assert (bridge.peer, bridge.stone) == ("office", f"{key} lower")  # type: ignore[attr-defined]
    subscription.close()
    wait_for(lambda: set(desk.flow.stats()) == {f"{key} upper", f"{key} lower"}, "the bridge is gone")


def test_the_stones_of_a_derived_channel_are_those_of_figure_10(two: Two) -> None:
    desk, office = two
    trades = desk.create("trades", Trade)
    big = office.open(trades.contact).derive("big", "input.size > 10")
    for process in two:
        links = {(link.source, link.target) for link in process.keeper.graph.links}
        assert {
            (f"{trades.key} upper", f"{big.key} function"),
            (f"{big.key} function", f"{big.key} upper"),
            (f"{big.key} upper", f"{big.key} lower"),
        } <= links


def test_nothing_published_after_subscribe_has_returned_is_missed(two: Two) -> None:
    desk, office = two
    trades = desk.create("trades", Size)
    there = office.open(trades.contact)
    published, halted = [0], threading.Event()

    def publish() -> None:
        while not halted.wait(0.0002):
            published[0] += 1
            trades.publish(Size(published[0] - 1))

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for _ in range(20):
            seen: list[int] = []
            with there.subscribe(sizes(seen)):
                start = published[0]
                wait_for(lambda: seen and seen[-1] > start + 20, "some events")  # noqa: B023
            since = [number for number in seen if number >= start]
            assert since == list(range(start, start + len(since)))
    finally:
        halted.set()
        thread.join()


def test_several_publish_and_subscribe_in_one_process() -> None:
    with echo.Process() as process:
        trades = process.create("trades", Trade)
        one: list[int] = []
        two: list[int] = []
        trades.subscribe(sizes(one))
        second = trades.subscribe(lambda batch: two.extend(batch["size"].tolist()), batch=True)
        trades.publish(Trade("IBM", 1))
        trades.publish_batch({"symbol": ["A", "B"], "size": [2, 3]})
        process.drain()
        second.close()
        second.close()
        process.open(trades.contact).publish(Trade("IBM", 4))
        process.drain()
        assert (one, two) == ([1, 2, 3, 4], [1, 2, 3])
        assert process.open(trades.contact) is trades


def test_a_handler_may_publish_and_close_its_subscription(two: Two) -> None:
    desk, office = two
    trades, echoes = desk.create("trades", Trade), desk.create("echoes", Size)
    back: list[int] = []
    echoes.subscribe(sizes(back))
    there, answer = office.open(trades.contact), office.open(echoes.contact)
    subscriptions: list[echo.Subscription] = []

    def handle(trade: Any) -> None:
        answer.publish(Size(trade.size))
        if trade.size == 3:
            subscriptions[0].close()

    subscriptions.append(there.subscribe(handle))
    trades.publish_batch({"symbol": ["A"] * 3, "size": [1, 2, 3]})
    wait_for(lambda: back == [1, 2, 3], "the answers")
    wait_for(lambda: not trades.members()[1].subscribed, "the subscription is closed")


def test_a_handler_must_not_wait() -> None:
    problems: list[str] = []

    def handle(trade: Any) -> None:
        for call in (
            lambda: trades.subscribe(print),
            lambda: trades.derive("d", "1"),
            trades.close,
            process.close,
        ):
            with pytest.raises(ev.FlowError) as caught:
                call()
            problems.append(str(caught.value))

    with echo.Process() as process:
        trades = process.create("trades", Trade)
        trades.subscribe(handle)
        trades.publish(Trade("A", 1))
        process.drain()
    assert problems[0] == (
        "a handler cannot subscribe, since it would wait for itself; do it in another thread"
    )
    assert len(problems) == 4


def test_old_and_new_subscribers_get_views_of_what_is_published(two: Two) -> None:
    desk, office = two
    trades = desk.create("trades", Wide)
    there = office.open(trades.contact)
    seen: dict[str, list[Any]] = {"size": [], "all": [], "old": []}
    there.subscribe(sizes(seen["size"]), schema=Size)
    there.subscribe(lambda trade: seen["all"].append((trade.size, trade.price)))
    with pytest.raises(ev.SchemaError, match="field cents"):
        there.subscribe(print, schema=Old)
    there.morph(Wide, Old, "output.cents = input.price * 100; return 1;")
    there.subscribe(lambda trade: seen["old"].append(trade.cents), schema=Old)
    trades.publish(Wide("IBM", 7, 2.5))
    # Of a publisher with an older schema: a default stands in.
    trades.publish(Trade("IBM", 8))
    desk.drain(timeout=10)
    assert seen["size"] == [7, 8]
    assert seen["all"][0] == (7, 2.5)
    assert seen["old"][0] == 250
    assert not office.flow.dead_letters() or len(office.flow.dead_letters()) == 1


def test_publishing_what_does_not_fit_is_refused() -> None:
    with echo.Process() as process:
        trades = process.create("trades", Trade)
        trades.publish(Wide("IBM", 7, 2.5))
        with pytest.raises(ev.SchemaError, match=r"channel 'trades' carries Trade: .*symbol"):
            trades.publish(Size(1))
        with pytest.raises(ev.SchemaError, match="expected an event"):
            trades.publish(7)
        with pytest.raises(ev.SchemaError, match="symbol"):
            trades.publish_batch({"size": [1]})
        with pytest.raises(ev.SchemaError, match="symbol"):
            trades.publish_batch({"size": [1]}, schema=Size)
        anything = process.create("anything")
        anything.publish(Size(1))


def test_derive_refuses_wrong_code_where_it_is_written(two: Two) -> None:
    desk, office = two
    trades = office.open(desk.create("trades", Trade).contact)
    with pytest.raises(ev.CodeError) as caught:
        trades.derive("big", "input.sise > 1")
    assert (caught.value.line, caught.value.column) == (1, 7)
    with pytest.raises(ev.GraphError, match="derived with the code of a filter"):
        trades.derive("big", ev.Split())  # type: ignore[arg-type]
    assert office.channels().keys() == {trades.key}


def test_derived_of_derived_with_a_transform_and_a_python_function(two: Two) -> None:
    desk, office = two
    trades = desk.create("trades", Trade)
    big = office.open(trades.contact).derive("big", lambda input: input.size > 10)
    half = desk.open(office.open(big.contact).contact).derive(
        "half", ev.Transform("output.size = input.size / 2; return 1;", output=Size)
    )
    seen: list[int] = []
    office.open(half.contact).subscribe(sizes(seen))
    trades.publish_batch({"symbol": ["A"] * 4, "size": [4, 40, 8, 80]})
    desk.drain(timeout=10)
    assert seen == [20, 40]
    assert trades.stats()["to"] == big.stats()["to"] == {}
    assert half.stats()["to"]["office"] == {"sent": 2, "waiting": 0, "dropped": 0}


def test_a_derived_channel_stays_while_its_origin_is_open(two: Two) -> None:
    desk, office = two
    trades = desk.create("trades", Trade)
    there = office.open(trades.contact)
    big = there.derive("big", "input.size > 10")
    seen: list[int] = []
    desk.open(big.contact).subscribe(sizes(seen))
    big.close()
    with pytest.raises(ev.FlowError, match="channel 'big' is closed in process office; open it again"):
        big.subscribe(print)
    there.publish(Trade("A", 11))
    office.drain(timeout=10)
    assert seen == [11]
    there.close()
    assert office.flow.stats() == {}
    assert [member.process for member in trades.members()] == ["desk"]


def test_two_channels_of_one_name_are_two_channels(two: Two) -> None:
    desk, office = two
    here, there = desk.create("trades", Trade), office.create("trades", Trade)
    seen: list[int] = []
    there.subscribe(sizes(seen))
    opened = office.open(here.contact)
    assert opened is not there
    here.publish(Trade("A", 1))
    desk.drain(timeout=10)
    assert seen == []
    # The other's contact names its own, so this one goes by its key.
    assert desk.open(opened.contact) is here


def test_a_name_is_taken_once() -> None:
    with echo.Process("desk") as desk:
        trades = desk.create("trades", Trade)
        assert desk.create("trades", Trade) is trades
        wrong = "process desk has a channel of that name open, with limit 67108864 instead"
        with pytest.raises(ev.FlowError, match=wrong):
            desk.create("trades", Trade, limit=32 << 20)
        big = trades.derive("big", "input.size > 1000")
        assert trades.derive("big", "input.size > 1000") is big
        wrong = "of that name open, with derivation filter 'input.size > 1000'.* instead of filter"
        with pytest.raises(ev.FlowError, match=wrong):
            trades.derive("big", "input.size > 2000")
        trades.close()
        trades.close()
        desk.create("trades", Trade)


def test_open_says_what_is_wrong(two: Two) -> None:
    desk, office = two
    trades = desk.create("trades", Trade)
    with pytest.raises(ev.LinkError, match="process desk has no channel 'trade'; it has trades"):
        office.open(trades.contact.replace("trades", "trade"))
    with pytest.raises(ev.LinkError, match="this process, office, has none of that name"):
        office.open(f"{office.contact}/office/trades")
    with pytest.raises(ev.LinkError, match=r"process dusk did not answer at tcp://127\.0\.0\.1:9 \("):
        office.open("tcp://127.0.0.1:9/dusk/trades", timeout=0.2)
    for wrong in ("trades", "tcp://127.0.0.1/desk/trades", "tcp://127.0.0.1:7/desk", 7):
        with pytest.raises(ev.LinkError, match=r"as channel\.contact gives it"):
            office.open(wrong)  # type: ignore[arg-type]
    with pytest.raises(ev.LinkError, match="there are no keys"):
        office.open("tcp://10.1.2.3:7/desk/trades")


@pytest.mark.slow
def test_another_process_at_the_contact_is_not_taken_for_the_one_that_is_meant(two: Two) -> None:
    desk, office = two
    trades = desk.create("trades", Trade)
    with pytest.raises(ev.LinkError, match="process dusk did not answer"):
        office.open(trades.contact.replace("/desk/", "/dusk/"), timeout=0.3)


def test_settings_are_checked() -> None:
    with echo.Process() as process:
        with pytest.raises(ev.LinkError, match="policy cannot be 'drop all'; expected one of block"):
            process.create("c", policy="drop all")
        with pytest.raises(ev.LinkError, match="limit cannot be 7"):
            process.create("c", limit=7)
        with pytest.raises(ev.LinkError, match="name of a channel: expected a text of 1 to 255"):
            process.create("")
    with pytest.raises(ev.FlowError, match="is closed"):
        process.create("c")
    process.close()
    with pytest.raises(ev.GraphError, match="patience -1: expected seconds above 0"):
        echo.Process(patience=-1)
    with ev.Node("b") as node, pytest.raises(ev.LinkError, match="found both"):
        echo.Process("a", node=node)


def test_names_with_slashes_and_accents_can_be_opened() -> None:
    with echo.Process("bureau/café") as desk, echo.Process(node=ev.Node("office")) as office:
        trades = desk.create("a/b é", Trade)
        assert office.open(trades.contact).name == "a/b é"
        assert office.create("c").contact == ""


@pytest.mark.slow
def test_a_slow_subscriber_stalls_nobody(two: Two) -> None:
    desk, office = two
    trades = desk.create("trades", Trade, limit=1 << 16)
    with echo.Process("slow", window=1 << 16) as slow:
        go, seen = threading.Event(), []
        slow.open(trades.contact).subscribe(lambda trade: go.wait(20))
        office.open(trades.contact).subscribe(sizes(seen))
        try:
            for number in range(1, 51):
                trades.publish_batch({"symbol": ["A"] * 1000, "size": np.arange(1000)})
                wait_for(lambda: len(seen) == 1000 * number, "office has all")  # noqa: B023
            assert trades.stats()["to"]["slow"]["dropped"] > 0
        finally:
            go.set()


@pytest.mark.slow
def test_channels_with_keys(tmp_path: Path) -> None:
    for name in ("desk", "office", "thief"):
        generate(tmp_path, name)
    seen: list[int] = []
    with ExitStack() as stack:
        desk = stack.enter_context(echo.Process("desk", keys=tmp_path, allow=["office"]))
        office = stack.enter_context(echo.Process("office", keys=tmp_path))
        thief = stack.enter_context(echo.Process("thief", keys=tmp_path))
        trades = desk.create("trades", Trade)
        office.open(trades.contact).derive("big", "input.size > 1").subscribe(sizes(seen))
        with pytest.raises(ev.LinkError, match="did not answer"):
            thief.open(trades.contact, timeout=0.3)
        trades.publish(Trade("A", 2))
        desk.drain(timeout=10)
        assert seen == [2]


def test_draw_shows_the_stones(two: Two) -> None:
    desk, office = two
    trades = desk.create("trades", Trade)
    office.open(trades.contact).subscribe(print)
    assert "→ office" in desk.draw().svg
    assert repr(desk) == f"<Process desk at {desk.contact}>"
    assert repr(trades) == f"<Channel {trades.key}>"
