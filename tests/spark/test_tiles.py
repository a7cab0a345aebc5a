from __future__ import annotations

import math
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.errors import SparkError, SubscriptionError
from evflow.matching import FilterColumns
from evflow.spark.matching import broadcast
from evflow.spark.matching.bounds import Boxes, boxes_of, places_of
from evflow.spark.matching.broadcast import Opened, prepare_worker
from evflow.spark.matching.join import Broadcast, Pairs, Shape
from evflow.spark.matching.layout import Layout, layout_for
from evflow.spark.matching.options import Settings
from evflow.spark.matching.subscriptions import Form, Piece, chosen, pieces_of, read_piece, touched
from evflow.spark.matching.tiled import KEY, PIECE, Spread, Tiled
from evflow.spark.matching.tiles import tiles_for
from tests.examples import tried
from tests.spark.oracle import in_circle, on_globe, pairs, text

AREAS = Form(False, ("x", "y", "radius"), False, "plane", "id")
TEXTS = Form(True, (), False, "plane", "id")
PLANE = Settings("reference", "plane", ("x", "y"), ())

numbers = st.floats(-1e3, 1e3, width=32)
latitudes = st.one_of(st.sampled_from([-90.0, 90.0, 0.0, 89.999, -89.999]), st.floats(-90, 90))
longitudes = st.one_of(st.sampled_from([-180.0, 180.0, 179.9999, 540.0]), st.floats(-400, 400))


def areas(rows: Sequence[tuple[float, float, float]]) -> Boxes:
    return boxes_of("plane", *(np.array([row[i] for row in rows], np.float64) for i in range(3)))


def none() -> Boxes:
    return areas([])


@given(numbers, numbers, st.floats(0, 1e3, width=32), st.floats(0, 2 * math.pi), st.floats(-1e-6, 1e-6))
def test_box_on_the_plane_holds_what_is_in_the_area(
    x: float, y: float, radius: float, angle: float, off: float
) -> None:
    event = {
        "x": x + radius * math.cos(angle) * (1 + off),
        "y": y + radius * math.sin(angle) * (1 + off),
    }
    if in_circle(event, x, y, radius):
        box, place = areas([(x, y, radius)]), places_of("plane", [event["x"]], [event["y"]])
        assert (box.low <= place).all() and (place <= box.high).all()


@given(latitudes, longitudes, st.floats(0, 2.1e7), latitudes, longitudes, st.floats(0, 1))
def test_box_on_the_globe_holds_what_is_in_the_area(
    latitude: float, longitude: float, radius: float, other: float, around: float, near: float
) -> None:
    # From the centre some of the way to a place anywhere.
    event = {
        "latitude": latitude + (other - latitude) * near,
        "longitude": longitude + (around - longitude) * near,
    }
    place = places_of("globe", [event["latitude"]], [event["longitude"]])
    boxes = boxes_of("globe", np.array([latitude]), np.array([longitude]), np.array([radius]))
    if on_globe(event, latitude, longitude, radius):
        assert ((boxes.low <= place) & (place <= boxes.high)).all(axis=1).any()


def test_box_at_a_pole_is_all_around_it_and_one_at_the_antimeridian_is_two() -> None:
    boxes = boxes_of("globe", np.array([89.5, 10.0]), np.array([30.0, -179.9]), np.array([2e5, 1e5]))
    assert boxes.of.tolist() == [0, 1, 1]
    assert (boxes.low[0, 1], boxes.high[0, 1]) == (-180, 180)
    assert boxes.high[1, 1] < 0 < boxes.low[2, 1]
    assert boxes.low[1, 1] == -180 and boxes.high[2, 1] == 180


@settings(max_examples=tried(60))
@given(
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=60),
    st.lists(st.tuples(numbers, numbers, st.floats(0, 300, width=32)), max_size=20),
    st.integers(1, 10),
)
def test_place_is_in_a_tile_that_every_box_around_it_touches(
    places: list[tuple[float, float]], circles: list[tuple[float, float, float]], most: int
) -> None:
    points, boxes = places_of("plane", *np.array(places).T), areas(circles)
    # Made for half of it: the other half may be anywhere.
    tiles = tiles_for("plane", points[::2], boxes, most_places=most, most_boxes=most)
    held, (which, tile) = tiles.holding(points), tiles.touching(boxes)
    assert ((held >= 0) & (held < len(tiles))).all()
    touching = set(zip(which.tolist(), tile.tolist(), strict=True))
    assert len(touching) == len(which)
    for number, place in enumerate(points):
        around = np.flatnonzero(((boxes.low <= place) & (place <= boxes.high)).all(axis=1))
        assert {(int(box), int(held[number])) for box in around} <= touching


def test_crowded_place_gets_small_tiles_and_one_that_cannot_be_divided_several_groups() -> None:
    random = np.random.default_rng(1)
    even, crowd = random.random((500, 2)) * 1000, random.normal(500, 0.01, (500, 2))
    tiles = tiles_for("plane", np.concatenate([even, crowd]), none(), most_places=50, most_boxes=1)
    held = np.bincount(tiles.holding(np.concatenate([even, crowd])), minlength=len(tiles))
    assert held.max() <= 50
    same = np.full((800, 2), 7.0)
    layout = layout_for(
        "plane", np.concatenate([same, even]), none(), partitions=4, most_boxes=10, most_wide=0
    )
    shares = layout.shares[layout.tiles.holding(same[:1])[0]]
    assert shares > 1
    keys = layout.of_events("plane", same[:, 0], same[:, 1], np.arange(800))
    assert len(np.unique(keys)) == shares
    assert np.bincount(keys >> 32, minlength=4).max() < 800


def test_places_that_are_nowhere_have_no_tile() -> None:
    plane = places_of("plane", np.array([1.0, np.nan, np.inf, 1e39]), np.zeros(4))
    globe = places_of("globe", np.array([90.0, 90.1, np.nan]), np.array([1e300, 0.0, 0.0]))
    tiles = tiles_for("plane", plane, none(), most_places=1, most_boxes=1)
    assert tiles.holding(plane).tolist() == [0, -1, -1, -1]
    assert np.isnan(globe[:, 0]).tolist() == [False, True, True]


def test_tiles_of_nothing_are_one() -> None:
    tiles = tiles_for("plane", np.zeros((0, 2)), none(), most_places=1, most_boxes=1)
    assert len(tiles) == 1
    assert tiles.holding(np.array([[5.0, -5.0]])).tolist() == [0]
    assert tiles.touching(areas([(0, 0, 1e38)]))[1].tolist() == [0]


wishes = st.lists(
    st.lists(
        st.lists(
            st.one_of(
                st.tuples(st.just("within"), numbers, numbers, st.floats(0, 1e3, width=32)),
                st.tuples(st.just("delay"), st.sampled_from(["==", ">", "<="]), st.integers(0, 3)),
                st.tuples(st.just("carrier"), st.just("=="), st.sampled_from(["UA", "AA"])),
            ),
            min_size=1,
            max_size=2,
            unique_by=lambda part: part[0],
        ),
        min_size=1,
        max_size=2,
    ),
    max_size=12,
)
events = st.lists(
    st.fixed_dictionaries(
        {
            "x": st.one_of(st.none(), numbers),
            "y": numbers,
            "delay": st.one_of(st.none(), st.integers(0, 3)),
            "carrier": st.sampled_from([None, "UA", "AA"]),
        }
    ),
    max_size=30,
)


def found_by_tiles(rows: list[dict[str, Any]], table: pa.Table, layout: Layout, limit: int) -> Iterator[Any]:
    """What tasks find that get the rows of their partition in order."""
    batch = pa.RecordBatch.from_pylist(
        rows,
        pa.schema({"id": "int64", "x": "float64", "y": "float64", "delay": "int64", "carrier": "string"}),
    )
    places = [batch[name].fill_null(np.nan).to_numpy(zero_copy_only=False) for name in ("x", "y")]
    keys = layout.of_events("plane", *places, np.arange(len(rows)))
    parts = list(Spread(TEXTS, layout)(iter(table.to_batches())))
    sides = pa.concat_tables(
        [
            pa.Table.from_batches([batch]).append_column(KEY, pa.array(keys, pa.int64())),
            *(pa.Table.from_batches([part]) for part in parts),
        ],
        promote_options="default",
    )
    sides = sides if PIECE in sides.column_names else sides.append_column(PIECE, pa.nulls(len(sides)))
    shape = Shape(("id",), ("carrier", "delay", "x", "y"), "int64")
    sides = sides.select([KEY, PIECE, *shape.names]).sort_by(KEY)
    sides = sides.rename_columns([KEY, PIECE, *map(shape.column, shape.names)])
    task = Tiled(shape, PLANE, None, limit)
    for partition in range(layout.partitions):
        mine = sides.filter(pa.array(sides[KEY].to_numpy() >> 32 == partition))
        for made in task(iter(mine.to_batches(max_chunksize=7))):
            yield from zip(made["id"].to_pylist(), made["subscription"].to_pylist(), strict=True)


@settings(max_examples=tried(30), deadline=None)
@given(events, wishes, st.integers(1, 4), st.integers(0, 3))
def test_tasks_of_tiles_find_what_brute_force_does(
    rows: list[dict[str, Any]], wanted: list[Any], partitions: int, wide: int
) -> None:
    rows = [{"id": 7 * number, **row} for number, row in enumerate(rows)]
    named = [(2**62 - number, wish) for number, wish in enumerate(wanted)]
    table = pa.table(
        {
            "id": pa.array([number for number, _ in named], pa.int64()),
            "subscription": pa.array([text(wish) for _, wish in named], pa.string()),
        }
    )
    pieces = list(pieces_of(TEXTS, iter(table.to_batches())))
    boxes = areas([part[1:] for wish in wanted for parts in wish for part in parts if part[0] == "within"])
    points = places_of("plane", [row["x"] or 0 for row in rows], [row["y"] for row in rows])
    layout = layout_for(
        "plane", points.reshape(-1, 2), boxes, partitions=partitions, most_boxes=2, most_wide=wide
    )
    everywhere = [
        int(piece.ids[number])
        for piece in pieces
        for number in touched(piece, layout.tiles, "plane", layout.wide)[2]
    ]
    placed = [(number, wish) for number, wish in named if number not in everywhere]
    found = list(found_by_tiles(rows, table, layout, 10**6))
    assert len(found) == len(set(found))
    assert set(found) == pairs(rows, placed)
    # What may hold without a place is matched beside.
    nowhere = {number for number, wish in named if any(all(p[0] != "within" for p in ps) for ps in wish)}
    assert nowhere <= set(everywhere)


def test_subscriptions_of_a_tile_beyond_the_limit_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows: list[dict[str, Any]] = [{"id": 1, "x": 0.5, "y": 0.5, "delay": 1, "carrier": None}]
    wanted = [(number, [[("within", 0.0, 0.0, number / 2)]]) for number in range(6)]
    texts = [text(wish) for _, wish in wanted]
    # Each batch of a task becomes a piece.
    monkeypatch.setattr("evflow.spark.matching.subscriptions._ROWS", 2)
    table = pa.Table.from_batches(
        pa.record_batch({"id": range(at, at + 2), "subscription": texts[at : at + 2]}) for at in (0, 2, 4)
    )
    layout = layout_for("plane", np.zeros((1, 2)), none(), partitions=1, most_boxes=9, most_wide=0)
    found = []
    for made in found_by_tiles(rows, table, layout, 100):
        found.append(made)
        assert len(list(tmp_path.glob("*/*"))) == 3
    assert set(found) == pairs(rows, wanted) and len(found) == 4
    assert not list(tmp_path.iterdir())


def test_task_refuses_rows_out_of_order() -> None:
    batch = pa.record_batch({KEY: [3, 1], PIECE: pa.nulls(2, pa.binary()), "id": [1, 2]})
    with pytest.raises(SparkError, match="in no order"):
        list(Tiled(Shape(("id",), (), "int64"), PLANE, None, 1)(iter([batch])))


@given(wishes.filter(bool), st.data())
def test_piece_travels_whole_and_in_part(wanted: list[Any], data: st.DataObject) -> None:
    ids = np.arange(len(wanted)) - 5
    columns = FilterColumns.from_subscriptions([text(wish) for wish in wanted])
    there = pickle.loads(pickle.dumps(Piece(columns, ids)))
    assert there.ids.tolist() == ids.tolist()
    said = [str(subscription) for subscription in columns.to_subscriptions()]
    assert [str(subscription) for subscription in there.columns.to_subscriptions()] == said
    which = sorted(data.draw(st.sets(st.integers(0, len(wanted) - 1))))
    part = chosen(there, np.array(which, np.int64))
    part.columns.check()
    assert part.ids.tolist() == [int(ids[number]) for number in which]
    assert [str(subscription) for subscription in part.columns.to_subscriptions()] == [said[n] for n in which]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"x": [1.0, None], "y": [1.0, 2.0], "radius": [1.0, 1.0]}, "subscription -3: .* null, y 2.0"),
        ({"x": [1.0, math.nan], "y": [1.0, 2.0], "radius": [1.0, 1.0]}, "subscription -3: its area is x nan"),
        ({"x": [1.0, 2.0], "y": [1.0, 2.0], "radius": [1.0, -1.0]}, "subscription -3: its radius is -1.0"),
        ({"x": [1.0, 1e39], "y": [1.0, 2.0], "radius": [1.0, 1.0]}, "subscription -3: its x is 1e"),
    ],
)
def test_malformed_area_is_named_by_the_id_of_its_subscription(
    columns: dict[str, Any], expected: str
) -> None:
    table = pa.table({"id": [4, -3], **columns})
    with pytest.raises(SubscriptionError, match=expected):
        read_piece(AREAS, table)


def test_malformed_constraint_and_text_are_named_by_id_and_place() -> None:
    rows = [{"name": "a", "op": ">", "number": 1.0}], [{"name": "a", "op": "~", "number": 1.0}]
    table = pa.table({"id": [1, 2], "constraints": list(rows)})
    with pytest.raises(SubscriptionError, match=r"subscription 2: constraint 0: .*'~'"):
        read_piece(Form(False, (), True, "plane", "id"), table)
    batch = pa.record_batch({"id": [8, 9], "subscription": ["a > 1", "a > 1 and b ="]})
    with pytest.raises(SubscriptionError) as caught:
        list(pieces_of(TEXTS, iter([batch])))
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.message.startswith("subscription 9: ") and str(error) == str(caught.value)
    assert (error.source, error.line) == ("a > 1 and b =", 1) and error.column > 10


def test_pairs_are_made_in_slices_however_many_an_event_makes() -> None:
    matcher = PLANE.matcher()
    matcher.subscribe_many(["true"] * 2000)
    index = Opened(matcher, np.arange(2000) + 10)
    batch = pa.record_batch({"c0": np.arange(600)})
    made = list(Pairs(Shape(("id",), (), "int16")).of(batch, [index]))
    assert sum(part.num_rows for part in made) == 600 * 2000
    assert max(part.num_rows for part in made) <= 400_000
    assert made[0].schema.field("subscription").type == pa.int16()
    assert {part["id"][0].as_py() for part in made} >= {0}


def test_worker_maps_an_index_and_opens_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "_shelf", {})
    monkeypatch.setattr(broadcast, "is_local", lambda spark: True)
    monkeypatch.setattr(broadcast, "session_name", lambda spark: "here")
    piece = Piece(FilterColumns.from_subscriptions(["a > 1"]), np.array([2**60]))
    spark: Any = None
    shipped = broadcast.ship(spark, PLANE, [piece])
    assert broadcast.ship(spark, PLANE, [piece]) is shipped
    task = pickle.loads(pickle.dumps(Broadcast(shipped, Shape(("id",), ("a",), "int64"))))
    assert len(pickle.dumps(task)) < 1000
    index = broadcast.opened(shipped)
    for _ in range(2):
        (made,) = task(iter([pa.record_batch({"c0": [5, 6], "c1": [1, 2]})]))
        assert made.to_pydict() == {"id": [6], "subscription": [2**60]}
        assert broadcast.opened(shipped) is index
    assert shipped.folder in Path("/proc/self/maps").read_text()
    with pytest.raises(SparkError, match="is gone"):
        broadcast.opened(broadcast.Shipped("other", folder="/nowhere"))


def test_what_numba_compiles_is_kept_where_the_package_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prepare_worker()
    assert "NUMBA_CACHE_DIR" not in os.environ
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    prepare_worker()
    kept = tmp_path / f"evflow-numba-{os.getuid()}"
    assert os.environ["NUMBA_CACHE_DIR"] == str(kept) and kept.stat().st_mode & 0o077 == 0
    # A folder that others can write would let them run anything.
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    kept.chmod(0o777)
    prepare_worker()
    assert os.environ["NUMBA_CACHE_DIR"] != str(kept)
    monkeypatch.delenv("NUMBA_CACHE_DIR")


def test_broadcast_finds_the_pairs_of_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    places, centres = random.random((3000, 2)), random.random((30, 2))
    matcher = PLANE.matcher()
    matcher.subscribe_many([f"within({x}, {y}, 0.05)" for x, y in centres])
    monkeypatch.setattr("evflow.spark.matching.join.opened", lambda shipped: Opened(matcher, np.arange(30)))
    batch = pa.record_batch({"c0": np.arange(3000), "c1": places[:, 0], "c2": places[:, 1]})
    parts = [batch.slice(0, 1500), batch.slice(1500, 10), batch.slice(1510)]
    task = Broadcast(broadcast.Shipped("several"), Shape(("id",), ("x", "y"), "int64"))
    made = pa.Table.from_batches(task(iter(parts)))
    distance = np.linalg.norm(places[:, None] - centres[None], axis=2)
    found = set(zip(made["id"].to_pylist(), made["subscription"].to_pylist(), strict=True))
    assert len(found) == len(made) > 0
    assert found == set(zip(*(axis.tolist() for axis in np.nonzero(distance <= 0.05)), strict=True))
