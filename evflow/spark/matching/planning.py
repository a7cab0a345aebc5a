"""Which plan, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SparkError
from evflow.spark.matching.bounds import places_of
from evflow.spark.matching.events import Question
from evflow.spark.matching.layout import Layout, layout_for
from evflow.spark.matching.options import Limits
from evflow.spark.matching.subscriptions import Survey, counted, refuse_repeats, survey

_SAMPLE = 20_000
"""Events whose places are looked at, and areas, about."""


@dataclass(frozen=True)
class Explanation:
    """Which plan matches, and why; ``str`` tells it in lines.

    Attributes:
        plan: ``broadcast`` or ``tiles``.
        why: in words.
        subscriptions: how many there are, counted.
        index_bytes: of an index of all of them, estimated.
        memory: bytes that an index may take in an executor.
        tiles: how many; 0 for the broadcast plan.
        divided: tiles whose events several tasks share.
        partitions: tasks of the tiles plan.
        copies: tasks that a subscription in tiles goes to, on average, estimated.
        missing: attributes that subscriptions ask for and events lack; None if that was not looked at.
    """

    plan: str
    why: str
    subscriptions: int
    index_bytes: int
    memory: int
    tiles: int = 0
    divided: int = 0
    partitions: int = 0
    copies: float = 0.0
    missing: tuple[str, ...] | None = None

    def __str__(self) -> str:
        lines = [
            f"plan: {self.plan}, since {self.why}",
            f"subscriptions: {self.subscriptions:,} (counted)",
            f"index of all of them: {_shown(self.index_bytes)} (estimated); "
            f"it may take {_shown(self.memory)}",
        ]
        if self.plan == "tiles":
            lines += [
                f"tiles: {self.tiles:,} in {self.partitions} partitions, made for samples of both sides",
                f"skew: the events of {self.divided} of them are shared by several tasks",
                f"a subscription goes to {self.copies:.2f} tasks on average (estimated)",
            ]
        if self.missing:
            lines.append(f"attributes that no event has: {', '.join(self.missing)}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Plan:
    """An explanation, and for the tiles plan what it is made of."""

    explanation: Explanation
    survey: Survey | None = None
    layout: Layout | None = None


def planned(question: Question, plan: str, limits: Limits) -> Plan:
    """Chooses a plan; for tiles it reads the subscriptions, and a sample of the events.

    Raises:
        SparkError: the plan cannot be.
        SubscriptionError: a subscription is malformed, where they were read.
    """
    if plan == "tiles" and question.events.isStreaming:
        raise SparkError(
            "plan 'tiles': events that stream take 'broadcast'; or match each micro-batch in foreachBatch"
        )
    count, size = counted(question.given)
    told: dict[str, Any] = {"subscriptions": count, "index_bytes": size, "memory": limits.memory}
    fits = size <= limits.memory
    if plan == "broadcast" or (plan == "auto" and (fits or question.events.isStreaming)):
        why = _why_broadcast(plan, fits)
        return Plan(Explanation("broadcast", why, **told))
    found = survey(question.given, min(1.0, _SAMPLE / max(count, 1)))
    told["index_bytes"] = size = found.nbytes
    if plan == "auto" and size <= limits.memory:
        return Plan(Explanation("broadcast", "the index fits, as reading the subscriptions showed", **told))
    if not found.areas:
        return Plan(
            Explanation(
                "broadcast", "no subscription has an area, so there is nothing to make tiles of", **told
            )
        )
    return _with_tiles(
        question, found, limits, told, "it was asked for" if plan == "tiles" else "the index does not fit"
    )


def _why_broadcast(plan: str, fits: bool) -> str:
    if plan == "broadcast":
        return "it was asked for" if fits else "it was asked for, though the index is larger than it may be"
    return "the index fits" if fits else "the events stream, which tiles cannot"


def _with_tiles(question: Question, found: Survey, limits: Limits, told: dict[str, Any], why: str) -> Plan:
    question.needs_places()
    refuse_repeats(question.given)
    each = told["index_bytes"] / max(found.filters, 1)
    layout = layout_for(
        question.given.settings.space,
        _sampled(question),
        found.boxes,
        partitions=limits.partitions,
        most_boxes=limits.tile / each * found.share,
        most_wide=limits.memory / 2 / each * found.share,
    )
    missing = sorted(found.names - set(question.shape(found.names).attributes))
    explanation = Explanation(
        "tiles",
        why,
        **told,
        tiles=len(layout.tiles),
        divided=layout.divided,
        partitions=layout.partitions,
        copies=layout.copies,
        missing=tuple(missing),
    )
    return Plan(explanation, found, layout)


def _sampled(question: Question) -> NDArray[np.float64]:
    """(N, 2): the places of events by chance."""
    from pyspark.sql import functions as F

    shape = question.shape(())
    events = question.events.select(*question.columns(shape))
    columns = [F.col(shape.column(name)).cast("double") for name in question.given.settings.location]
    table = events.select(*columns).orderBy(F.rand(7)).limit(_SAMPLE).toArrow()
    numbers: Sequence[NDArray[np.float64]] = [
        column.fill_null(np.nan).to_numpy().astype(np.float64) for column in table.columns
    ]
    return places_of(question.given.settings.space, numbers[0], numbers[1])


def _shown(nbytes: float) -> str:
    """Bytes in the unit that suits their size.

    Example:
        >>> _shown(81_000_000)
        '81 MB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} bytes"
