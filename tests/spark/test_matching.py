from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from evflow.errors import SparkError, SubscriptionError
from evflow.spark.matching import broadcast, explain, index, match, matches
from tests.matching.drawn_areas import LOCATION, drawn, drawn_events, satisfied
from tests.spark.oracle import Wish, pairs, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

Found = list[tuple[Any, int]]


def found(matches: DataFrame) -> Found:
    columns = matches.toArrow().to_pydict()
    *keys, subscriptions = columns.values()
    ids = keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))
    return sorted(zip(ids, subscriptions, strict=True))


@pytest.fixture(scope="module")
def flights() -> list[dict[str, Any]]:
    """Events most of which crowd at one place, with nulls, and some that are nowhere."""
    random = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []
    for number in range(1500):
        x, y = (7.5, 7.5) if number % 3 else random.random(2) * 100
        if number % 50 == 0:
            x = None
        elif number % 51 == 0:
            y = math.nan
        rows.append(
            {
                "id": number * 10**15 - 1,
                "x": None if x is None else float(x),
                "y": float(y),
                "delay": None if number % 7 == 0 else int(random.integers(0, 100)),
                "carrier": None if number % 11 == 0 else str(random.choice(["UA", "AA", "DL"])),
                "unused": "long" * 10,
            }
        )
    return rows


@pytest.fixture(scope="module")
def wishes() -> list[tuple[int, Wish]]:
    random = np.random.default_rng(6)

    def near(reach: float) -> tuple[Any, ...]:
        x, y = (7.5, 7.5) if random.random() < 0.3 else random.random(2) * 100
        return "within", float(x), float(y), float(random.random() * reach)

    made: list[Callable[[], Wish]] = [
        lambda: [[near(5)]],
        lambda: [[("delay", ">", int(random.integers(50, 100))), near(20)]],
        lambda: [[near(3), ("carrier", "==", "UA")], [near(3)]],
        lambda: [[("carrier", "==", "DL"), ("delay", "==", int(random.integers(0, 100)))]],
        lambda: [[near(300), ("delay", "<=", 1)]],
        lambda: [[("delay", ">", 98)], [near(1)]],
    ]
    ids = random.permutation(180) * 2**50 - 2**56
    return [(int(ids[number]), made[number % len(made)]()) for number in range(180)]


def frames(
    spark: SparkSession, events: list[dict[str, Any]], wishes: list[tuple[int, Wish]]
) -> tuple[DataFrame, DataFrame]:
    """Both sides; some partitions of the events are empty."""
    named = pa.table(
        {"id": [number for number, _ in wishes], "subscription": [text(wish) for _, wish in wishes]}
    )
    rows = spark.createDataFrame(pa.Table.from_pylist(events)).repartitionByRange(2, "carrier")
    return rows, spark.createDataFrame(named)


@pytest.fixture(scope="module")
def sides(
    spark: SparkSession, flights: list[dict[str, Any]], wishes: list[tuple[int, Wish]]
) -> Iterator[tuple[DataFrame, DataFrame]]:
    made = [side.persist() for side in frames(spark, flights, wishes)]
    yield made[0], made[1]
    for side in made:
        side.unpersist()


def test_both_plans_find_the_pairs_that_brute_force_finds(
    sides: tuple[DataFrame, DataFrame], flights: list[dict[str, Any]], wishes: list[tuple[int, Wish]]
) -> None:
    expected = sorted(pairs(flights, wishes))
    broadcast = match(*sides)
    assert [(f.name, f.dataType.simpleString()) for f in broadcast.schema] == [
        ("id", "bigint"),
        ("subscription", "bigint"),
    ]
    assert found(broadcast) == expected
    # So little memory that tiles are divided, wide areas are beside, and a tile's index is on disk.
    tight = {"plan": "tiles", "memory": 3_000, "tile_memory": 400, "partitions": 3}
    told = explain(*sides, **tight)
    assert told.tiles > 10 and told.divided > 0 and told.partitions == 3
    assert found(match(*sides, **tight)) == expected


def test_conditions_on_what_is_not_there_are_matched_by_both_plans(
    spark: SparkSession, flights: list[dict[str, Any]]
) -> None:
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "not exists delay": lambda delay, carrier: delay is None,
        "carrier in nocase ('ua', 'Dl')": lambda delay, carrier: carrier in ("UA", "DL"),
        "carrier matches '^(U|D)'": lambda delay, carrier: carrier in ("UA", "DL"),
        "delay < limit": lambda delay, carrier: delay is not None and delay < 40,
        "carrier not in ('UA', 'AA')": lambda delay, carrier: carrier == "DL",
        "not delay between 10 and 90": lambda delay, carrier: delay is not None and not 10 <= delay <= 90,
        "not (carrier contains 'A' or exists delay)": lambda delay, carrier: (
            carrier == "DL" and delay is None
        ),
    }
    given = pa.table({"id": list(range(len(tests))), "subscription": list(tests)})
    events = spark.createDataFrame(pa.Table.from_pylist(flights)).selectExpr("*", "40 limit")
    sides = events, spark.createDataFrame(given)
    expected = [
        (event["id"], number)
        for event in flights
        for number, holds in enumerate(tests.values())
        if holds(event["delay"], event["carrier"])
    ]
    assert found(match(*sides)) == sorted(expected)
    assert found(match(*sides, plan="tiles")) == sorted(expected)


def test_circles_in_metres_give_the_pairs_that_sql_gives(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    random = np.random.default_rng(9)
    # As in metric maps, where float32 has steps of half a metre.
    corner = np.array([400_000.0, 5_600_000.0])
    places, centres = (corner + random.uniform(0, 20, (count, 2)) for count in (1500, 400))
    radius = random.choice([0.0, 0.1, 0.24, 1.0], 400)
    centres[:100] = places[:100]
    events = spark.createDataFrame(pa.table({"id": range(1500), "x": places[:, 0], "y": places[:, 1]}))
    circles = spark.createDataFrame(
        pa.table({"id": range(400), "x": centres[:, 0], "y": centres[:, 1], "radius": radius})
    )
    named = circles.toDF("subscription", "cx", "cy", "radius")
    dx, dy = F.col("x") - F.col("cx"), F.col("y") - F.col("cy")
    near = dx * dx + dy * dy <= F.col("radius") * F.col("radius")
    expected = found(events.join(named, near).select("id", "subscription"))
    assert len(expected) > 500
    assert found(match(events, circles)) == expected
    assert found(match(events, circles, plan="tiles", partitions=2, tile_memory=1000)) == expected


@pytest.mark.parametrize("space", ["plane", "globe"])
def test_boxes_and_polygons_are_matched_by_both_plans_as_fractions_say(
    spark: SparkSession, space: str
) -> None:
    chance = Random(4)
    held = {id: drawn(chance, space) for id in range(60)}
    events = drawn_events(chance, space, 150)
    names = ["a", "kind", *LOCATION[space]]
    columns = {name: [event.get(name) for event in events] for name in names}
    frame = spark.createDataFrame(pa.table({"id": range(150), **columns}))
    texts = spark.createDataFrame(pa.table({"id": list(held), "subscription": list(map(str, held.values()))}))
    expected = sorted((n, id) for n, event in enumerate(events) for id in satisfied(held, event, space))
    assert found(match(frame, texts, space=space)) == expected
    tight = {"plan": "tiles", "partitions": 2, "memory": 3_000, "tile_memory": 1000}
    assert found(match(frame, texts, space=space, **tight)) == expected


def test_globe_with_columns_structs_decimals_and_several_ids_is_matched_by_both_plans(
    spark: SparkSession,
) -> None:
    from pyspark.sql import functions as F

    random = np.random.default_rng(8)
    places = [
        (90.0, 17.0),
        (-90.0, 0.0),
        (0.0, 180.0),
        (0.0, -180.0),
        (10.0, 539.9),
        (91.0, 0.0),
        (5.0, None),
    ]
    places += [(float(a), float(b)) for a, b in random.uniform((-89, -180), (89, 180), (500, 2))]
    places += [(float(a), float(b)) for a, b in random.normal((60, -179.9), 0.5, (300, 2))]
    events = [
        {"id": (f"f{n % 9}", n), "latitude": a, "longitude": b, "price": float(n % 5), "seat.row": n % 3}
        for n, (a, b) in enumerate(places)
    ]
    table = pa.table(
        {
            "name": [event["id"][0] for event in events],
            "number": [event["id"][1] for event in events],
            "at": pa.array([{"lat": a, "lon": b} for a, b in places]),
            "price": pa.array([Decimal(int(event["price"])) for event in events], pa.decimal128(10, 2)),
            "seat": [{"row": event["seat.row"]} for event in events],
        }
    )
    circles = [
        (89.9, 0.0, 5e4),
        (-89.0, 77.0, 2e5),
        (0.0, 179.95, 3e4),
        (60.0, 180.0, 1e5),
        (0.0, 0.0, 2.1e7),
    ]
    circles += [(float(a), float(b), 3e5) for a, b in random.uniform((-90, -180), (90, 180), (60, 2))]
    wishes: list[tuple[int, Wish]] = [
        (number, [[("within", *circle), ("price", ">", number % 5 - 1), ("seat.row", "==", number % 3)]])
        for number, circle in enumerate(circles)
    ]
    wishes.append((len(wishes), [[("price", "==", 4.0), ("seat.row", "==", 2)]]))
    rows = [
        {
            "key": number,
            "latitude": parts[0][1] if len(parts) == 3 else None,
            "longitude": parts[0][2] if len(parts) == 3 else None,
            "radius": parts[0][3] if len(parts) == 3 else None,
            "constraints": [
                {"name": n, "op": op, "number": float(v), "text": None} for n, op, v in parts[-2:]
            ],
        }
        for number, (parts,) in wishes
    ]
    kind = "key short, latitude double, longitude double, radius double, "
    kind += "constraints array<struct<name string, op string, number double, text string>>"
    subscriptions = spark.createDataFrame([tuple(row.values()) for row in rows], kind)
    options = {
        "event_id": ["name", "number"],
        "subscription_id": "key",
        "space": "globe",
        "location": ("at.lat", "at.lon"),
    }
    frame = spark.createDataFrame(table).withColumn("unused", F.lit("x"))
    expected = sorted((n, s) for n, s in pairs(events, wishes, globe=True))
    assert any(event[1] == 0 for event, _ in expected) and any(event[1] == 2 for event, _ in expected)
    assert found(match(frame, subscriptions, **options)) == expected
    made = match(frame, subscriptions, plan="tiles", partitions=2, tile_memory=1000, **options)
    assert made.schema["subscription"].dataType.simpleString() == "smallint"
    assert found(made) == expected


def test_plan_is_chosen_by_size_and_explained(
    sides: tuple[DataFrame, DataFrame], spark: SparkSession
) -> None:
    events, subscriptions = sides
    auto = explain(events, subscriptions)
    assert (auto.plan, auto.subscriptions, auto.tiles) == ("broadcast", 180, 0)
    assert "the index fits" in str(auto) and "180 (counted)" in str(auto)
    little = explain(events, subscriptions, memory=1000)
    assert (little.plan, little.missing) == ("tiles", ())
    for part in ("plan: tiles, since the index does not fit", "1 kB", "tiles: ", "shared by several tasks"):
        assert part in str(little)
    forced = explain(events, subscriptions, plan="broadcast", memory=1000)
    assert "larger than it may be" in forced.why
    contents = spark.createDataFrame([(1, "delay > 1 and gate == 'B'")], "id long, subscription string")
    assert "no subscription has an area" in explain(events, contents, plan="tiles").why
    gate = spark.createDataFrame([(1, "gate == 'B' and within(1, 1, 1)")], "id long, subscription string")
    assert "no event has: gate" in str(explain(events, gate, plan="tiles"))


def test_empty_sides_make_no_pairs(sides: tuple[DataFrame, DataFrame]) -> None:
    events, subscriptions = sides
    nobody, nothing = subscriptions.where("id is null"), events.where("id is null")
    assert found(match(events, nobody)) == found(match(nothing, subscriptions)) == []
    assert found(match(nothing, subscriptions, plan="tiles", partitions=2)) == []
    assert "no subscription has an area" in explain(events, nobody, plan="tiles").why


def test_wrong_subscriptions_are_refused_before_events_are_read(
    sides: tuple[DataFrame, DataFrame], spark: SparkSession
) -> None:
    from pyspark.sql import functions as F

    # An event that was read would be another error.
    events = sides[0].withColumn("x", F.raise_error(F.lit("an event was read")).cast("double"))
    malformed = spark.createDataFrame(
        [(1, "delay > 1"), (-77, "delay > 1 and within(1, 2"), (3, None)], "id long, subscription string"
    )
    for plan in ("broadcast", "tiles"):
        with pytest.raises(SubscriptionError, match="subscription -77: ") as caught:
            match(events, malformed, plan=plan)
        assert caught.value.source == "delay > 1 and within(1, 2" and "^ line 1" in str(caught.value)
        with pytest.raises(SubscriptionError, match="id 9 stands twice in column id"):
            twice = spark.createDataFrame(
                [(9, "within(1, 2, 3)"), (9, "true")], "id long, subscription string"
            )
            match(events, twice, plan=plan)
    null = spark.createDataFrame([(None, "true")], "id long, subscription string")
    with pytest.raises(SubscriptionError, match="column id is null"):
        match(events, null)
    with pytest.raises(SubscriptionError, match="subscription 3: its text is null"):
        match(events, malformed.where("id = 3"))


def test_wrong_arguments_are_refused(sides: tuple[DataFrame, DataFrame], spark: SparkSession) -> None:
    events, subscriptions = sides
    streaming = spark.readStream.format("rate").load().selectExpr("value as id", "'true' as subscription")
    wrong: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
        (events, subscriptions, {"plan": "fast"}, SparkError, "expected one of auto, broadcast, tiles"),
        (
            events,
            subscriptions,
            {"event_id": "flight"},
            SparkError,
            "no column flight .*event_id=.* id, x, y",
        ),
        (events, subscriptions, {"event_id": []}, SparkError, "expected one column or several"),
        (events, subscriptions, {"subscription_id": "subscription"}, SubscriptionError, "whole numbers"),
        (events, subscriptions, {"engine": "fast"}, SubscriptionError, "engine 'fast'"),
        (events, subscriptions, {"space": "moon"}, SubscriptionError, "'plane' or 'globe'"),
        (events, subscriptions, {"memory": 0}, SparkError, "memory=0"),
        (events, subscriptions, {"nothing": 1}, SubscriptionError, "unknown option 'nothing'"),
        (events.drop("y"), subscriptions, {}, SparkError, "column y, .* is not there"),
        (events, subscriptions, {"location": ("x", "carrier")}, SparkError, "column carrier, .* is a string"),
        (events, streaming, {}, SparkError, "does not stream"),
        (streaming, subscriptions, {"plan": "tiles"}, SparkError, "events that stream"),
        (events, events.select("id"), {}, SubscriptionError, "expected texts in column subscription"),
        (events, subscriptions.selectExpr("*", "1 x", "2 y", "3 radius"), {}, SubscriptionError, "drop one"),
        ([], subscriptions, {}, SparkError, "expected a DataFrame of Spark but found list"),
    ]
    for left, right, options, kind, message in wrong:
        with pytest.raises(kind, match=message):
            match(left, right, **options)


def test_index_reaches_executors_as_a_file_where_they_do_not_see_the_drivers(
    sides: tuple[DataFrame, DataFrame],
    flights: list[dict[str, Any]],
    wishes: list[tuple[int, Wish]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broadcast, "is_local", lambda spark: False)
    monkeypatch.setattr(broadcast, "_shelf", {})
    part = sides[1].where("id % 3 = 0")
    matches = match(sides[0], part)
    (shipped,) = broadcast._shelf.values()
    assert shipped.file and not shipped.folder
    # Equal subscriptions are not sent again.
    match(sides[0], part)
    assert list(broadcast._shelf.values()) == [shipped]
    wanted = [(number, wish) for number, wish in wishes if number % 3 == 0]
    assert found(matches) == sorted(pairs(flights, wanted))


def test_index_is_read_and_built_once_for_many_matches(
    sides: tuple[DataFrame, DataFrame],
    flights: list[dict[str, Any]],
    wishes: list[tuple[int, Wish]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, subscriptions = sides
    known = index(subscriptions)
    assert known.subscriptions == len(wishes) and repr(known) == f"Index({len(wishes)} subscriptions)"
    # From now on the subscriptions are not read.
    monkeypatch.setattr(matches, "collect", None)
    monkeypatch.setattr(matches, "planned", None)
    few, many = (match(events.where(f"{name} is not null"), known) for name in ("x", "id"))
    some = [row for row in flights if row["x"] is not None]
    assert found(few) == sorted(pairs(some, wishes))
    assert found(many) == sorted(pairs(flights, wishes))
    told = explain(events, known)
    assert (told.plan, told.subscriptions) == ("broadcast", len(wishes))
    with pytest.raises(SparkError, match="space=, partitions=: the index is built"):
        match(events, known, space="globe", partitions=4)
    with pytest.raises(SparkError, match="plan=: the index is built"):
        match(events, known, plan="tiles")
    with pytest.raises(SparkError, match="column x, which tells where an event is, is not there"):
        match(events.select("id", "delay"), known)
    with pytest.raises(SparkError, match="sent to the executors of another session"):
        match(events, replace(known, session="another"))


def test_columns_are_found_whatever_their_case(spark: SparkSession) -> None:
    events = spark.createDataFrame(
        [(1, 50.0, 0.0, 0.0), (2, 5.0, 9.0, 9.0)], "Id long, DELAY double, X double, y double"
    )
    texts = spark.createDataFrame([(7, "delay > 45 and within(0, 0, 1)")], "ID long, Subscription string")
    pairs = match(events, texts, engine="reference")
    assert (pairs.columns, pairs.collect()) == (["id", "subscription"], [(1, 7)])


def test_events_that_stream_are_matched_as_they_come(
    sides: tuple[DataFrame, DataFrame],
    flights: list[dict[str, Any]],
    wishes: list[tuple[int, Wish]],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    events, subscriptions = sides
    events.coalesce(1).write.parquet(str(tmp_path / "flights"))
    stream = spark.readStream.schema(events.schema).parquet(str(tmp_path / "flights"))
    writer = match(stream, subscriptions).writeStream.format("memory").queryName("pairs")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert found(spark.table("pairs")) == sorted(pairs(flights, wishes))
