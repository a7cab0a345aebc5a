"""Adopting another topology between two runs: what goes on, what begins anew, what goes where."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

import evflow as ev
from evflow.engine.change import REMOVED, adopt
from evflow.engine.check import check_graph
from evflow.engine.plan import Route, plan_route
from evflow.engine.snapshot import restore, take
from evflow.engine.topology import IN, Slot
from evflow.stone import Acting, Actor, Context, arrivals
from tests.engine.rig import Rec, Rig, Word, keep
from tests.examples import tried

COUNTING = "static int n = 0; n = n + 1; return n > 3;"
JOIN = "{ if (count(a) == 3) { submit(0, a[0]); discard(a, 0); discard(a, 0); discard(a, 0); } }"


def graph(stone: ev.Filter | Acting, seen: list[int]) -> ev.Graph:
    """recs → stone → end."""
    g = ev.Graph()
    g.source("recs", Rec) >> g.add(stone) >> ev.Terminal(keep(seen), name="end")
    return g


def adopted(rig: Rig, g: ev.Graph, moved: frozenset[str] = frozenset()) -> None:
    adopt(rig.engine, check_graph(g), moved)
    rig.engine.run()


def test_a_stone_that_stays_goes_on_as_it_is() -> None:
    """Its statics, counts, attributes and slot are the same, whatever stands beside it."""
    seen: list[int] = []
    g = graph(ev.Filter(COUNTING, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1, 2)
    slot, topology = rig.slot("x"), rig.topology
    slot.attributes["k"] = 5
    g.insert(ev.Filter("input.seq != 4", name="new"), after="recs", before="x")
    adopted(rig, g)
    rig.send("recs", 3, 4, 5, 6)
    assert seen == [5, 6]
    assert rig.topology is topology and rig.slot("x") is slot and slot.attributes == {"k": 5}
    assert slot.counts == [5, 2, 3, 0]


def test_only_what_a_change_touches_is_planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two paths that meet, each keeps its plan while the other is changed."""
    seen: list[int] = []
    g = ev.Graph()
    g.add(ev.Filter("input.seq != 9", name="meet")) >> ev.Terminal(keep(seen), name="end")
    for name in ("one", "two"):
        g.source(name, Rec) >> ev.Filter("input.seq > 0", name=f"first {name}") >> g["meet"]
    rig = Rig(g)
    planned: list[str] = []

    def noting(entry: Slot, *given: Any, **more: Any) -> Route:
        planned.append(entry.name)
        return plan_route(entry, *given, **more)

    monkeypatch.setattr("evflow.engine.engine.plan_route", noting)

    def sent(*seqs: int) -> list[int]:
        planned.clear()
        seen.clear()
        rig.send("one", *seqs)
        rig.send("two", *seqs)
        return seen

    assert sent(0, 1, 9) == [1, 1] and planned == ["one", "two"]
    assert sent(0, 1, 9) == [1, 1] and planned == []
    g.replace("first one", ev.Filter("input.seq > 1"))
    adopted(rig, g)
    assert sent(0, 1, 2, 9) == [2, 1, 2] and planned == ["one"]
    g.insert(ev.Filter("input.seq < 3", name="last"), after="meet", before="end")
    adopted(rig, g)
    assert sent(1, 2, 3, 9) == [2, 1, 2] and planned == ["one", "two"]
    g.remove("meet")
    adopted(rig, g)
    assert sent(1, 2, 3, 9) == [2, 1, 2] and planned == ["one", "two"]


def test_a_replaced_function_begins_anew_and_keeps_its_counts() -> None:
    seen: list[int] = []
    g = graph(ev.Filter(COUNTING, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1, 2)
    rig.slot("x").attributes["k"] = 5
    g.replace("x", ev.Filter(COUNTING + " "))
    adopted(rig, g)
    rig.send("recs", 3, 4, 5, 6)
    assert seen == [6]
    assert rig.slot("x").counts == [6, 1, 5, 0]
    assert rig.slot("x").attributes == {"k": 5}


def test_what_a_replaced_queue_held_arrives_at_the_new_one_first() -> None:
    """The new function sees the events in the order in which they came to the old one."""
    seen: list[int] = []
    inputs = {"a": Rec, "b": Word}
    g = graph(ev.Queue("{ int n = 0; }", inputs=inputs, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1, 2, 3, 4)
    g.replace("x", ev.Queue(JOIN, inputs=inputs))
    adopted(rig, g)
    assert seen == [1]
    rig.send("recs", 5, 6)
    assert seen == [1, 4]
    assert rig.slot("x").counts[IN] == 6


def test_the_order_among_the_inputs_of_a_queue_is_kept() -> None:
    """Events of two inputs are told in the order in which they came."""
    g = ev.Graph()
    queue = g.add(ev.Queue("{ int n = 0; }", inputs={"a": Rec, "b": Rec}, name="x"))
    g.source("left", Rec) >> queue["a"]
    g.source("right", Rec) >> queue["b"]
    queue >> ev.Terminal(print)
    rig = Rig(g)
    for source, seqs in (("left", (1, 2)), ("right", (3,)), ("left", (4,)), ("right", (5, 6))):
        rig.send(source, *seqs)
    actor = rig.slot("x").actor
    assert actor is not None
    told = [(input, [e.seq for e in batch]) for input, batch in arrivals(actor.checkpoint().held)]
    assert told == [("a", [1, 2]), ("b", [3]), ("a", [4]), ("b", [5, 6])]
    assert actor.queued == 6


def test_what_a_stone_held_goes_to_one_of_another_kind() -> None:
    seen: list[int] = []
    g = graph(ev.Storage(10, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1, 2, 3)
    g.replace("x", ev.Filter("input.seq != 2"))
    adopted(rig, g)
    assert seen == [1, 3]
    assert rig.slot("x").counts == [3, 2, 1, 0]


def test_what_the_new_stone_cannot_take_becomes_dead_letters() -> None:
    seen: list[int] = []
    g = graph(ev.Storage(10, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1, 2)
    g.stones["recs"].schemas = ()
    g.replace("x", ev.Filter("1", input=Word))
    adopted(rig, g)
    assert [(stone, seq) for stone, seq, _ in rig.letters()] == [("x", 1), ("x", 2)]
    assert "text" in rig.letters()[0][2]


def test_a_stone_that_has_emitted_and_was_replaced_is_not_told_that_it_is_safe(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []
    g = graph(ev.Storage(1, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1, 2)
    g.replace("x", ev.Filter("1"))
    adopt(rig.engine, check_graph(g))
    assert rig.engine.emitted() == [] and caplog.records == []


def test_a_frozen_stone_that_is_replaced_stays_frozen_and_keeps_the_order() -> None:
    """What it held comes before what it queued while frozen."""
    seen: list[int] = []
    g = graph(ev.Storage(10, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1, 2)
    rig.engine.freeze(rig.slot("x"))
    rig.send("recs", 3)
    g.replace("x", ev.Filter("1"))
    adopted(rig, g)
    assert seen == [] and rig.slot("x").queued == 3
    assert rig.engine.parked_bytes == 3 * (Rec.schema.width or 0)
    rig.engine.unfreeze(rig.slot("x"))
    rig.engine.run()
    assert seen == [1, 2, 3]


def test_a_storage_with_another_limit_holds_on(tmp_path: Path) -> None:
    """Nothing leaves it, and its file is not written anew."""
    for path in (None, tmp_path / "held.db"):
        seen: list[int] = []
        g = graph(ev.Storage(4, path=path, name="x"), seen)
        rig = Rig(g)
        rig.send("recs", 1, 2, 3, 4, 5)
        actor = rig.slot("x").actor
        g.replace("x", ev.Storage(2, path=path))
        adopted(rig, g)
        assert seen == [1] and rig.slot("x").actor is actor
        rig.send("recs", 6)
        assert seen == [1, 2, 3, 4]
        rig.engine.close()


def test_a_storage_moves_its_events_to_another_file(tmp_path: Path) -> None:
    seen: list[int] = []
    g = graph(ev.Storage(9, path=tmp_path / "one.db", name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1, 2)
    g.replace("x", ev.Storage(9, path=tmp_path / "two.db"))
    adopted(rig, g)
    rig.engine.close()
    for name, held in (("one.db", 0), ("two.db", 2)):
        again = Rig(graph(ev.Storage(9, path=tmp_path / name, name="x"), seen))
        assert again.slot("x").queued == held
        again.engine.close()


def test_what_a_removed_stone_holds_becomes_dead_letters() -> None:
    seen: list[int] = []
    g = graph(ev.Storage(10, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1, 2)
    rig.engine.freeze(rig.slot("x"))
    rig.send("recs", 3)
    g.remove("x")
    adopted(rig, g)
    assert rig.letters() == [("x", n, REMOVED) for n in (1, 2, 3)]
    rig.send("recs", 4)
    assert seen == [4]


def test_what_a_stone_holds_that_moved_elsewhere_is_not_given_up() -> None:
    seen: list[int] = []
    g = graph(ev.Storage(10, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1)
    slot = rig.slot("x")
    kept = slot.kept_ever
    assert not slot.has_released(*kept)
    g.remove("x")
    adopted(rig, g, frozenset({"x"}))
    assert rig.letters() == [] and slot.has_released(*kept)


def test_a_file_keeps_what_a_removed_stone_held(tmp_path: Path) -> None:
    seen: list[int] = []
    g = graph(ev.Storage(10, path=tmp_path / "held.db", name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1)
    g.remove("x")
    adopted(rig, g)
    assert rig.letters() == []
    again = Rig(graph(ev.Storage(10, path=tmp_path / "held.db", name="x"), seen))
    assert again.slot("x").queued == 1
    again.engine.close()


def test_a_generator_leaves_out_the_ticks_that_it_missed() -> None:
    seen: list[int] = []
    g = ev.Graph()
    beats = g.add(ev.Generator("output.seq = input.count; return 1;", output=Rec, period=10, name="beats"))
    beats >> ev.Terminal(keep(seen), name="end")
    rig, came = Rig(g), []
    for now in (0, 10, 57, 58, 59.9, 60, 70):
        rig.engine.tick(now, 0.0)
        rig.engine.run()
        came.append(len(seen))
    assert came == [0, 1, 2, 2, 2, 3, 4] and seen == [0, 1, 2, 3]
    assert rig.engine.next_due(70) == 80


def test_a_frozen_generator_does_not_keep_the_flows_thread_awake() -> None:
    g = ev.Graph()
    beats = g.add(ev.Generator("output.seq = input.count; return 1;", output=Rec, period=10, name="beats"))
    beats >> ev.Terminal(lambda event: None, name="end")
    rig = Rig(g)
    rig.engine.tick(0, 0.0)
    rig.engine.freeze(rig.slot("beats"))
    assert rig.engine.next_due(70) == math.inf
    rig.engine.unfreeze(rig.slot("beats"))
    assert rig.engine.next_due(70) == 10


def test_after_a_change_that_failed_the_stones_from_before_tick_and_emit() -> None:
    """It fails when a stone has come that is frozen, and others have been replaced."""

    class Second(dict[str, bytes]):
        """The second that is asked for cannot be read."""

        def __getitem__(self, name: str) -> bytes:
            if self.pop("first", None) is None:
                raise ev.FlowError("it is malformed")
            return super().__getitem__(name)

    def graph(period: float) -> ev.Graph:
        g = ev.Graph()
        code = f"output.seq = input.count * {period}; return 1;"
        g.add(ev.Generator(code, output=Rec, period=period, name="beats")) >> ev.Terminal(print, name="end")
        return g

    wanted = graph(3)
    for name in ("one", "two"):
        (
            wanted.source("recs " + name, Rec)
            >> ev.Filter("1", name=name)
            >> ev.Terminal(print, name="at " + name)
        )
    other = Rig(wanted)
    other.engine.freeze(other.slot("one"))
    frozen = take(other.engine, other.slot("one"))
    rig = Rig(graph(10))
    rig.engine.tick(0, 0.0)
    with pytest.raises(ev.FlowError, match="it is malformed"):
        adopt(rig.engine, check_graph(wanted), snapshots=Second(one=frozen, two=frozen, first=b""))
    rig.engine.next_due(0)
    assert rig.engine.rhythms == [(rig.slot("beats"), 10)]


def test_stones_are_looked_through_once_however_many_are_frozen() -> None:
    class Slots(dict[str, Slot]):
        looked = 0

        def values(self) -> Any:
            self.looked += 1
            return super().values()

    g = ev.Graph()
    recs = g.source("recs", Rec)
    for at in range(20):
        recs >> ev.Terminal(print, name=f"end {at}")
    rig = Rig(g)
    slots = rig.topology.slots = Slots(rig.topology.slots)
    for at in range(20):
        rig.engine.freeze(rig.slot(f"end {at}"))
    rig.send("recs", 1, 2)
    assert rig.engine.parked_bytes == 20 * 2 * (Rec.schema.width or 0)
    assert slots.looked == 1


def test_a_generator_that_stays_keeps_its_rhythm() -> None:
    """Its ticks go on counting, and come when they would have come."""
    seen: list[int] = []
    g = ev.Graph()
    beats = g.add(ev.Generator("output.seq = input.count; return 1;", output=Rec, period=10, name="beats"))
    beats >> ev.Terminal(keep(seen), name="end")
    rig = Rig(g)

    def at(now: float) -> None:
        rig.engine.tick(now, 0.0)
        rig.engine.run()

    at(0), at(10)
    g.insert(ev.Filter("1", name="new"), after="beats", before="end")
    adopted(rig, g)
    at(19.9)
    assert seen == [0]
    at(20)
    g.replace("beats", ev.Generator("output.seq = -input.count; return 1;", output=Rec, period=10))
    adopted(rig, g)
    at(30)
    assert seen == [0, 1, -2]
    g.replace("beats", ev.Generator("output.seq = -input.count; return 1;", output=Rec, period=3))
    adopted(rig, g)
    at(31), at(34)
    assert seen == [0, 1, -2, -3]


class Opened(Acting):
    """A stone whose opening is noted, and may fail."""

    kind = "terminal"
    linked_ports = "none"
    log: ClassVar[list[str]] = []

    def __init__(self, fails: BaseException | None = None, *, number: int = 0, **where: Any) -> None:
        super().__init__(**where)
        self.fails, self.number = fails, number

    def emits(self, schema: object) -> tuple[None, ...]:
        return ()

    def open(self, context: Context) -> Actor:
        if self.fails is not None:
            raise self.fails
        self.log.append(f"open {self.name}")
        return _Noting(context, self.name or "")


class _Noting(Actor):
    def __init__(self, context: Context, name: str) -> None:
        super().__init__(context)
        self._name = name

    def receive(self, batch: ev.EventBatch, input: str) -> None:
        Opened.log.append(f"{self._name} {[e.seq for e in batch]}")

    def close(self) -> None:
        Opened.log.append(f"close {self._name}")


@pytest.mark.parametrize("error", [ev.FlowError("no room"), OSError("no room")])
def test_a_stone_that_cannot_be_opened_leaves_all_as_it_was(error: BaseException) -> None:
    """Those that were opened before it are closed; nothing else has changed."""
    Opened.log = []
    seen: list[int] = []
    g = graph(ev.Filter("1", name="x"), seen)
    g.link("x", Opened(name="kept"))
    rig = Rig(g)
    rig.send("recs", 1)
    before = {name: (slot, slot.stone, slot.actor, slot.ports) for name, slot in rig.topology.slots.items()}
    g.replace("x", ev.Filter("0"))
    g.replace("kept", Opened(number=1))
    g.link("x", Opened(name="first"))
    g.link("x", Opened(error, name="second"))
    with pytest.raises(ev.FlowError, match="no room"):
        adopt(rig.engine, check_graph(g))
    assert Opened.log == ["open kept", "kept [1]", "open kept", "open first", "close first", "close kept"]
    after = {name: (slot, slot.stone, slot.actor, slot.ports) for name, slot in rig.topology.slots.items()}
    assert after == before
    rig.send("recs", 2)
    assert Opened.log[-1] == "kept [2]" and seen == [1, 2]


def test_a_frame_is_held_as_long_as_a_stone_holds_it_in_any_form() -> None:
    """Whoever waits until what a stone kept has left it waits on when the stone is replaced."""
    seen: list[int] = []
    inputs = {"a": Rec}
    g = graph(ev.Queue("{ int n = 0; }", inputs=inputs, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 1, 2)
    slot = rig.slot("x")
    kept = slot.kept_ever
    g.replace("x", ev.Queue("{ int n = 1; }", inputs=inputs))
    adopted(rig, g)
    assert not slot.has_released(*kept)
    rig.engine.freeze(slot)
    g.replace("x", ev.Storage(5))
    adopted(rig, g)
    assert slot.queued == 2 and not slot.has_released(*kept)
    rig.engine.unfreeze(slot)
    rig.engine.run()
    assert slot.queued == 2 and not slot.has_released(*kept)
    rig.engine.send_stored(slot, None)
    rig.engine.run()
    assert seen == [1, 2] and slot.has_released(*kept)


def test_a_frame_is_released_when_the_stone_in_place_of_another_lets_it_go() -> None:
    """Also while that one holds later events."""
    g = graph(ev.Storage(10, name="x"), [])
    rig = Rig(g)
    rig.send("recs", 1, 2, 3)
    slot = rig.slot("x")
    kept = slot.kept_ever
    rig.engine.send_stored(slot, 2)
    g.replace("x", ev.Queue("{ if (count(a) == 3) { discard(a, 0); } }", inputs={"a": Rec}))
    adopted(rig, g)
    rig.send("recs", 4)
    assert slot.queued == 2 and not slot.has_released(*kept)
    rig.send("recs", 5)
    assert slot.queued == 2 and slot.has_released(*kept)


HOLDERS = (
    lambda: ev.Filter("input.seq >= 0", input=Rec),
    lambda: ev.Filter("static int n = 0; n = n + 1; return n > 0;", input=Rec),
    lambda: ev.Storage(3),
    lambda: ev.Storage(7),
    lambda: ev.Queue("{ if (count(a) > 2) { submit(0, a[0]); discard(a, 0); } }", inputs={"a": Rec}),
    lambda: ev.Queue("{ submit(0, a[0]); discard(a, 0); }", inputs={"a": Rec}),
    lambda: ev.Split(),
)


@pytest.mark.parametrize("seed", range(tried(60)))
def test_stones_that_hold_events_are_replaced_and_none_is_lost(seed: int) -> None:
    """Whatever takes whose place, frozen or not, or moves: all events come out, each once and in order."""
    random, seen, sent = Random(seed), list[int](), 0
    g = graph(ev.Storage(5, name="x"), seen)
    rig = Rig(g)
    for _ in range(40):
        slot = rig.slot("x")
        how = random.choice(["send", "send", "replace", "freeze", "move"])
        if how == "send":
            count = random.randrange(1, 5)
            rig.send("recs", *range(sent, sent + count))
            sent += count
        elif how == "freeze":
            (rig.engine.unfreeze if slot.frozen else rig.engine.freeze)(slot)
            rig.engine.run()
        elif how == "move":
            data, g = take(rig.engine, slot), g.copy()
            if random.random() < 0.5:
                g.replace("x", random.choice(HOLDERS)())
            rig = Rig(g)
            restore(rig.engine, rig.slot("x"), data)
            rig.engine.run()
        else:
            g = g.copy()
            g.replace("x", random.choice(HOLDERS)())
            adopted(rig, g)
        assert rig.slot("x").keeps_events == (rig.slot("x").queued > 0)
    rig.engine.unfreeze(rig.slot("x"))
    rig.engine.run()
    left = [event.seq for batch in rig.engine.extract(rig.slot("x")) for event in batch]
    assert seen + left == list(range(sent))
    assert rig.letters() == []


class Fickle(Acting):
    """Becomes another of its class, but fails at what ``fails`` names."""

    def __init__(self, fails: str, *, name: str) -> None:
        super().__init__(name=name)
        self.fails = fails

    def settings(self) -> dict[str, Any]:
        return {"fails": self.fails}

    def open(self, context: Context) -> Actor:
        if self.fails == "open":
            raise ev.FlowError("this one does not open")
        return _Fickle(context, self.fails)


class _Fickle(Actor):
    def __init__(self, context: Context, fails: str) -> None:
        super().__init__(context)
        self._fails = fails

    def receive(self, batch: ev.EventBatch, input: str) -> None:
        self.context.emit(batch)

    def become(self, stone: Any) -> bool:
        if stone.fails == "become":
            raise ZeroDivisionError("on purpose")
        return True

    def close(self) -> None:
        if self._fails == "close":
            raise SystemExit("on purpose")


@pytest.mark.parametrize("step", ["become", "close"])
def test_change_is_undone_and_its_error_told_where_undoing_a_step_of_it_fails(step: str) -> None:
    seen = list[int]()
    g = graph(Fickle("become" if step == "become" else "", name="x"), seen)
    rig, wanted = Rig(g), g.copy()
    before = dict(rig.topology.slots), rig.slot("x").stone, rig.topology.crossings
    wanted.replace("x", Fickle("", name="x"))
    for fails in (step, "open") if step == "close" else ("open",):
        wanted.link("x", Fickle(fails, name=fails))
        wanted.link(fails, ev.Terminal(keep([]), name=f"behind {fails}"))
    with pytest.raises(ev.FlowError, match="this one does not open"):
        adopted(rig, wanted)
    assert (dict(rig.topology.slots), rig.slot("x").stone, rig.topology.crossings) == before
    rig.send("recs", 1)
    assert seen == [1]


def test_a_stone_comes_with_what_it_was_elsewhere() -> None:
    """Before anything that is handed over by the change itself gets to it."""
    there: list[int] = []
    far = Rig(graph(ev.Storage(2, name="held"), there))
    far.send("recs", 1, 2)
    data = take(far.engine, far.slot("held"))
    seen: list[int] = []
    g = graph(ev.Storage(9, name="x"), seen)
    rig = Rig(g)
    rig.send("recs", 3, 4)
    g.replace("x", ev.Filter("1"))
    g.insert(ev.Storage(2, name="held"), after="x", before="end")
    wanted = check_graph(g)
    before = list(rig.topology.slots)
    with pytest.raises(ev.FlowError, match="snapshot of stone 'held'"):
        adopt(rig.engine, wanted, snapshots={"held": data[:-1]})
    assert list(rig.topology.slots) == before and rig.slot("x").queued == 2
    adopt(rig.engine, check_graph(g), snapshots={"held": data})
    assert seen == [1, 2] and rig.slot("held").queued == 2
