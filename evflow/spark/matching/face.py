"""``match`` and ``explain``, which users call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evflow.spark.java import explained
from evflow.spark.matching.asked import Asked, asked, settings_of, subscribed
from evflow.spark.matching.collecting import collect
from evflow.spark.matching.joining import tiled
from evflow.spark.matching.packing import unpack
from evflow.spark.matching.pairs import Broadcast
from evflow.spark.matching.planning import Explanation, Limits, Plan, planned
from evflow.spark.matching.prepared import Index, index_of
from evflow.spark.matching.shipping import ship
from evflow.spark.registering import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["explain", "match"]

_log = logging.getLogger("evflow.spark")

_DEFAULTS = {
    "subscription_id": "id",
    "plan": "auto",
    "space": "plane",
    "location": None,
    "engine": "index",
    "memory": None,
    "tile_memory": None,
    "partitions": None,
}


@explained()
def match(
    events: DataFrame,
    subscriptions: DataFrame | Index,
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

    The subscriptions are read when this is called, or were read by ``index``; the events when the result is
    used. A column of the events is an attribute, a field of a struct one with a dotted name, and null is as
    if it was missing; only columns that subscriptions ask for are read. Decimals count as numbers; cast dates
    and times to numbers or strings.

    Args:
        events: a row is an event.
        subscriptions: a row is a subscription: a text in the column ``subscription``, or an area in ``x``,
            ``y`` and ``radius`` (on the globe ``latitude``, ``longitude`` in degrees, ``radius`` in metres),
            or constraints as for ``FilterColumns.from_arrow`` in ``constraints``, or both of these. Or what
            ``index`` made of them; then of the other arguments only ``event_id`` is given.
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
    told = _told(options, subscription_id, plan, space, location, engine, memory, tile_memory, partitions)
    if isinstance(subscriptions, Index):
        question = asked(events, subscriptions.given, event_id)
        subscriptions.check(events.sparkSession, told)
        return _broadcast(question, subscriptions)
    settings = settings_of(engine, space, location, options)
    question = asked(events, subscribed(subscriptions, subscription_id, settings), event_id)
    register(events.sparkSession)
    limits = Limits.of(events.sparkSession, memory, tile_memory, partitions)
    chosen = planned(question, plan, limits)
    _log.info("match: %s", chosen.explanation)
    if chosen.explanation.plan == "broadcast":
        return _broadcast(question, index_of(question))
    return _tiles(question, chosen, limits)


@explained()
def explain(
    events: DataFrame,
    subscriptions: DataFrame | Index,
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
    told = _told(options, subscription_id, plan, space, location, engine, memory, tile_memory, partitions)
    if isinstance(subscriptions, Index):
        question = asked(events, subscriptions.given, event_id)
        subscriptions.check(events.sparkSession, told)
        return _of_index(subscriptions, events)
    settings = settings_of(engine, space, location, options)
    question = asked(events, subscribed(subscriptions, subscription_id, settings), event_id)
    register(events.sparkSession)
    limits = Limits.of(events.sparkSession, memory, tile_memory, partitions)
    return planned(question, plan, limits).explanation


def _of_index(index: Index, events: DataFrame) -> Explanation:
    memory = Limits.of(events.sparkSession, None, None, None).memory
    return Explanation("broadcast", "its index is built", index.subscriptions, index.nbytes, memory)


def _told(options: dict[str, Any], *given: object) -> list[str]:
    """The names of the arguments that are not as they are by default, but for the plan that an index has."""
    named = zip(_DEFAULTS.items(), given, strict=True)
    changed = [name for (name, default), value in named if value not in (default, "broadcast")]
    return [*changed, *options]


def _broadcast(question: Asked, index: Index) -> DataFrame:
    if index.areas:
        question.needs_places()
    shape = question.shape(index.names)
    rows = question.events.select(*question.columns(shape))
    return rows.mapInArrow(Broadcast(index.shipped, shape), question.result())


def _tiles(question: Asked, plan: Plan, limits: Limits) -> DataFrame:
    assert plan.layout is not None and plan.survey is not None
    everywhere = [
        piece for piece in collect(question, plan.layout.tiles, plan.layout.wide) if len(unpack(piece).ids)
    ]
    beside = ship(question.events.sparkSession, question.settings, everywhere) if everywhere else None
    return tiled(question, plan.layout, plan.survey.names, beside, limits.tile)
