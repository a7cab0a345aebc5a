"""The options of ``match`` and ``explain``, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from evflow.errors import SparkError, SubscriptionError
from evflow.matching.engine import ENGINES
from evflow.matching.space import LOCATIONS
from evflow.spark.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evflow.matching.matcher import Matcher

PLANS = ("auto", "broadcast", "tiles")

_UNITS = {"": 1 << 20, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True)
class Settings:
    """What a matcher is told, besides its subscriptions."""

    engine: str
    space: str
    location: tuple[str, str]
    options: tuple[tuple[str, Any], ...]

    def matcher(self) -> Matcher:
        """One without subscriptions.

        Raises:
            SubscriptionError: see ``Matcher``.
        """
        from evflow.matching.matcher import Matcher

        return Matcher(self.engine, space=self.space, location=self.location, **dict(self.options))


@dataclass(frozen=True)
class Limits:
    """What a plan may use.

    Attributes:
        memory: bytes of an index that every executor gets.
        tile: bytes of an index of a tile, of which each task has one.
        partitions: tasks that tiles are divided among.
    """

    memory: int
    tile: int
    partitions: int


@dataclass(frozen=True)
class Options:
    """What ``match`` is told besides both sides; see there. ``more`` are the options of the engine."""

    subscription_id: str = "id"
    plan: str = "auto"
    space: str = "plane"
    location: tuple[str, str] | None = None
    engine: str = "index"
    memory: int | None = None
    tile_memory: int | None = None
    partitions: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Options:
        """The options that arguments by name are."""
        own = {one.name for one in fields(cls)} - {"more"}
        known = {name: value for name, value in arguments.items() if name in own}
        return cls(**known, more={name: arguments[name] for name in arguments if name not in own})

    @property
    def changed(self) -> list[str]:
        """The names of the arguments that are not as they are by default, but for the plan of an index."""
        named = [one for one in fields(self) if one.name != "more"]
        changed = [one.name for one in named if getattr(self, one.name) not in (one.default, "broadcast")]
        return [*changed, *self.more]

    @property
    def settings(self) -> Settings:
        """What the matcher is told.

        Raises:
            SubscriptionError: there is no such space or engine.
        """
        if self.space not in LOCATIONS:
            raise SubscriptionError(f"space {self.space!r}: expected 'plane' or 'globe'")
        if self.engine not in ENGINES:
            raise SubscriptionError(f"engine {self.engine!r}: expected one of {', '.join(ENGINES)}")
        location = LOCATIONS[self.space] if self.location is None else (self.location[0], self.location[1])
        return Settings(self.engine, self.space, location, tuple(sorted(self.more.items())))

    def limits(self, spark: SparkSession) -> Limits:
        """What a plan may use: what was given, or else what the session's settings say.

        Raises:
            SparkError: there is no such plan, or a number is not a whole number from 1.
        """
        if self.plan not in PLANS:
            raise SparkError(f"plan {self.plan!r}: expected one of {', '.join(PLANS)}")
        for name in ("memory", "tile_memory", "partitions"):
            given = getattr(self, name)
            if given is not None and (type(given) is not int or given < 1):
                raise SparkError(f"{name}={given!r}: expected a whole number from 1")
        memory = _memory_of(spark) if self.memory is None else self.memory
        tile = max(1, memory // (2 * _cores_of(spark))) if self.tile_memory is None else self.tile_memory
        shuffled = int(str(spark.conf.get("spark.sql.shuffle.partitions", "200")))
        return Limits(memory, tile, self.partitions or shuffled)


def _memory_of(spark: SparkSession) -> int:
    """Half of an executor's memory in bytes: what an index may take, which is beside Java's own."""
    key = "spark.driver.memory" if is_local(spark) else "spark.executor.memory"
    given = str(spark.conf.get(key, "1g")).strip().lower()
    parts = re.fullmatch(r"(\d+)([kmgt]?)b?", given)
    if parts is None:
        raise SparkError(f"{key} is {given!r}: expected a size such as 4g; or give memory= in bytes")
    return int(parts[1]) * _UNITS[parts[2]] // 2


def _cores_of(spark: SparkSession) -> int:
    """Tasks that an executor runs at once."""
    if is_local(spark):
        return int(spark.sparkContext.defaultParallelism)
    return int(str(spark.conf.get("spark.executor.cores", "1")))
