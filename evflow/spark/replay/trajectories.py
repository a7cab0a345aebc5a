"""``tiles``, which users call."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from evflow.errors import SparkError
from evflow.spark.java import explained
from evflow.spark.registering import register
from evflow.spark.replay.columns import FOREVER, Form
from evflow.spark.replay.tasks import MOVES, PAIRS, Replay, Spread
from evflow.tiles.grid import Grid
from evflow.tiles.messages import SUBSCRIPTION
from evflow.tiles.moves import asked_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@explained()
def tiles(
    trajectories: DataFrame,
    subscriptions: DataFrame,
    *,
    events: Collection[str] = ("match",),
    metres: float = 1222.0,
    publication_id: str = "id",
    subscription_id: str = "id",
    time: str = "time",
    slices: int = 1,
    partitions: int | None = None,
) -> DataFrame:
    """The matches of recorded moves: those that a system of ``evflow.tiles`` tells if the moves reach it one
    by one, in the order of time.

    A row is the state of a publication or subscription from its time on, until the next row with its id. At
    one time subscriptions move before publications, and each side in the order of ids. A zone is a circle in
    the columns ``latitude``, ``longitude`` (degrees) and ``radius`` (metres; 0 for trajectories without this
    column), a box in ``south``, ``west``, ``north`` and ``east`` (which may exceed 180), or a polygon in
    ``polygon``: its rings of ``latitude`` and ``longitude``. The others are null. A row whose ``deleted`` is
    true deletes, and needs no zone. ``attributes`` is a struct of text, numbers and truth values; null is as
    if it was missing. A row that stands twice counts once.

    Args:
        trajectories: a row is a move of a publication.
        subscriptions: a row is a move of a subscription; without a column of times they are there from the
            beginning, and never move.
        events: what is told: ``match``, or some of ``enter``, ``inside`` and ``leave``.
        metres: the width of tiles at the equator; the result does not depend on it.
        publication_id: the column of whole numbers that names publications, from 0 to 2^62 - 1.
        subscription_id: the same of subscriptions.
        time: the column of times on both sides, timestamps or whole numbers.
        slices: parts of the time that tasks may take apart from each other, where tiles are crowded; then
            times are read twice.
        partitions: tasks of each step; by default as Spark chooses.

    Returns:
        A DataFrame of matches, each once, in no order: ``pub``, ``pub_time``, ``sub``, ``sub_time``, the
        states of both sides (null for a subscription without times), and ``event``.

    Raises:
        EvflowError: ``events`` or ``metres`` is wrong.
        SparkError: a column or an argument is wrong. What is wrong in a row is told when the result is used,
            and ends the job: an id or time that is null, a zone that is incomplete or touches more than 4,096
            tiles, two different states at one time.

    Example: ``tiles(positions, airports, events=["enter", "leave"]).groupBy("sub", "event").count()``
    """
    asked, zoom = asked_of(events), Grid.of_metres(metres).zoom
    for name, number in (("slices", slices), ("partitions", partitions)):
        if number is not None and (type(number) is not int or number < 1):
            raise SparkError(f"tiles: {name}={number!r}: expected a whole number from 1")
    published = Form.of(trajectories, "publication", 0, publication_id, time)
    subscribed = Form.of(subscriptions, "subscription", SUBSCRIPTION | asked, subscription_id, time)
    if subscribed.moment and subscribed.is_timestamp != published.is_timestamp:
        raise SparkError(
            f"tiles: column {time} is a {published.moment} of publications and a {subscribed.moment} of "
            "subscriptions: expected timestamps in both, or whole numbers"
        )
    register(trajectories.sparkSession)
    sides = [
        (form, form.select(frame)) for form, frame in ((published, trajectories), (subscribed, subscriptions))
    ]
    cuts = _cuts(sides[0][1], slices)
    told = [_spread(rows, form, zoom, cuts, partitions) for form, rows in sides]
    moves = _divided(told[0].union(told[1]), partitions, "slice", "tile")
    # Spark sorts several times as fast by one column as by two.
    ordered = moves.sortWithinPartitions(*["slice"][: len(cuts)], "time")
    kinds = PAIRS if asked else PAIRS.partition(", born")[0]
    found = ordered.drop("tile").mapInArrow(Replay(zoom, asked > 0), kinds)
    return _named(_with_events(found, events) if asked else found, published, subscribed, bool(asked))


def _divided(rows: DataFrame, partitions: int | None, *columns: str) -> DataFrame:
    """Rows by columns among tasks."""
    return rows.repartition(*columns) if partitions is None else rows.repartition(partitions, *columns)


def _spread(
    rows: DataFrame, form: Form, zoom: int, cuts: tuple[int, ...], partitions: int | None
) -> DataFrame:
    """The moves of one side in their tiles."""
    order = ["id", "time"] if form.moment else ["id"]
    return (
        _divided(rows, partitions, "id")
        .sortWithinPartitions(*order)
        .mapInArrow(Spread(form, zoom, cuts), MOVES)
    )


def _cuts(moves: DataFrame, slices: int) -> tuple[int, ...]:
    """The times between slices that have about as many moves."""
    from pyspark.sql import functions as F

    if slices == 1:
        return ()
    shares = [number / slices for number in range(1, slices)]
    found: list[int] = moves.agg(F.percentile_approx("time", shares)).collect()[0][0] or []
    return tuple(sorted(set(found)))


def _with_events(found: DataFrame, events: Collection[str]) -> DataFrame:
    """What becomes of pairs, from the matches and partings of each in their order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    steps = Window.partitionBy("pub", "sub", "born").orderBy("pub_time", "sub_time")
    apart, was_inside = F.col("apart"), F.lag("apart").over(steps).eqNullSafe(F.lit(False))
    # Several tiles may tell that a pair has come apart.
    left = F.when(was_inside, "leave")
    event = F.when(apart, left).otherwise(F.when(was_inside, "inside").otherwise("enter"))
    return found.withColumn("event", event).where(F.col("event").isin(list(events)))


def _named(found: DataFrame, published: Form, subscribed: Form, has_events: bool) -> DataFrame:
    """The columns of the result, ids and times as they were given."""
    from pyspark.sql import functions as F

    def time(name: str, form: Form) -> Any:
        column = F.when(F.col(name) != FOREVER, F.col(name)) if not form.moment else F.col(name)
        made = (
            F.timestamp_micros(column)
            if published.is_timestamp
            else column.cast(form.moment or published.moment)
        )
        return made.alias(name)

    return found.select(
        F.col("pub").cast(published.id).alias("pub"),
        time("pub_time", published),
        F.col("sub").cast(subscribed.id).alias("sub"),
        time("sub_time", subscribed),
        F.col("event") if has_events else F.lit("match").alias("event"),
    )
