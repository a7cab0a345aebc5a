"""One node of the tree that puts steps together, without sockets: parts of children become one part.

A child is a writer, or another node of the tree. Each step that a child knows of is announced and then
arrives; a child that has passed a step without announcing it has no part in it. A node gives the oldest step
on as soon as each child's part has arrived or is missing. While it does, it settles the offsets of open
variables: a block's rows begin behind those of all earlier children. Each level of the tree adds up its share
of this prefix sum, so the root handles a number a child, not a writer.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evflow.staging.messages import Ready
from evflow.staging.model import Block, Variable
from evflow.staging.schedulers import Hold


@dataclass
class Part:
    """A step, as far as one node knows it.

    Attributes:
        times: the times that its writers have given it.
        blocks: rank → the writer's blocks; offsets of open variables count from the node's first row.
        data: rank → the bytes of each of these blocks.
        rows: how many rows of each open variable there are.
        missing: ranks that have no part in it.
        lives: rank → the life of the writer whose blocks these are.
    """

    step: int
    times: set[float] = field(default_factory=set)
    blocks: dict[int, tuple[Block, ...]] = field(default_factory=dict)
    data: dict[int, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    missing: tuple[int, ...] = ()
    lives: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rank: int, life: int, ready: Ready, variables: Mapping[str, Variable], data: Any) -> Part:
        """The part of a writer."""
        rows = {block.variable: block.shape[0] for block in ready.blocks if variables[block.variable].open}
        return cls(ready.step, {ready.time}, {rank: ready.blocks}, {rank: data}, rows, (), {rank: life})

    @property
    def writers(self) -> dict[int, int]:
        """Rank → the life of the writer whose part it is; 0 for a rank that is missing."""
        return self.lives | dict.fromkeys(self.missing, 0)

    @property
    def nbytes(self) -> int:
        """Bytes of all its blocks."""
        return sum(block.nbytes for blocks in self.blocks.values() for block in blocks)

    def of_variable(self, name: str) -> list[tuple[int, Block, Any]]:
        """Rank, block and bytes of each writer that has a block of a variable."""
        return [
            (rank, block, data)
            for rank, blocks in self.blocks.items()
            for block, data in zip(blocks, self.data[rank], strict=True)
            if block.variable == name
        ]

    def append(self, other: Part) -> None:
        """Puts the part of the next child behind this one."""
        self.times |= other.times
        for rank, blocks in other.blocks.items():
            self.blocks[rank] = tuple(block.moved(self.rows.get(block.variable, 0)) for block in blocks)
        self.data |= other.data
        for name, count in other.rows.items():
            self.rows[name] = self.rows.get(name, 0) + count
        self.missing += other.missing
        self.lives |= other.lives


@dataclass
class _Child:
    ranks: tuple[int, ...]
    last: int = -1
    here: bool = False
    # When it was lost; None if it never came.
    lost: float | None = None
    left: bool = False


class Gathering:
    """One node of the tree.

    Args:
        children: child → the ranks of the writers beneath it, in the order in which their rows stand.
        patience: as of ``Stage``.
    """

    def __init__(self, children: Mapping[Hashable, Sequence[int]], patience: float) -> None:
        self._children = {child: _Child(tuple(ranks)) for child, ranks in children.items()}
        self._patience = patience
        # Step → child → its part; None until that arrives.
        self.open: dict[int, dict[Hashable, Part | None]] = {}
        self._since: dict[int, float] = {}

    def joined(self, child: Hashable, last: int, held: Collection[int], now: float) -> None:
        """A child is connected; it announces no step up to ``last`` but those in ``held``."""
        known = self._children[child]
        known.last, known.here, known.left = last, True, False
        for step in [step for step, parts in self.open.items() if step not in held]:
            self.withdrawn(child, step)
        for step in held:
            self.announced(child, step, now)

    def opened(self, step: int, now: float) -> None:
        """A step is to be put together, whoever has a part in it."""
        self._since.setdefault(step, now)
        self.open.setdefault(step, {})

    def announced(self, child: Hashable, step: int, now: float) -> None:
        """A child will have a part in a step."""
        self.opened(step, now)
        self.open[step].setdefault(child, None)

    def passed(self, child: Hashable, step: int) -> None:
        """A child announces no step up to this one any more."""
        known = self._children[child]
        known.last = max(known.last, step)

    def arrived(self, child: Hashable, part: Part) -> None:
        """The part of a child is here; nothing changes if the step is not open, or the part has been here."""
        if part.step in self.open and not self.has(child, part.step):
            self.open[part.step][child] = part

    def again(self, child: Hashable, step: int) -> None:
        """The part of a child comes, perhaps once more: the new one counts."""
        self.open[step][child] = None

    def withdrawn(self, child: Hashable, step: int) -> None:
        """A child has no part in a step any more."""
        if self.open.get(step, {}).get(child, 0) is None:
            del self.open[step][child]

    def lost(self, child: Hashable, now: float, offers: bool = True) -> None:
        """The connection to a child has ended; it ``offers`` still what it has announced, or does not."""
        known = self._children[child]
        known.here, known.lost = False, now
        if not offers:
            for step in list(self.open):
                self.withdrawn(child, step)

    def left(self, child: Hashable) -> None:
        """A child announces no more steps."""
        self._children[child].left = True

    def close(self, step: int) -> None:
        """Forgets a step."""
        self.open.pop(step, None)
        self._since.pop(step, None)

    @property
    def behind(self) -> list[tuple[Hashable, int]]:
        """Children that are connected and may announce more, and the newest step of each."""
        return [(key, child.last) for key, child in self._children.items() if child.here and not child.left]

    def has(self, child: Hashable, step: int) -> bool:
        """Whether the part of a child has arrived."""
        return self.open.get(step, {}).get(child) is not None

    def next(self, now: float) -> Part | Hold | None:
        """The oldest step, put together, which stays open until ``close``; why it is not complete; None if no
        step is open."""
        if not self.open:
            return None
        step = min(self.open)
        parts = self.open[step]
        waits: Hold | None = None
        whole = Part(step)
        for key, child in self._children.items():
            part = parts.get(key)
            hold = None if part else self._hold(key, child, step, now)
            if hold is None:
                whole.append(part or Part(step, missing=child.ranks))
            elif waits is None or waits.until is not None:
                waits = hold
        return waits or whole

    def _hold(self, key: Hashable, child: _Child, step: int, now: float) -> Hold | None:
        """Why a part that has not arrived is waited for; None if it is missing."""
        who = f"rank {key}" if isinstance(key, int) else str(key)
        if key in self.open[step]:
            return Hold(f"step {step} of {who} is not pulled yet", child=key)
        if child.last >= step or child.left:
            return None
        if child.here:
            return Hold(f"{who} has not announced step {step} yet", child=key)
        since = self._since[step] if child.lost is None else child.lost
        if now >= since + self._patience:
            # Later steps do not wait for it once more.
            child.lost = since
            return None
        state = "has not connected" if child.lost is None else "is not connected any more"
        return Hold(f"{who} {state}; step {step} waits {self._patience:g} s for it", since + self._patience)
