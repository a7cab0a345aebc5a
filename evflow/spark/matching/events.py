"""The events of ``match``: which of their columns travel, and what the pairs look like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from evflow.errors import SparkError
from evflow.spark.columns.names import indices_of, quoted
from evflow.spark.matching.join import Shape
from evflow.spark.matching.subscriptions import Subscriptions, check_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "decimal")


@dataclass(frozen=True, eq=False)
class Question:
    """Which events are matched with which subscriptions.

    Attributes:
        events: a row is an event.
        keys: columns of ``events``: what the pairs call an event.
        given: the subscriptions.
    """

    events: DataFrame
    keys: tuple[str, ...]
    given: Subscriptions

    @classmethod
    def of(cls, events: DataFrame, event_id: str | Sequence[str], given: Subscriptions) -> Question:
        """The arguments of ``match``, checked.

        Raises:
            SparkError: a column of the events is not there, or its name is taken.
        """
        check_frame("events", events)
        keys = (event_id,) if isinstance(event_id, str) else tuple(event_id)
        for key in keys:
            if len(indices_of(events.columns, key)) != 1:
                raise SparkError(
                    f"events: there is no column {key} (event_id=); the columns are: "
                    f"{', '.join(events.columns)}"
                )
        if "subscription" in keys or len(set(keys)) < len(keys) or not keys:
            raise SparkError(
                f"event_id={event_id!r}: expected one column or several, none of them named subscription"
            )
        return cls(events, keys, given)

    @cached_property
    def _types(self) -> dict[str, str]:
        return dict(_paths(self.events.schema))

    def _path(self, name: str) -> str | None:
        """The column, or the field of a struct, that an attribute is; None if there is none, or several."""
        at = indices_of(list(self._types), name)
        return list(self._types)[at[0]] if len(at) == 1 else None

    def needs_places(self) -> None:
        """Checks that the events tell where they are, since some subscriptions ask for it.

        Raises:
            SparkError: they do not.
        """
        for name in self.given.settings.location:
            path = self._path(name)
            kind = None if path is None else self._types[path]
            if kind is None or kind.split("(")[0] not in _NUMBERS:
                what = "is not there" if kind is None else f"is a {kind}"
                raise SparkError(
                    f"events: subscriptions have areas, but column {name}, which tells where an event is, "
                    f"{what}; name two columns of numbers with location="
                )

    def shape(self, names: Iterable[str]) -> Shape:
        """The columns of batches whose events are asked for these attributes."""
        wanted = sorted(
            name for name in {*names, *self.given.settings.location} if self._path(name) is not None
        )
        return Shape(self.keys, tuple(wanted), self.given.ids)

    def columns(self, shape: Shape) -> list[Column]:
        """The events' columns of a shape."""
        from pyspark.sql import functions as F

        whole = set(self.events.columns)
        found = []
        for name in shape.names:
            path = self._path(name)
            assert path is not None
            column = F.col(quoted(path) if path in whole else _quoted_path(path, whole))
            if self._types[path].startswith("decimal") and name not in shape.keys:
                column = column.cast("double")
            found.append(column.alias(shape.column(name)))
        return found

    def result(self) -> StructType:
        """The columns of the pairs."""
        from pyspark.sql.types import StructField, StructType

        schema, types = self.events.schema, self.given.frame.schema
        kind = types[self.given.form.id].dataType
        keys = [(key, schema[indices_of(schema.names, key)[0]]) for key in self.keys]
        named = [StructField(key, column.dataType, column.nullable) for key, column in keys]
        return StructType([*named, StructField("subscription", kind, False)])


def _paths(schema: StructType, before: str = "") -> Iterable[tuple[str, str]]:
    """The columns of a schema and the fields of structs in them, with dotted names, and their types."""
    from pyspark.sql.types import StructType

    for field in schema.fields:
        yield before + field.name, field.dataType.simpleString()
        if isinstance(field.dataType, StructType):
            yield from _paths(field.dataType, f"{before}{field.name}.")


def _quoted_path(name: str, columns: set[str]) -> str:
    """The expression of a field of a struct that is not a column itself."""
    steps = name.split(".")
    for at in range(1, len(steps)):
        first = ".".join(steps[:at])
        if first in columns:
            return ".".join([quoted(first), *map(quoted, steps[at:])])
    return quoted(name)
