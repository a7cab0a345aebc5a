"""What a seed chooses: sizes, times, how many faults, and how the network behaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from unittest import mock

from evflow.net.link import outlet as outlet_module
from evflow.net.link import session as session_module
from tests.link.simulation.network import Manner

__all__ = ["Setting", "draw", "draw_manner", "sizes"]


@dataclass(frozen=True)
class Setting:
    """What a seed has chosen.

    Attributes:
        heartbeat, window, memory: of every hub.
        limit: bytes that each bridge may owe.
        frame: bytes at which frames are cut.
        large: bytes from which frames go through shared memory.
        latency: seconds that a process takes at most to wake up.
        told: whether nodes tell their contact.
        events: how many each source submits.
        ends: when the last fault is over.
        journals: whether nodes keep a journal.
        faults: how many.
    """

    heartbeat: float
    window: int
    memory: int
    limit: int
    frame: int
    large: int
    latency: float
    told: bool
    events: int
    ends: float
    journals: bool
    faults: int


def draw(random: Random, holds: bool) -> Setting:
    """A setting; with a limit that is never reached if ``holds``."""
    heartbeat, window = random.choice((0.1, 0.3, 1.0)), random.choice((300, 3000, 30_000, 8 << 20))
    return Setting(
        heartbeat=heartbeat,
        window=window,
        # Chosen by what is chosen already, so that a seed still means all else that it did.
        memory=Random(f"{heartbeat} {window} {random.getstate()[1][-1]}").choice((2000, 40_000, 256 << 20)),
        limit=random.choice((64 << 20,) if holds else (500, 4000, 64 << 20)),
        frame=random.choice((300, 2000, 1 << 20)),
        large=random.choice((1, 150, 600)),
        latency=random.choice((0.0, 0.001, 0.01)),
        told=random.random() < 0.5,
        events=random.randint(1, 120),
        ends=random.uniform(0.5, 12.0),
        journals=random.random() < 0.8,
        faults=random.choice((0, 1, 2, 4, 8)),
    )


def draw_manner(random: Random) -> Manner:
    """A manner of the network."""
    slow = random.choice((0.0005, 0.02, 0.3))
    return Manner(
        delay=(slow / random.choice((1, 10, 100)), slow),
        reconnect=random.choice(((0.001, 0.01), (0.01, 1.0))),
        knows=random.choice((0.0, 0.5, 1.0)),
        shared_memory=random.choice((0, 0, 700, 20_000)),
        opens=random.choice((0.5, 1.0)),
    )


@contextmanager
def sizes(setting: Setting) -> Iterator[None]:
    """Makes frames small, so that few events are many frames."""
    with (
        mock.patch.object(outlet_module, "_FRAME", setting.frame),
        mock.patch.object(session_module, "LARGE", setting.large),
    ):
        yield
