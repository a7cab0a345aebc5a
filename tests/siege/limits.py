"""What a siege allows: every figure that its judge uses, in one place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits of a run; seconds and bytes.

    Attributes:
        silent: how long an event may be under way while all nodes and ways on its path are well.
        recovery: time after a kill, stop, cut, full disk or slow handler in which its effects may go on.
        unheard: how long a node that is well may leave questions without an answer.
        settle: time after the last attack within which everything that was submitted is handled.
        turn: how long before a kill an event may have been handled that its terminal sees again.
        memory: resident memory of a node.
        descriptors: open files and sockets of a node; also the limit that the system is told.
        grown: descriptors that a node may have more at the end than before the first attack.
    """

    silent: float = 5.0
    recovery: float = 5.0
    unheard: float = 10.0
    settle: float = 40.0
    turn: float = 2.0
    memory: int = 1 << 30
    descriptors: int = 1024
    grown: int = 32
