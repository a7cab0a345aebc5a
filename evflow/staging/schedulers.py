"""When a staging node pulls what: the four schedulers of DataStager, and how to combine them.

A scheduler orders what writers offer and may hold an offer back, for a reason. It is asked again before each
piece.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from evflow.staging.model import expect

if TYPE_CHECKING:
    from evflow.staging.pulling import Transfer as Offer

__all__ = ["All", "AvoidCongestion", "ConstantDrain", "InOrder", "RateLimit", "Scheduler"]


class Hold(NamedTuple):
    """Why an offer is held back; ``until`` when at most, None if that is not known; ``child`` is the child of
    a node that knows more, since it is there and has not given its part."""

    reason: str
    until: float | None = None
    child: object = None


class Scheduler(Struct, tag=True):
    """Pulls in the order of announcements, without any limit; the base of the others.

    Example:
        >>> from evflow import staging
        >>> staging.Scheduler()
        Scheduler()
    """

    def order(self, offer: Offer) -> tuple[Any, ...]:
        """Offers with smaller keys come first; ``offer`` is one of those there are."""
        return (offer.since, offer.step, offer.rank)

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        """Whether no piece of an offer may be pulled now.

        Args:
            offer: the offer.
            offers: all that there are.
            behind: ranks that may still announce what comes before the offer by step and rank.
            now: seconds on a clock that only goes forward.

        Returns:
            None if a piece of it may be pulled now.
        """
        return None

    def pulled(self, offer: Offer, size: int, now: float) -> None:
        """Notes that ``size`` bytes of ``offer`` are being pulled from ``now`` on."""

    @property
    def times(self) -> bool:
        """Whether it says when memory of the application is read, and not only in which order: then steps
        are copied when it allows that, even if they could be stored from where they are."""
        return False


class ConstantDrain(Scheduler, tag=True):
    """Pulls at most ``pulls`` steps of writers at a time, and begins the next when one of them is done.

    Args:
        pulls: how many at a time, 1 or more.

    Example:
        >>> from evflow import staging
        >>> staging.ConstantDrain(pulls=2).pulls
        2
    """

    pulls: int = 1

    def __post_init__(self) -> None:
        fits = isinstance(self.pulls, int) and self.pulls >= 1
        expect(fits, "constant drain: pulls", self.pulls, "an integer of 1 or more")

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        if offer.begun or sum(other.begun for other in offers) < self.pulls:
            return None
        return Hold(f"{self.pulls} pulls at a time are allowed, and are under way")


class AvoidCongestion(Scheduler, tag=True):
    """Pulls nothing from a writer whose application says that it is communicating (``Writer.communicating``).

    What is under way when that begins ends with its piece, so small pieces disturb for a short time only.

    Example:
        >>> from evflow import staging
        >>> scheduler = staging.All([staging.AvoidCongestion(), staging.ConstantDrain(1)])
    """

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        return Hold(f"the application of rank {offer.rank} is communicating") if offer.communicating else None

    @property
    def times(self) -> bool:
        return True


class InOrder(Scheduler, tag=True):
    """Pulls in the order of a key, one after another: nothing begins before what comes earlier by its key.

    Args:
        key: attributes in the order in which they count: "step" and "rank", or "rank" and "step".

    Example:
        >>> from evflow import staging
        >>> staging.InOrder(("step", "rank")).key
        ('step', 'rank')
    """

    key: tuple[str, ...] = ("step", "rank")

    def __post_init__(self) -> None:
        listed = isinstance(self.key, tuple | list)
        fits = listed and tuple(self.key) in (("step", "rank"), ("rank", "step"))
        expect(fits, "in order: key", self.key, "('step', 'rank') or ('rank', 'step')")

    def order(self, offer: Offer) -> tuple[Any, ...]:
        return tuple(getattr(offer, name) for name in self.key)

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        if offer.begun:
            return None
        first = min(offers, key=lambda other: (not other.begun, self.order(other)))
        if first is not offer:
            return Hold(f"step {first.step} of rank {first.rank} comes first")
        if self.key[0] == "rank" or not behind:
            return None
        return Hold(f"a step up to {offer.step} of rank {min(behind)} may come first, and is not announced")


class RateLimit(Scheduler, tag=True, dict=True):
    """Pulls from each writer at most ``rate`` bytes a second: over any time, so many and one piece more.

    Args:
        rate: bytes a second that leave one process of the application.

    Example:
        >>> from evflow import staging
        >>> staging.RateLimit(100 << 20).rate
        104857600.0
    """

    rate: float

    def __post_init__(self) -> None:
        fits = isinstance(self.rate, int | float) and 0 < self.rate <= sys.float_info.max
        expect(fits, "rate limit: rate", self.rate, "bytes a second, more than 0")
        self.rate = float(self.rate)
        # No field, so that it is not among the settings.
        self._next: dict[int, float] = {}

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        due = self._next.get(offer.rank, now)
        return Hold(f"rank {offer.rank} may send {self.rate:g} bytes a second", due) if due > now else None

    def pulled(self, offer: Offer, size: int, now: float) -> None:
        self._next[offer.rank] = max(self._next.get(offer.rank, now), now) + size / self.rate

    @property
    def times(self) -> bool:
        return True


class All(Scheduler, tag=True):
    """Pulls a piece only if all of several schedulers allow it, in the order of the first.

    Args:
        schedulers: one or more.

    Example:
        >>> from evflow import staging
        >>> scheduler = staging.All([staging.InOrder(), staging.AvoidCongestion(), staging.RateLimit(1e9)])
    """

    schedulers: Sequence[Kind]

    def __post_init__(self) -> None:
        given: Any = self.schedulers
        fits = isinstance(given, list | tuple) and given and all(isinstance(one, Scheduler) for one in given)
        expect(fits, "all: schedulers", given, "a list of one or more")

    def order(self, offer: Offer) -> tuple[Any, ...]:
        return self.schedulers[0].order(offer)

    def hold(self, offer: Offer, offers: Sequence[Offer], behind: Sequence[int], now: float) -> Hold | None:
        held = (scheduler.hold(offer, offers, behind, now) for scheduler in self.schedulers)
        return next((hold for hold in held if hold is not None), None)

    def pulled(self, offer: Offer, size: int, now: float) -> None:
        for scheduler in self.schedulers:
            scheduler.pulled(offer, size, now)

    @property
    def times(self) -> bool:
        return any(scheduler.times for scheduler in self.schedulers)


Kind = Scheduler | ConstantDrain | AvoidCongestion | InOrder | RateLimit | All
"""What settings may name: one of these classes."""
