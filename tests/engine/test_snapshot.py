"""A stone taken as bytes and restored in another engine goes on as if it had never moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.engine.snapshot import restore, take
from evflow.events.attributes import Attributes
from evflow.stone import Acting, Actor, Checkpoint, Context, Held, Stone
from tests.engine.rig import Rec, Rig, Word, keep
from tests.examples import tried

COUNTING = "static int n = 0; static double sum = 0.5; n = n + 1; sum = sum + input.seq; return n % 3 == 0;"
WINDOW = """{
    static int sent = 0;
    if (count(a) + count(b) > 4) {
        sent = sent + 1;
        out.seq = sent * 1000 + count(a);
        submit(0, out);
        if (count(a) > 0) { submit(1, a[0]); discard(a, 0); }
        if (count(b) > 0) { discard(b, 0); }
    }
}"""

STONES: dict[str, Callable[[], Stone]] = {
    "filter": lambda: ev.Filter(COUNTING, name="x", input=Rec),
    "router": lambda: ev.Router("static bool odd = 0; odd = !odd; return odd;", name="x", input=Rec),
    "transform": lambda: ev.Transform(
        "static int n = 7; n = n * 3; output.seq = n; return 1;", output=Rec, input=Rec, name="x"
    ),
    "storage": lambda: ev.Storage(5, name="x"),
    "queue": lambda: ev.Queue(WINDOW, inputs={"a": Rec, "b": Word}, outputs={"out": Rec}, name="x", limit=50),
    "split": lambda: ev.Split(name="x"),
}


def rig_of(stone: Stone, seen: list[Any]) -> Rig:
    g = ev.Graph()
    x = g.source("recs") >> stone
    note = {
        Rec: lambda e: seen.append((0, e.seq, e.attrs)),
        Word: lambda e: seen.append((0, e.text, e.attrs)),
    }
    x >> ev.Terminal(note, name="end")
    if stone.kind in ("router", "queue"):
        x[1] >> ev.Terminal(lambda e: seen.append((1, e.seq, e.attrs)), name="other")
    return Rig(g)


def batches(random: Random) -> list[ev.EventBatch]:
    made = []
    for _ in range(random.randrange(12)):
        count = random.randrange(1, 6)
        if random.random() < 0.7:
            batch = ev.EventBatch.from_columns(Rec, {"seq": [random.randrange(100) for _ in range(count)]})
        else:
            batch = ev.EventBatch.from_events([Word("w" * random.randrange(9)) for _ in range(count)])
        if random.random() < 0.4:
            rows = [random.choice([None, {"k": random.randrange(9)}, {"t": "x"}]) for _ in range(count)]
            batch = batch.with_attributes(Attributes.from_rows(rows))
        if random.random() < 0.3:
            batch = batch.select(list(range(0, count, 2)))  # type: ignore[arg-type]
        made.append(batch)
    return made


def run(rig: Rig, listed: list[ev.EventBatch], random: Random) -> None:
    slot = rig.slot("x")
    for batch in listed:
        if random.random() < 0.2:
            (rig.engine.unfreeze if slot.frozen else rig.engine.freeze)(slot)
        if random.random() < 0.1:
            slot.attributes["n"] = random.choice([3, 2.5, "text"])
        rig.engine.submit(rig.slot("recs"), batch)
        rig.engine.run()


@pytest.mark.parametrize("kind", STONES)
@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=tried(25), deadline=None)
def test_a_stone_that_moves_behaves_as_one_that_never_moved(kind: str, seed: int) -> None:
    """The same events before and after, with and without a move between them."""
    random = Random(seed)
    before, after = batches(random), batches(random)
    stayed: list[Any] = []
    moved: list[Any] = []
    still, first, second = (rig_of(STONES[kind](), into) for into in (stayed, moved, moved))
    for rig in (still, first):
        run(rig, before, Random(seed))
    data = take(first.engine, first.slot("x"))
    assert take(first.engine, first.slot("x")) == data
    restore(second.engine, second.slot("x"), data)
    assert second.slot("x").queued == still.slot("x").queued
    for rig in (still, second):
        run(rig, after, Random(seed + 1))
        rig.engine.unfreeze(rig.slot("x"))
        rig.engine.run()
        for batch in rig.engine.extract(rig.slot("x")):
            rig.engine.submit(rig.slot("end"), batch)
        rig.engine.run()
    # There is no order between two paths.
    for port in (0, 1):
        assert [one for one in moved if one[0] == port] == [one for one in stayed if one[0] == port]
    one, other = still.slot("x"), second.slot("x")
    assert other.counts == one.counts
    assert (other.attributes, other.unmatched) == (one.attributes, one.unmatched)


def test_a_file_holds_exactly_what_the_snapshot_did(tmp_path: Path) -> None:
    """Whatever was in the file where the stone goes is not its own."""
    seen: list[Any] = []
    first, second = (rig_of(ev.Storage(9, path=tmp_path / f"{n}.db", name="x"), seen) for n in (1, 2))
    first.send("recs", 1, 2, 3)
    second.send("recs", 7)
    first.engine.send_stored(first.slot("x"), 1)
    first.engine.run()
    restore(second.engine, second.slot("x"), take(first.engine, first.slot("x")))
    second.engine.close()
    again = rig_of(ev.Storage(9, path=tmp_path / "2.db", name="x"), seen)
    assert [e.seq for batch in again.engine.extract(again.slot("x")) for e in batch] == [2, 3]
    for rig in (first, again):
        rig.engine.close()


def test_a_generator_goes_on_with_its_number_and_the_rest_of_its_period() -> None:
    seen: list[int] = []

    def rig() -> Rig:
        g = ev.Graph()
        code = "static int n = 0; n = n + 10; output.seq = input.count + n; return 1;"
        g.add(ev.Generator(code, output=Rec, period=10, name="x")) >> ev.Terminal(keep(seen), name="end")
        return Rig(g)

    first, second = rig(), rig()
    for now in (0, 10, 14):
        first.engine.tick(now, 0.0)
        first.engine.run()
    restore(second.engine, second.slot("x"), take(first.engine, first.slot("x")))
    for now in (100, 105.9, 106):
        second.engine.tick(now, 0.0)
        second.engine.run()
    assert seen == [10, 21]


def test_statics_of_another_layout_begin_anew() -> None:
    seen: list[Any] = []
    first = rig_of(ev.Filter("static int n = 0; n = n + 1; return n > 2;", name="x", input=Rec), seen)
    first.send("recs", 1, 2, 3)
    data = take(first.engine, first.slot("x"))
    for code, found in (
        ("static int n = 0; n = n + 1; return n > 2 ;", [4]),
        ("static int m = 0; m = m + 1; return m > 2;", []),
        ("static double n = 0; n = n + 1; return n > 2;", []),
        ("static int n[500] = {0}; n[499] = n[499] + 1; return n[499] > 2;", []),
    ):
        seen.clear()
        other = rig_of(ev.Filter(code, name="x", input=Rec), seen)
        restore(other.engine, other.slot("x"), data)
        other.send("recs", 4)
        assert [seq for _, seq, _ in seen] == found


def test_what_another_kind_cannot_hold_arrives_there() -> None:
    """A stone may be replaced while it moves; then what it held comes as events."""
    seen: list[Any] = []
    first = rig_of(ev.Storage(9, name="x"), seen)
    first.send("recs", 1, 2, 3)
    data = take(first.engine, first.slot("x"))
    other = rig_of(ev.Filter("input.seq != 2", name="x", input=Rec), seen)
    restore(other.engine, other.slot("x"), data)
    other.engine.run()
    assert [seq for _, seq, _ in seen] == [1, 3]
    assert other.slot("x").counts == [3, 2, 1, 0]
    seen.clear()
    small = rig_of(ev.Queue("{ int n = 0; }", inputs={"a": Rec}, limit=2, name="x"), seen)
    restore(small.engine, small.slot("x"), data)
    small.engine.run()
    assert small.slot("x").queued == 2
    assert [(stone, seq) for stone, seq, _ in small.letters()] == [("x", 3)]


class Holding(Acting):
    kind = "terminal"
    linked_ports = "none"

    def emits(self, schema: object) -> tuple[None, ...]:
        return ()

    def open(self, context: Context) -> Actor:
        return _Holding(context)


class _Holding(Actor):
    queued = 3
    told: Any = None

    def receive(self, batch: ev.EventBatch, input: str) -> None: ...

    def checkpoint(self) -> Any:
        return super().checkpoint() if self.told is None else self.told

    def restore(self, checkpoint: Checkpoint) -> bool:
        self.restored = checkpoint
        return True


def test_a_stone_that_cannot_tell_what_it_holds_cannot_be_taken() -> None:
    g = ev.Graph()
    g.source("recs", Rec) >> Holding(name="x")
    rig = Rig(g)
    with pytest.raises(ev.FlowError, match=r"'x' .*holds 3 events and tells 0: its actor needs a checkpoint"):
        take(rig.engine, rig.slot("x"))


THREE = ev.EventBatch.from_columns(Rec, {"seq": [1, 2, 3], "source": [0, 0, 0]})


@pytest.mark.parametrize(
    "told",
    [
        3,
        Checkpoint(state=np.zeros(3, np.int64)),
        Checkpoint(state=b"abc"),
        Checkpoint(layout=3),
        Checkpoint(held=[Held("", THREE)]),
        Checkpoint(held=(("", THREE, None),)),
        Checkpoint(held=(Held(None, THREE),)),
        Checkpoint(held=(Held("", [1, 2, 3]),)),
        Checkpoint(held=(Held("", THREE, [0, 1, 2]),)),
        *(
            Checkpoint(held=(Held("", THREE, np.array(numbers)),))
            for numbers in ([0, 1], [0.0, 1.0, 2.0], [[0], [1], [2]], ["a", "b", "c"], [0, 2, 1], [0, 1, 1])
        ),
        *(
            Checkpoint(held=(Held("", THREE, np.array(numbers)),))
            for numbers in ([-1, 0, 1], [0, 1, 1 << 62], [0, 1, 1 << 63], [0, 1, None])
        ),
    ],
    ids=range(19),
)
def test_what_an_actor_gives_instead_of_a_checkpoint_is_named(told: Any) -> None:
    g = ev.Graph()
    g.source("recs", Rec) >> Holding(name="x")
    rig = Rig(g)
    actor = rig.slot("x").actor
    assert isinstance(actor, _Holding)
    actor.told = told
    with pytest.raises(ev.FlowError, match=r"'x': checkpoint\(\): expected a Checkpoint.* found "):
        take(rig.engine, rig.slot("x"))


def test_what_an_actor_holds_may_be_numbered_up_to_the_last_number_and_empty_at_an_input() -> None:
    g = ev.Graph()
    g.source("recs", Rec) >> Holding(name="x")
    rig, other = Rig(g), Rig(g)
    actor, copy = rig.slot("x").actor, other.slot("x").actor
    assert isinstance(actor, _Holding) and isinstance(copy, _Holding)
    numbers = np.array([0, 5, (1 << 62) - 1])
    actor.told = Checkpoint(held=(Held("", THREE[:0]), Held("b", THREE, numbers), Held("c", THREE[:0])))
    restore(other.engine, other.slot("x"), take(rig.engine, rig.slot("x")))
    (held,) = copy.restored.held
    assert held.input == "b" and list(held.batch) == list(THREE)
    assert held.numbers is not None and held.numbers.tolist() == numbers.tolist()


def test_what_is_no_attribute_stays_behind() -> None:
    rig = rig_of(ev.Split(name="x"), [])
    kept = {"i": 3, "f": 0.5, "t": "é"}
    rig.slot("x").attributes.update({**kept, "l": [], "big": 1 << 70, "bad": "\udc80"})  # type: ignore[dict-item]
    other = rig_of(ev.Split(name="x"), [])
    restore(other.engine, other.slot("x"), take(rig.engine, rig.slot("x")))
    assert other.slot("x").attributes == kept


def full(kind: str) -> bytes:
    rig = rig_of(STONES[kind](), [])
    rig.slot("x").attributes["k"] = 1
    rig.send("recs", 1, 2, 3)
    rig.engine.submit(rig.slot("recs"), ev.EventBatch.from_events([Word("a")]).with_attributes(
        Attributes.from_rows([{"k": 2}])
    ))  # fmt: skip
    rig.engine.run()
    rig.engine.freeze(rig.slot("x"))
    rig.send("recs", 4)
    return take(rig.engine, rig.slot("x"))


def state_of(rig: Rig) -> tuple[Any, ...]:
    slot = rig.slot("x")
    return (
        list(slot.counts), slot.unmatched, slot.busy, slot.frozen, slot.attributes, slot.state,
        slot.queued, rig.engine.rhythm(slot),
    )  # fmt: skip


def refused_or_sound(kind: str, data: bytes) -> None:
    """Either it is an error and nothing has changed, or the stone works."""
    rig = rig_of(STONES[kind](), [])
    before = state_of(rig)
    try:
        restore(rig.engine, rig.slot("x"), data)
    except ev.FlowError as error:
        assert "snapshot of stone 'x'" in str(error)
        assert state_of(rig) == before
        return
    rig.engine.unfreeze(rig.slot("x"))
    rig.engine.run()
    rig.send("recs", 5, 6)
    rig.engine.extract(rig.slot("x"))


@pytest.mark.parametrize("kind", ["filter", "storage", "queue"])
@given(data=st.data())
@settings(max_examples=tried(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_malformed_bytes_are_refused_and_change_nothing(kind: str, data: st.DataObject) -> None:
    """Bytes changed, cut and put in; and values of the map replaced by others."""
    whole = full(kind)
    how = data.draw(st.sampled_from(["bytes", "cut", "value", "row"]))
    if how == "bytes":
        at, byte = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
        whole = whole[:at] + bytes([byte]) + whole[at + 1 :]
    elif how == "cut":
        whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        end = 4 + int.from_bytes(whole[:4], "big")
        content, events = msgpack.unpackb(whole[4:end]), whole[end:]
        odd = st.one_of(
            st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 64) - 1), st.floats(),
            st.text(max_size=3), st.binary(max_size=20), st.lists(st.integers(-1, 9), max_size=6),
            st.dictionaries(st.text(max_size=3), st.lists(st.integers(), max_size=3), max_size=2),
        )  # fmt: skip
        if how == "value":
            content[data.draw(st.sampled_from(sorted(content)))] = data.draw(odd)
        else:
            rows = content[data.draw(st.sampled_from(["parked", "held"]))]
            if rows:
                row = rows[data.draw(st.integers(0, len(rows) - 1))]
                row[data.draw(st.integers(0, 6))] = data.draw(odd)
        try:
            told = msgpack.packb(content)
        except (ValueError, OverflowError):
            return
        whole = len(told).to_bytes(4, "big") + told + events
    refused_or_sound(kind, whole)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0\1",
        b"\0\0\0\1\xc0",
        b"\0\0\0\1\x80",
        b"\0\0\0\x0a\x81\xa7version\x03",
        b"\0\0\0\5\xdd\xff\xff\xff\xff",
        b"\xff\xff\xff\xff",
    ],
)
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    rig = rig_of(ev.Split(name="x"), [])
    with pytest.raises(ev.FlowError, match="snapshot of stone 'x': expected"):
        restore(rig.engine, rig.slot("x"), data)


def test_many_single_events_are_told_in_few_pieces() -> None:
    """Events that came one by one to a frozen stone cost no more than batches."""
    rig = rig_of(ev.Filter("1", name="x", input=Rec), [])
    rig.engine.freeze(rig.slot("x"))
    batch = ev.EventBatch.from_columns(Rec, {"seq": list(range(2000))})
    for position in range(2000):
        rig.engine.submit(rig.slot("recs"), batch.slice(position, position + 1))
    rig.engine.run()
    assert len(rig.slot("x").parked) < 300
    assert [e.seq for _, part in rig.slot("x").parked for e in part] == list(range(2000))
    assert rig.slot("x").parked_bytes == batch.nbytes
