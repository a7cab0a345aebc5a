"""When a staging node pulls what: the four schedulers of DataStager, and how to combine them.

A scheduler orders what writers offer and may hold an offer back, for a reason. It is asked again before each
piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from evflow.errors import StagingError
from evflow.outside import shown

__all__ = ["All", "AvoidCongestion", "ConstantDrain", "InOrder", "RateLimit", "Scheduler"]


class Offer(Protocol):
    """A step of one writer that is not pulled yet.

    Attributes:
        rank: of the writer.
        step: its number.
        since: when it was announced, in seconds.
        begun: whether a part of it was pulled.
        communicating: whether its application is communicating now.
    """

    rank: int
    step: int
    since: float
    begun: bool

    @property
    def communicating(self) -> bool: ...


class Hold(NamedTuple):
    """Why an offer is held back; ``until`` when at most, None if that is not known."""

    reason: str
    until: float | None = None


class Scheduler:
    """Pulls in the order of announcements, without any limit; the base of the others.

    Example:
        >>> from evflow import staging
        >>> staging.Scheduler().plain()
        ['Scheduler']
    """

    def plain(self) -> list[Any]:
        """The scheduler as plain data: the name of its class, and its arguments."""
        return [type(self).__name__]

    def key(self, offer: Offer) -> tuple[Any, ...]:
        """Offers with smaller keys come first; ``offer`` is one of those there are."""
        return (offer.since, offer.step, offer.rank)

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        """Whether no piece of an offer may be pulled now.

        Args:
            offer: the offer.
            offers: all that there are.
            behind: ranks that may still announce the step of the offer, or one before it.
            now: seconds on a clock that only goes forward.

        Returns:
            None if a piece of it may be pulled now.
        """
        return None

    def pulled(self, offer: Offer, size: int, now: float) -> None:
        """Notes that ``size`` bytes of ``offer`` are being pulled from ``now`` on."""


class ConstantDrain(Scheduler):
    """Pulls at most ``pulls`` steps of writers at a time, and begins the next when one of them is done.

    Args:
        pulls: how many at a time, 1 or more.

    Example:
        >>> from evflow import staging
        >>> staging.ConstantDrain(pulls=2).pulls
        2
    """

    def __init__(self, pulls: int = 1) -> None:
        if not isinstance(pulls, int) or pulls < 1:
            raise StagingError(f"constant drain: pulls {pulls!r}: expected an integer of 1 or more")
        self.pulls = pulls

    def plain(self) -> list[Any]:
        return ["ConstantDrain", self.pulls]

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        if offer.begun or sum(other.begun for other in offers) < self.pulls:
            return None
        return Hold(f"{self.pulls} pulls at a time are allowed, and are under way")


class AvoidCongestion(Scheduler):
    """Pulls nothing from a writer whose application says that it is communicating (``Writer.communicating``).

    What is under way when that begins ends with its piece, so small pieces disturb for a short time only.

    Example:
        >>> from evflow import staging
        >>> scheduler = staging.All(staging.AvoidCongestion(), staging.ConstantDrain(1))
    """

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        return Hold(f"the application of rank {offer.rank} is communicating") if offer.communicating else None


class InOrder(Scheduler):
    """Pulls in the order of a key, one after another: nothing begins before what comes earlier by its key.

    Args:
        key: attributes in the order in which they count: "step" and "rank", or "rank" and "step".

    Example:
        >>> from evflow import staging
        >>> staging.InOrder(("step", "rank")).by
        ('step', 'rank')
    """

    def __init__(self, key: Sequence[str] = ("step", "rank")) -> None:
        if sorted(key) != ["rank", "step"]:
            raise StagingError(f"in order: key {key!r}: expected ('step', 'rank') or ('rank', 'step')")
        self.by = tuple(key)

    def plain(self) -> list[Any]:
        return ["InOrder", list(self.by)]

    def key(self, offer: Offer) -> tuple[Any, ...]:
        return tuple(getattr(offer, name) for name in self.by)

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        if offer.begun:
            return None
        first = min(offers, key=lambda other: (not other.begun, self.key(other)))
        if first is not offer:
            return Hold(f"step {first.step} of rank {first.rank} comes first")
        if self.by[0] == "step" and behind:
            return Hold(
                f"a step up to {offer.step} of rank {min(behind)} may come first, and is not announced"
            )
        return None


class RateLimit(Scheduler):
    """Pulls from each writer at most ``rate`` bytes a second: over any time, so many and one piece more.

    Args:
        rate: bytes a second that leave one process of the application.

    Example:
        >>> from evflow import staging
        >>> staging.RateLimit(100 << 20).rate
        104857600
    """

    def __init__(self, rate: float) -> None:
        if not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise StagingError(f"rate limit: rate {rate!r}: expected bytes a second, more than 0")
        self.rate = rate
        self._next: dict[int, float] = {}

    def plain(self) -> list[Any]:
        return ["RateLimit", self.rate]

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        due = self._next.get(offer.rank, now)
        return Hold(f"rank {offer.rank} may send {self.rate:g} bytes a second", due) if due > now else None

    def pulled(self, offer: Offer, size: int, now: float) -> None:
        self._next[offer.rank] = max(self._next.get(offer.rank, now), now) + size / self.rate


class All(Scheduler):
    """Pulls a piece only if all of several schedulers allow it, in the order of the first.

    Args:
        schedulers: one or more.

    Example:
        >>> from evflow import staging
        >>> scheduler = staging.All(staging.InOrder(), staging.AvoidCongestion(), staging.RateLimit(1e9))
    """

    def __init__(self, *schedulers: Scheduler) -> None:
        if not schedulers:
            raise StagingError("all: expected one scheduler or more")
        self.schedulers = schedulers

    def plain(self) -> list[Any]:
        return ["All", *(scheduler.plain() for scheduler in self.schedulers)]

    def key(self, offer: Offer) -> tuple[Any, ...]:
        return self.schedulers[0].key(offer)

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        held = (scheduler.hold(offer, offers, behind, now) for scheduler in self.schedulers)
        return next((hold for hold in held if hold is not None), None)

    def pulled(self, offer: Offer, size: int, now: float) -> None:
        for scheduler in self.schedulers:
            scheduler.pulled(offer, size, now)


_KINDS = {
    kind.__name__: kind for kind in (Scheduler, ConstantDrain, AvoidCongestion, InOrder, RateLimit, All)
}


def scheduler_of(plain: Any) -> Scheduler:
    """The scheduler that ``Scheduler.plain`` described.

    Raises:
        StagingError: there is none like that.
    """
    try:
        name, *arguments = plain
        kind: Any = _KINDS[name]
        return kind(*map(scheduler_of, arguments)) if kind is All else kind(*arguments)
    except (TypeError, KeyError, ValueError, RecursionError):
        raise StagingError(f"scheduler {shown(plain)}: expected one of {', '.join(_KINDS)}") from None
