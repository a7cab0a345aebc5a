"""``match``, ``explain`` and ``index``, which users call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evflow.errors import SparkError
from evflow.spark.java import explained
from evflow.spark.matching.broadcast import Shipped, ship
from evflow.spark.matching.events import Question
from evflow.spark.matching.join import Broadcast
from evflow.spark.matching.options import Options
from evflow.spark.matching.planning import Explanation, Plan, planned
from evflow.spark.matching.subscriptions import Subscriptions, bytes_of, collect, refuse_repeats
from evflow.spark.matching.tiled import tiled
from evflow.spark.registering import register
from evflow.spark.session import session_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("evflow.spark")


@dataclass(frozen=True, eq=False, repr=False)
class Index:
    """Subscriptions as ``evflow.spark.index`` has read them, for ``match`` in place of their DataFrame.

    Attributes:
        subscriptions: how many there are.
        nbytes: of the index, estimated.
        given: what was read.
        shipped: where executors find it.
        names: the attributes that constraints use.
        areas: whether any subscription has an area.
        session: whose executors have it.
    """

    subscriptions: int
    nbytes: int
    given: Subscriptions
    shipped: Shipped
    names: frozenset[str]
    areas: bool
    session: str

    def __repr__(self) -> str:
        return f"Index({self.subscriptions:,} subscriptions)"

    def check(self, spark: SparkSession, told: Sequence[str]) -> None:
        """Checks what ``match`` is told beside it.

        Args:
            spark: the session of the events.
            told: the names of other arguments, which an index has already.

        Raises:
            SparkError: another session has the index, or an argument would change it.
        """
        if told:
            raise SparkError(
                f"{', '.join(f'{name}=' for name in told)}: the index is built, and every executor has it: "
                "say this to evflow.spark.index, or match the DataFrame of the subscriptions itself"
            )
        if session_name(spark) != self.session:
            raise SparkError(
                "the index was sent to the executors of another session: build one with evflow.spark.index "
                "of a DataFrame of this session"
            )


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
    told = Options(subscription_id, plan, space, location, engine, memory, tile_memory, partitions, options)
    question, chosen = _asked(events, subscriptions, event_id, told)
    if isinstance(subscriptions, Index):
        return _broadcast(question, subscriptions)
    _log.info("match: %s", chosen.explanation)
    if chosen.layout is None or chosen.survey is None:
        return _broadcast(question, _index_of(question.given))
    pieces = collect(question.given, chosen.layout.tiles, chosen.layout.wide)
    everywhere = [piece for piece in pieces if len(piece.ids)]
    spark = events.sparkSession
    beside = ship(spark, question.given.settings, everywhere) if everywhere else None
    return tiled(question, chosen.layout, chosen.survey.names, beside, told.limits(spark).tile)


@explained()
def explain(
    events: DataFrame,
    subscriptions: DataFrame | Index,
    *,
    event_id: str | Sequence[str] = "id",
    **arguments: Any,
) -> Explanation:
    """Which plan ``match`` would take for the same arguments, and why. No index is built, and no event
    matched.

    Args:
        events, subscriptions, event_id, arguments: see ``match``.

    Raises:
        SubscriptionError: see ``match``; texts are read for the tiles plan only.
        SparkError: see ``match``.

    Example: ``print(explain(flights, alerts))``
    """
    return _asked(events, subscriptions, event_id, Options.of(arguments))[1].explanation


def _asked(
    events: DataFrame, subscriptions: DataFrame | Index, event_id: str | Sequence[str], told: Options
) -> tuple[Question, Plan]:
    """What is matched, and how."""
    if isinstance(subscriptions, Index):
        question = Question.of(events, event_id, subscriptions.given)
        subscriptions.check(events.sparkSession, told.changed)
        memory = Options().limits(events.sparkSession).memory
        count, nbytes = subscriptions.subscriptions, subscriptions.nbytes
        return question, Plan(Explanation("broadcast", "its index is built", count, nbytes, memory))
    given = Subscriptions.of(subscriptions, told.subscription_id, told.settings)
    question = Question.of(events, event_id, given)
    register(events.sparkSession)
    return question, planned(question, told.plan, told.limits(events.sparkSession))


def _broadcast(question: Question, index: Index) -> DataFrame:
    if index.areas:
        question.needs_places()
    shape = question.shape(index.names)
    rows = question.events.select(*question.columns(shape))
    return rows.mapInArrow(Broadcast(index.shipped, shape), question.result())


@explained()
def index(
    subscriptions: DataFrame,
    *,
    subscription_id: str = "id",
    space: str = "plane",
    location: tuple[str, str] | None = None,
    engine: str = "index",
    **options: Any,
) -> Index:
    """Reads subscriptions, builds their index, and sends it to the executors: once for many a ``match``.

    ``match`` of a DataFrame reads all subscriptions whenever it is called, if only to see that they are the
    same. What it is given here instead stays as it was; for subscriptions that have changed build another.

    Args:
        subscriptions, subscription_id, space, location, engine, options: see ``match``.

    Returns:
        The index, which ``match`` takes in place of subscriptions.

    Raises:
        SubscriptionError: see ``match``.
        SparkError: an argument is wrong.

    Example: ``known = index(alerts); match(today, known), match(tomorrow, known)``
    """
    settings = Options(space=space, location=location, engine=engine, more=options).settings
    given = Subscriptions.of(subscriptions, subscription_id, settings)
    register(subscriptions.sparkSession)
    return _index_of(given)


def _index_of(given: Subscriptions) -> Index:
    """The index of all subscriptions, which executors get as a file.

    Raises:
        SubscriptionError: one is malformed, or an id stands twice.
    """
    pieces = collect(given)
    refuse_repeats(given, pieces)
    count, nbytes, areas = 0, 0, False
    names: set[str] = set()
    for piece in pieces:
        columns = piece.columns
        count += len(piece.ids)
        nbytes += bytes_of(columns)
        names.update(columns.attributes)
        areas = areas or columns.x is not None or columns.area is not None
    spark = given.frame.sparkSession
    shipped = ship(spark, given.settings, pieces)
    return Index(count, nbytes, given, shipped, frozenset(names), areas, session_name(spark))
