"""What ``match`` was asked, checked: which columns of the events travel, and what the pairs look like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from evflow.errors import SparkError, SubscriptionError
from evflow.matching.engine import ENGINES
from evflow.matching.space import LOCATIONS
from evflow.stones.spark.matching.pairs import Shape
from evflow.stones.spark.matching.reading import Form, form_of, quoted
from evflow.stones.spark.matching.shipping import Settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["PLANS", "Asked", "asked"]

PLANS = ("auto", "broadcast", "tiles")

_IDS = {"tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64"}

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "decimal")


@dataclass(frozen=True)
class Asked:
    """The arguments of ``match``.

    Attributes:
        events: a row is an event.
        subscriptions: a row is a subscription.
        keys: columns of ``events``: what the pairs call an event.
        form: how subscriptions are given.
        ids: the type of their ids, by its name in numpy.
        settings: of the matcher.
    """

    events: DataFrame
    subscriptions: DataFrame
    keys: tuple[str, ...]
    form: Form
    ids: str
    settings: Settings

    @cached_property
    def rows(self) -> DataFrame:
        """The subscriptions as they are read; one DataFrame, so that Spark plans it once."""
        return self.form.select(self.subscriptions)

    def _type(self, name: str) -> str | None:
        return next((kind for path, kind in _paths(self.events.schema) if path == name), None)

    def needs_places(self) -> None:
        """Checks that the events tell where they are, since some subscriptions ask for it.

        Raises:
            SparkError: they do not.
        """
        for name in self.settings.location:
            kind = self._type(name)
            if kind is None or kind.split("(")[0] not in _NUMBERS:
                what = "is not there" if kind is None else f"is a {kind}"
                raise SparkError(
                    f"events: subscriptions have areas, but column {name}, which tells where an event is, "
                    f"{what}; name two columns of numbers with location="
                )

    def shape(self, names: Iterable[str]) -> Shape:
        """The columns of batches whose events are asked for these attributes."""
        there = dict(_paths(self.events.schema))
        wanted = sorted(name for name in {*names, *self.settings.location} if name in there)
        return Shape(self.keys, tuple(wanted), self.ids)

    def columns(self, shape: Shape) -> list[Column]:
        """The events' columns of a shape."""
        from pyspark.sql import functions as F

        there = dict(_paths(self.events.schema))
        whole = set(self.events.columns)
        found = []
        for name in shape.names:
            column = F.col(quoted(name) if name in whole else _quoted_path(name, whole))
            if there[name].startswith("decimal") and name not in shape.keys:
                column = column.cast("double")
            found.append(column.alias(shape.column(name)))
        return found

    def result(self) -> StructType:
        """The columns of the pairs."""
        from pyspark.sql.types import StructField, StructType

        schema, types = self.events.schema, self.subscriptions.schema
        kind = types[self.form.id].dataType
        return StructType([*(schema[key] for key in self.keys), StructField("subscription", kind, False)])


def asked(
    events: DataFrame,
    subscriptions: DataFrame,
    event_id: str | Sequence[str],
    subscription_id: str,
    settings: Settings,
) -> Asked:
    """The arguments of ``match``, checked.

    Raises:
        SparkError: a column of the events is not there, or its name is taken.
        SubscriptionError: columns of the subscriptions are missing, or the engine is unknown.
    """
    for what, given in (("events", events), ("subscriptions", subscriptions)):
        if not hasattr(given, "mapInArrow"):
            raise SparkError(f"{what}: expected a DataFrame of Spark but found {type(given).__name__}")
    if subscriptions.isStreaming:
        raise SparkError(
            "subscriptions: expected a DataFrame that does not stream; match each micro-batch in foreachBatch"
        )
    keys = (event_id,) if isinstance(event_id, str) else tuple(event_id)
    for key in keys:
        if key not in events.columns:
            raise SparkError(
                f"events: there is no column {key} (event_id=); the columns are: {', '.join(events.columns)}"
            )
    if "subscription" in keys or len(set(keys)) < len(keys) or not keys:
        raise SparkError(
            f"event_id={event_id!r}: expected one column or several, none of them named subscription"
        )
    if settings.engine not in ENGINES:
        raise SubscriptionError(f"engine {settings.engine!r}: expected one of {', '.join(ENGINES)}")
    form = form_of(subscriptions, subscription_id, settings.space)
    return Asked(
        events, subscriptions, keys, form, _IDS[dict(subscriptions.dtypes)[subscription_id]], settings
    )


def settings_of(
    engine: str, space: str, location: tuple[str, str] | None, options: dict[str, Any]
) -> Settings:
    """What the matcher is told.

    Raises:
        SubscriptionError: there is no such space.
    """
    if space not in LOCATIONS:
        raise SubscriptionError(f"space {space!r}: expected 'plane' or 'globe'")
    names = LOCATIONS[space] if location is None else (location[0], location[1])
    return Settings(engine, space, names, tuple(sorted(options.items())))


def _paths(schema: StructType, before: str = "") -> Iterable[tuple[str, str]]:
    """The columns of a schema and the fields of structs in them, with dotted names, and their types."""
    from pyspark.sql.types import StructType

    for field in schema.fields:
        yield before + field.name, field.dataType.simpleString()
        if isinstance(field.dataType, StructType):
            yield from _paths(field.dataType, f"{before}{field.name}.")


def _quoted_path(name: str, columns: set[str]) -> str:
    """The expression of a field of a struct that is no column itself."""
    steps = name.split(".")
    for at in range(1, len(steps)):
        first = ".".join(steps[:at])
        if first in columns:
            return ".".join([quoted(first), *map(quoted, steps[at:])])
    return quoted(name)
