"""What a match stone keeps: the file says what the matcher does, and bytes that are wrong are refused."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.engine.snapshot import restore, take
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.matcher import Matcher
from evflow.stones.matching.asked import Asked, Known
from evflow.stones.matching.book import Book
from evflow.stones.matching.ledger import Entry, Ledger, Moved, unpack
from evflow.stones.matching.packing import pack
from evflow.stones.matching.packing import unpack as unpack_columns

OWN = ["kind == 1", "within(0, 0, 1)", "kind == 2 and within(0, 0, 1) or within(2, 2, 1)"]
TEXTS = [*OWN, "exists kind", "within(1, 1, 0.5) or kind == 3 or within(3, 0, 0)", "true", "false"]
EVENTS = {
    "kind": [kind for kind in range(4) for _ in range(16)],
    "x": [float(x) for _ in range(16) for x in range(4)],
    "y": [float(y) for _ in range(4) for y in range(4) for _ in range(4)],
}

ids = st.integers(0, 5)
places = st.integers(0, 3).map(float)
changes = st.one_of(
    st.tuples(st.just("put"), ids, st.sampled_from(TEXTS), st.integers(0, 3)),
    st.tuples(st.just("remove"), ids),
    st.tuples(st.just("move"), ids, places, places, st.none() | places, st.none() | st.integers(0, 2)),
)


def own() -> Matcher:
    matcher = Matcher("reference")
    matcher.subscribe_many(OWN)
    return matcher


def asked() -> Asked:
    return Asked("match", Known([], []), ("x", "y"))


def matched(book: Book) -> list[list[int]]:
    matches = book.matcher.match_batch(EVENTS)
    return [sorted(matches[n].tolist()) for n in range(len(matches))]


def make(book: Book, change: tuple[Any, ...]) -> None:
    match change:
        case ("put", id, text, port):
            book.put(FilterColumns.from_subscriptions([text]), [id], [port])
        case ("remove", id):
            book.remove([id])
        case ("move", id, x, y, radius, filter):
            book.move(
                [id], [x], [y], None if radius is None else [radius], None if filter is None else [filter]
            )


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(changes, max_size=12))
def test_a_file_holds_what_any_changes_have_led_to(given_changes: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kept"
        book = Book(own(), {1: 9}, 100, Ledger(path), asked())
        for change in given_changes:
            try:
                make(book, change)
            except ev.SubscriptionError:
                continue
        packed = book.pack()
        book.close()
        again = Book(own(), {1: 9}, 100, Ledger(path), asked())
        moved = Ledger(Path(folder) / "elsewhere")
        moved.take(*unpack(packed or b""))
        elsewhere = Book(own(), {1: 9}, 100, moved, asked())
        for other in (again, elsewhere):
            assert matched(other) == matched(book)
            known = np.array([id for id in range(6) if id in book.matcher], np.int32)
            assert len(other.matcher) == len(book.matcher) == len(known)
            assert other.ports_of(known)[known].tolist() == book.ports_of(known)[known].tolist()
            assert other.pack() == packed
            other.close()


@given(st.lists(st.sampled_from(TEXTS)), st.sampled_from(["plane", "globe"]))
def test_packed_subscriptions_are_the_same(texts: list[str], space: str) -> None:
    placed = [text.replace("1)", "1 m)").replace("0)", "0 m)").replace("5)", "5 m)") for text in texts]
    columns = FilterColumns.from_subscriptions(texts if space == "plane" else placed)
    made = unpack_columns(pack(columns, space), space)
    assert made.to_subscriptions() == columns.to_subscriptions()


PLAIN = [0, 0, msgpack.packb([[None, "a", 0, 1.0]])]
NAMED = [*PLAIN, "a"]
MALFORMED: list[Any] = [
    b"",
    b"\xc1",
    msgpack.packb([2, [], []]),
    msgpack.packb([1, []]),
    msgpack.packb([1, [[0, 0]], []]),
    msgpack.packb([1, [["0", 0, None]], []]),
    msgpack.packb([1, [[1 << 31, 0, None]], []]),
    msgpack.packb([1, [[0, -1, None]], []]),
    msgpack.packb([1, [], [[0, -1, 1.0, float("nan"), None]]]),
    msgpack.packb([1, [], [[0, -2, 1.0, 1.0, None]]]),
    *(msgpack.packb([1, [[*PLAIN, text]], []]) for text in ("", "x" * 256, "é" * 200, 7, b"x")),
    msgpack.packb([1, [NAMED, NAMED], []]),
    msgpack.packb([1, [["a"]], []]),
    msgpack.packb([1, [], [[0, -1, 1.0, 1.0, None, ""]]]),
    *(
        msgpack.packb([1, [[0, 0, piece]], []])
        for piece in (
            b"",
            b"\x01",
            msgpack.packb([[None, "a", 0]]),
            msgpack.packb([[None, "a", 99, 1.0]]),
            msgpack.packb([[None, "a", -1, 1.0]]),
            msgpack.packb([[None, 5, 0, 1.0]]),
            msgpack.packb([[None, "a", 6, 1.0]]),
            msgpack.packb([[None, "", 0, 1.0]]),
            msgpack.packb([[[1.0, 2.0]]]),
            msgpack.packb([[[1.0, 2.0, -3.0]]]),
            msgpack.packb([[[1.0, 2.0, 3.0, "m"]]]),
            msgpack.packb([[["a", 2.0, 3.0]]]),
            msgpack.packb([[]]),
        )
    ),
]


def unpacked(snapshot: bytes) -> dict[str, Any]:
    """The map of a snapshot without events."""
    content: dict[str, Any] = msgpack.unpackb(snapshot[4:])
    return content


def packed(content: dict[str, Any]) -> bytes:
    """A snapshot without events."""
    told = msgpack.packb(content)
    return len(told).to_bytes(4, "big") + bytes(told)


@pytest.mark.parametrize("number", range(len(MALFORMED)))
def test_a_snapshot_that_is_malformed_changes_nothing(number: int, tmp_path: Path) -> None:
    class Rec(ev.Event):
        kind: int
        x: float = 0.0
        y: float = 0.0

    g = ev.Graph()
    (
        g.source("recs", Rec)
        >> ev.Match(OWN, engine="reference", path=tmp_path / "kept", name="m")
        >> ev.Terminal(print)
    )
    with g.run() as flow:
        slot = flow.engine.topology.slots["m"]
        flow["m"].subscribe("kind == 7")
        content = unpacked(flow.call(lambda: take(flow.engine, slot)) or b"")
        good = dict(content)
        assert unpack(content["state"])[0][0].id == 3
        content["state"] = MALFORMED[number]
        with pytest.raises(ev.FlowError):
            flow.call(lambda: restore(flow.engine, slot, packed(content)))
        assert unpacked(flow.call(lambda: take(flow.engine, slot)) or b"")["state"] == good["state"]
        content["state"] = msgpack.packb([1, [PLAIN, [2, 0, None]], []])
        flow.call(lambda: restore(flow.engine, slot, packed(content)))
        assert flow["m"].statistics().subscriptions == 2


def test_a_file_that_was_begun_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    (tmp_path / "kept.new").write_bytes(b"what a kill has left")
    ledger = Ledger(path)
    assert (ledger.read(), path.exists()) == (([], []), False)
    ledger.moved([Moved(3, -1, 1.0, 2.0, None)])
    ledger.subscribed([Entry(4, 1, b"x")])
    ledger.close()
    with closing(Ledger(path)) as ledger:
        assert ledger.read() == ([Entry(4, 1, b"x")], [Moved(3, -1, 1.0, 2.0, None)])
    assert np.all([not name.name.endswith(".new") for name in tmp_path.iterdir()])


def test_a_ledger_that_takes_nothing_forgets_what_was_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    ledger.subscribed([Entry(1, 0, None)])
    ledger.take([], [])
    ledger.close()
    again = Ledger(path)
    assert again.read() == ([], [])
    again.subscribed([Entry(2, 0, None)])
    assert again.read() == ([Entry(2, 0, None)], [])
    again.close()
