"""The ground: what a deployment does to the node it is on.

A steward decides, the ground does. For a change the steward calls ``check`` and ``begin``, asks ``waiting``
until it is "", calls ``settle`` when all nodes are quiet, asks ``waiting`` again until it is "", then
``leaving``; ``expect`` when this node is ready; and in the end, whenever that is, exactly one of ``commit``
and ``cancel``. A version that changed the node's part without it comes by ``overtake``; of one that did not
change it, it is not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from evflow.deploy.record import Record
from evflow.engine.snapshot import Parts, Snapshot

__all__ = ["Ground"]


class Ground(Protocol):
    """What a deployment does to its node.

    Nothing here may raise: ``check`` says all that is wrong in advance. A deployment is named by
    ``Record.deployment``; a node has one of each name at a time.
    """

    def start(self, records: Iterable[Record], arrived: Mapping[str, Mapping[str, bytes]]) -> None:
        """Takes up all there was; called once, first.

        Changes that this node is prepared for are begun again (``begin``) before the steward's constructor
        returns. No event of these deployments may move before that nor, since snapshots may have been given
        away, after it: they are quiet from the start.

        Args:
            records: the version that each deployment is at.
            arrived: deployment → stone → the snapshot it came with, of those not yet released.
        """

    def check(self, old: Record | None, new: Record) -> str:
        """Why this node cannot do its part of a change, naming the stone; "" if it can. It has no effect."""

    def begin(self, old: Record | None, new: Record, settled: bool = False) -> None:
        """Closes, at once, the entries from which events reach what the change touches here.

        Args:
            old: the version that is.
            new: the version to be.
            settled: whether all nodes were quiet for it already, so that no event at all may move.
        """

    def waiting(self, deployment: str) -> str:
        """What it waits for until what it has closed is quiet; "" once it is.

        After ``settle`` it stays so; before, it may still have to take what comes from other nodes.
        """

    def settle(self, deployment: str) -> str:
        """Closes what ``begin`` has left open for other nodes that were not quiet yet: now all were.

        Gives what ``waiting`` would give then.
        """

    def leaving(self, deployment: str) -> dict[str, Parts]:
        """The snapshots of the stones that leave this node; asked once it is quiet."""

    def expect(self, new: Record, arrived: Mapping[str, Snapshot]) -> None:
        """Does ahead what takes long of a ``commit`` that may come; without any effect."""

    def commit(self, new: Record, arrived: Mapping[str, Snapshot]) -> None:
        """The change was decided: adopts the new part and opens the entries.

        Args:
            new: the version to be at; perhaps a later one than ``begin`` told, with the same part here.
            arrived: the snapshots of the stones that come to this node, but for those of lost nodes.
        """

    def cancel(self, deployment: str) -> None:
        """The change was not decided: opens the entries again, as if nothing had been."""

    def overtake(self, new: Record) -> None:
        """This node's part was changed without it, while it was thought dead: adopts what it is now.

        What is on this node no longer is thrown away: it has gone on elsewhere. A stone that is here as
        before has been here all the time, so it keeps what it holds. Nothing can have come here without this
        node's doing, unless it has lost what it knew; then stones begin anew.
        """
