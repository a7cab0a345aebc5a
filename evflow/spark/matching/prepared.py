"""Subscriptions whose index is built and sent once, for as many matches as one likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evflow.errors import SparkError
from evflow.spark.java import explained
from evflow.spark.matching.asked import Subscribed, settings_of, subscribed
from evflow.spark.matching.collecting import collect, refuse_repeats
from evflow.spark.matching.packing import unpack
from evflow.spark.matching.shipping import Shipped, session_name, ship
from evflow.spark.matching.sizes import bytes_of
from evflow.spark.registering import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Index", "index", "index_of"]


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
    given: Subscribed
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

    Raises:
        SubscriptionError: see ``match``.
        SparkError: an argument is wrong.

    Example: ``known = index(alerts); match(today, known), match(tomorrow, known)``
    """
    given = subscribed(subscriptions, subscription_id, settings_of(engine, space, location, options))
    register(subscriptions.sparkSession)
    return index_of(given)


def index_of(given: Subscribed) -> Index:
    """The index of all subscriptions, which executors get as a file.

    Raises:
        SubscriptionError: one is malformed, or an id stands twice.
    """
    pieces = collect(given)
    refuse_repeats(given, pieces)
    count, nbytes, areas = 0, 0, False
    names: set[str] = set()
    for data in pieces:
        piece = unpack(data)
        columns = piece.columns
        count += len(piece.ids)
        nbytes += bytes_of(len(columns), len(columns.name), sum(map(len, columns.texts)))
        names.update(columns.names)
        areas = areas or columns.x is not None
    spark = given.subscriptions.sparkSession
    shipped = ship(spark, given.settings, pieces)
    return Index(count, nbytes, given, shipped, frozenset(names), areas, session_name(spark))
