"""What evflow's matching was to reach, as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass

from matching_report import Cell, text


@dataclass(frozen=True)
class Goal:
    """Something that is to be at most, or at least, some number.

    Attributes:
        unit: "ns" for durations, else what stands behind the number.
        note: what else is worth knowing.
    """

    what: str
    measured: float
    asked: float | None = None
    unit: str = "ns"
    note: str = ""
    least: bool = False

    def row(self) -> list[Cell]:
        if self.asked is None:
            return [self.what, text(self.measured, self.unit), "", "", self.note]
        met = self.measured >= self.asked if self.least else self.measured <= self.asked
        asked = f"{'≥' if self.least else '≤'} {text(self.asked, self.unit)}"
        return [self.what, text(self.measured, self.unit), asked, "yes" if met else "no", self.note]


def matches(count: float) -> str:
    return f"{count:,.3g} matches" if count < 1000 else f"{count:,.0f} matches"


@dataclass(frozen=True)
class Size:
    """How much is measured; ``quick`` is a hundredth of the filters."""

    quick: bool

    def __call__(self, count: int) -> int:
        return max(100, count // 100) if self.quick else count

    @property
    def events(self) -> int:
        return 1_000 if self.quick else 100_000


def per_match(cpu: float, count: float) -> str:
    return f"{matches(count)}, {text(cpu / max(count, 1e-9), 'ns')} each"
