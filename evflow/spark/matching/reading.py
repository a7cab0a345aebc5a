"""Subscriptions of a DataFrame, read where their rows are: in the executors.

A task makes packed pieces of its rows. What is malformed is no exception there, which the driver would get as
a text of two tracebacks, but a row that says what is wrong with which subscription.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evflow.errors import SubscriptionError
from evflow.matching.columns.bulk import FilterColumns, as_subscription
from evflow.matching.space import LOCATIONS
from evflow.outside import from_json
from evflow.spark.columns.names import indices_of, quoted
from evflow.spark.matching.packing import Piece

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["Form", "Problem", "form_of", "pieces_of", "read_piece", "refused"]

_ROWS = 1 << 16
_BYTES = 16 << 20
"""A piece has about so many rows or bytes of Arrow at most."""

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_WHOLE = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Form:
    """How the rows of a DataFrame say what subscriptions are.

    Attributes:
        text: whether a row is a text in ``subscription``; else it is in columns of numbers and constraints.
        area: the columns of the area, or none.
        constraints: whether there is a column ``constraints``.
        space: what areas are on.
        id: the column of ids.
    """

    text: bool
    area: tuple[str, ...]
    constraints: bool
    space: str
    id: str

    def select(self, subscriptions: DataFrame) -> DataFrame:
        """The columns that are read, the ids first as ``id``, areas as ``x``, ``y``, ``radius``."""
        from pyspark.sql import functions as F

        columns = [F.col(quoted(self.id)).cast("long").alias("id")]
        if self.text:
            columns.append(F.col("subscription"))
        for name, role in zip(self.area, ("x", "y", "radius"), strict=False):
            columns.append(F.col(name).cast("double").alias(role))
        if self.constraints:
            columns.append(F.col("constraints"))
        return subscriptions.select(*columns)


def form_of(subscriptions: DataFrame, id: str, space: str) -> Form:
    """Tells by the columns how subscriptions are given.

    Raises:
        SubscriptionError: they are given in no way, or in two, or ids are no whole numbers.
    """
    there = ", ".join(f"{name} {kind}" for name, kind in subscriptions.dtypes) or "none"
    names = subscriptions.columns
    at = indices_of(names, id)
    if len(at) != 1 or subscriptions.dtypes[at[0]][1] not in _WHOLE:
        raise SubscriptionError(
            f"subscriptions: expected whole numbers in column {id} (subscription_id=); there are: {there}"
        )
    id = names[at[0]]
    # The names that mean something are in lower case.
    types = {name.lower(): kind for name, kind in subscriptions.dtypes} | dict(subscriptions.dtypes)
    numbers = {name for name, kind in types.items() if kind.partition("(")[0] in _NUMBERS}
    areas = [(*LOCATIONS[space], "radius"), ("x", "y", "radius")]
    area = next((names for names in areas if numbers.issuperset(names)), ())
    constraints = "constraints" in types
    if types.get("subscription") == "string":
        if area or constraints:
            also = ", ".join([*area, *["constraints"] * constraints])
            raise SubscriptionError(
                f"subscriptions: texts in subscription, and {also} beside: drop one of the two"
            )
        return Form(True, (), False, space, id)
    if not area and not constraints:
        raise SubscriptionError(
            f"subscriptions: expected texts in column subscription, or numbers in {', '.join(areas[0])}, or "
            f"constraints, but the columns are: {there}"
        )
    return Form(False, area, constraints, space, id)


@dataclass(frozen=True)
class Problem:
    """Why a subscription is refused, as it travels from an executor to the driver."""

    message: str
    source: str = ""
    line: int = 1
    column: int = 1

    def to_text(self) -> str:
        """JSON."""
        return json.dumps(vars(self))


def refused(text: str) -> SubscriptionError:
    """The error that a problem's JSON tells of.

    Example:
        >>> raise refused(Problem("subscription 3: temp is 1").to_text())
        Traceback (most recent call last):
        evflow.errors.SubscriptionError: subscription 3: temp is 1
    """
    problem = Problem(**from_json(text))
    return SubscriptionError(problem.message, problem.source, problem.line, problem.column)


def pieces_of(form: Form, batches: Iterator[pa.RecordBatch]) -> Iterator[Piece | Problem]:
    """The subscriptions of a task's rows, in pieces; the last may be why there are no more."""
    try:
        for table in _gathered(batches):
            yield read_piece(form, table)
    except SubscriptionError as error:
        yield Problem(error.message, error.source, error.line, error.column)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of a task in fewer and larger tables, of which none is empty."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(b.num_rows for b in held) >= _ROWS or sum(b.nbytes for b in held) >= _BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def read_piece(form: Form, table: pa.Table) -> Piece:
    """The subscriptions of some rows.

    Raises:
        SubscriptionError: one is malformed; names its id, and what is wrong where.
    """
    ids = table.column("id")
    if ids.null_count:
        raise SubscriptionError(f"subscriptions: column {form.id} is null in a row; each has an id")
    try:
        columns = _columns(form, table)
    except SubscriptionError:
        for row, id in enumerate(ids.to_pylist()):
            _explain(form, table.slice(row, 1), id)
        raise
    return Piece(columns.grouped(), ids.to_numpy())


def _explain(form: Form, row: pa.Table, id: int) -> None:
    """Raises the error of one row, if it has one, with its id."""
    try:
        if form.text and row.column("subscription")[0].is_valid:
            as_subscription(row.column("subscription")[0].as_py())
        _columns(form, row)
    except SubscriptionError as error:
        message = (
            error.message.removeprefix("filter 0, ")
            .removeprefix("filter 0: ")
            .removeprefix("subscription 0: ")
        )
        raise SubscriptionError(
            f"subscription {id}: {message}", error.source, error.line, error.column
        ) from None


def _columns(form: Form, table: pa.Table) -> FilterColumns:
    """The rows as checked columns of filters."""
    if form.text:
        texts = table.column("subscription")
        if texts.null_count:
            raise SubscriptionError("filter 0: its text is null")
        columns = FilterColumns.from_subscriptions(texts.to_pylist())
        columns.check(form.space)
        return columns
    found = _contents(table) if form.constraints else _nothing(table.num_rows)
    columns = FilterColumns.from_arrays(**found, **_areas(table, form), space=form.space)
    columns.check(form.space)
    return columns


def _contents(table: pa.Table) -> dict[str, Any]:
    from evflow.matching.columns.arrow import read_filters

    return read_filters(table.select(["constraints"]))


def _nothing(count: int) -> dict[str, Any]:
    """So many filters without constraints."""
    return {
        "name": np.zeros(0, np.int32),
        "names": (),
        "op": np.zeros(0, np.uint8),
        "start": np.zeros(count + 1, np.int64),
    }


def _areas(table: pa.Table, form: Form) -> dict[str, Any]:
    if not form.area:
        return {}
    columns = [table.column(role) for role in ("x", "y", "radius")]
    missing = [column.is_null().to_numpy() for column in columns]
    numbers = [np.array(column.fill_null(np.nan).to_numpy(), np.float64) for column in columns]
    for lacks, held in zip(missing, numbers, strict=True):
        # Without a centre a filter is true everywhere, which nobody means with NaN or with half an area.
        wrong = np.flatnonzero((lacks != missing[0]) | (np.isnan(held) & ~lacks))
        if len(wrong):
            raise SubscriptionError(f"filter {wrong[0]}: {_told(form, columns, int(wrong[0]))}")
    return dict(zip(("x", "y", "radius"), numbers, strict=True))


def _told(form: Form, columns: list[pa.ChunkedArray], row: int) -> str:
    values = (column[row].as_py() for column in columns)
    told = (
        f"{name} {'null' if held is None else held}" for name, held in zip(form.area, values, strict=True)
    )
    return f"its area is {', '.join(told)}; an area has three numbers, or is null in all three"
