"""``match`` and ``explain``, which users call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evflow.stones.spark.java import explained
from evflow.stones.spark.matching.asked import Asked, asked, settings_of
from evflow.stones.spark.matching.collecting import collect, refuse_repeats
from evflow.stones.spark.matching.joining import tiled
from evflow.stones.spark.matching.packing import unpack
from evflow.stones.spark.matching.pairs import Broadcast
from evflow.stones.spark.matching.planning import Explanation, Limits, Plan, planned
from evflow.stones.spark.matching.shipping import ship
from evflow.stones.spark.registering import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["explain", "match"]

_log = logging.getLogger("evflow.spark")


@explained()
def match(
    events: DataFrame,
    subscriptions: DataFrame,
    *,
    event_id: str | Sequence[str] = "id",
    subscription_id: str = "id",
    plan: str = "auto",
    space: str = "plane",
    location: tuple[str, str] | None = None,
    engine: str = "index",
    memory: int | None = None,
    tile_memory: int | None = None,
    partitions: int | None = None,
    **options: Any,
) -> DataFrame:
    """Which events satisfy which subscriptions.

    The subscriptions are read when this is called, the events when the result is used. A column of the events
    is an attribute, a field of a struct one with a dotted name, and null is as if it was missing; only
    columns that subscriptions ask for are read. Decimals count as numbers; cast dates and times to numbers or
    strings.

    Args:
        events: a row is an event.
        subscriptions: a row is a subscription: a text in the column ``subscription``, or an area in ``x``,
            ``y`` and ``radius`` (on the globe ``latitude``, ``longitude`` in degrees, ``radius`` in metres),
            or constraints as for ``FilterColumns.from_arrow`` in ``constraints``, or both of these.
        event_id: the column, or columns, of events that are in the result.
        subscription_id: the column of whole numbers that names subscriptions.
        plan: ``broadcast``, every executor has the index of all subscriptions; ``tiles``, both sides are
            divided by where they are, and ``events`` are read twice; or ``auto``, the first if the index
            fits.
        space: ``plane`` or ``globe``: what areas and places are on.
        location: the attributes that say where an event happened; by default ``x`` and ``y``, on the globe
            ``latitude`` and ``longitude``.
        engine: of the matcher; ``reference`` needs no numba.
        memory: bytes that an index may take in an executor; by default half of the executor's memory.
        tile_memory: bytes of index that a task of the tiles plan holds; by default half of what an executor
            may hold, divided by its cores.
        partitions: tasks of the tiles plan; by default ``spark.sql.shuffle.partitions``.
        **options: of the engine.

    Returns:
        A DataFrame of pairs, each once, in no order: the columns of ``event_id``, and ``subscription``.

    Raises:
        SubscriptionError: a subscription is malformed, or an id is null or stands twice; names the id.
        SparkError: a column, an option or a plan is wrong.

    Example: ``match(flights, alerts, event_id="flight").groupBy("subscription").count()``
    """
    question = asked(
        events, subscriptions, event_id, subscription_id, settings_of(engine, space, location, options)
    )
    register(events.sparkSession)
    limits = Limits.of(events.sparkSession, memory, tile_memory, partitions)
    chosen = planned(question, plan, limits)
    _log.info("match: %s", chosen.explanation)
    if chosen.explanation.plan == "broadcast":
        return _broadcast(question)
    return _tiles(question, chosen, limits)


@explained()
def explain(
    events: DataFrame,
    subscriptions: DataFrame,
    *,
    event_id: str | Sequence[str] = "id",
    subscription_id: str = "id",
    plan: str = "auto",
    space: str = "plane",
    location: tuple[str, str] | None = None,
    engine: str = "index",
    memory: int | None = None,
    tile_memory: int | None = None,
    partitions: int | None = None,
    **options: Any,
) -> Explanation:
    """Which plan ``match`` would take for the same arguments, and why. No index is built, and no event
    matched.

    Raises:
        SubscriptionError: see ``match``; texts are read for the tiles plan only.
        SparkError: see ``match``.

    Example: ``print(explain(flights, alerts))``
    """
    question = asked(
        events, subscriptions, event_id, subscription_id, settings_of(engine, space, location, options)
    )
    register(events.sparkSession)
    return planned(
        question, plan, Limits.of(events.sparkSession, memory, tile_memory, partitions)
    ).explanation


def _broadcast(question: Asked) -> DataFrame:
    pieces = collect(question)
    refuse_repeats(question, pieces)
    names: set[str] = set()
    areas = False
    for data in pieces:
        columns = unpack(data).columns
        names.update(columns.names)
        areas = areas or columns.x is not None
    if areas:
        question.needs_places()
    shipped = ship(question.events.sparkSession, question.settings, pieces)
    shape = question.shape(names)
    rows = question.events.select(*question.columns(shape))
    return rows.mapInArrow(Broadcast(shipped, shape), question.result())


def _tiles(question: Asked, plan: Plan, limits: Limits) -> DataFrame:
    assert plan.layout is not None and plan.survey is not None
    everywhere = [
        piece for piece in collect(question, plan.layout.tiles, plan.layout.wide) if len(unpack(piece).ids)
    ]
    beside = ship(question.events.sparkSession, question.settings, everywhere) if everywhere else None
    return tiled(question, plan.layout, plan.survey.names, beside, limits.tile)
