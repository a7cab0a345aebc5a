"""How large things are: what an executor has, and what an index will take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from evflow.errors import SparkError
from evflow.spark.matching.shipping import is_connect, is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from evflow.spark.matching.asked import Asked

__all__ = ["bytes_of", "cores_of", "counted", "memory_of", "shown"]

_FILTER, _CONSTRAINT = 80, 50
"""Bytes in the index, found by measuring."""

_UNITS = {"": 1 << 20, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def bytes_of(filters: int, constraints: int, characters: int) -> int:
    """The bytes of an index, estimated."""
    return _FILTER * filters + _CONSTRAINT * constraints + 2 * characters


def counted(asked: Asked) -> tuple[int, int]:
    """How many subscriptions there are, and the bytes of an index of them, estimated without reading them.

    One aggregate, which Spark makes by itself; none for areas that the driver holds in any case.
    """
    from pyspark.sql import functions as F

    form, rows = asked.form, asked.rows
    held = None if form.text or form.constraints else _held(rows)
    if held is not None:
        return held, bytes_of(held, 0, 0)
    size = F.length("subscription") if form.text else F.size("constraints") if form.constraints else F.lit(0)
    count, total = rows.agg(F.count("*"), F.coalesce(F.sum(size), F.lit(0))).collect()[0]
    # A constraint takes about 25 characters.
    constraints = total // 25 if form.text else total
    return int(count), bytes_of(int(count), int(constraints), 0)


def _held(rows: DataFrame) -> int | None:
    """How many rows of a DataFrame the driver holds, as those of local data; None if it is made of others."""
    if is_connect(rows.sparkSession):
        return None
    classic: Any = rows
    plan = classic._jdf.queryExecution().optimizedPlan()
    return int(plan.data().size()) if plan.getClass().getSimpleName() == "LocalRelation" else None


def memory_of(spark: SparkSession) -> int:
    """Half of an executor's memory in bytes: what an index may take, which is beside Java's own."""
    key = "spark.driver.memory" if is_local(spark) else "spark.executor.memory"
    given = str(spark.conf.get(key, "1g")).strip().lower()
    parts = re.fullmatch(r"(\d+)([kmgt]?)b?", given)
    if parts is None:
        raise SparkError(f"{key} is {given!r}: expected a size such as 4g; or give memory= in bytes")
    return int(parts[1]) * _UNITS[parts[2]] // 2


def cores_of(spark: SparkSession) -> int:
    """Tasks that an executor runs at once."""
    if is_local(spark):
        return int(spark.sparkContext.defaultParallelism)
    return int(str(spark.conf.get("spark.executor.cores", "1")))


def shown(nbytes: float) -> str:
    """Bytes in the unit that suits their size.

    Example:
        >>> shown(81_000_000)
        '81 MB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} bytes"
