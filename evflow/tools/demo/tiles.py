"""A day of real flights over the tiles of four processes, matched with airports and with each other."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np

import evflow as ev
from evflow import tiles
from evflow.tools.demo.flights import Airports, airports, read
from evflow.tools.demo.output import Outcome, Progress, progress_bar
from evflow.tools.demo.sky import Sky, flown_on
from evflow.tools.report import table

DAY = "2013-07-01"
HOSTS = ("a", "b", "c", "d")

STEP = 120.0
"""Seconds of flight time from one move to the next."""

NEAR_AIRPORT, NEAR_FLIGHT = 60_000.0, 40_000.0
"""Metres."""

ASKS, ASKED = "UA", "DL"
"""Each flight of the first airline subscribes to those of the other one that are near."""

_VIEW = (38.5, -96.0, 4.5)
_BUSIEST = 10
_AIRPORT = 1 << 32
"""The id of the subscription of the first airport; a flight has its number as both of its ids."""


def _host(name: str, pipe: Pipe) -> None:
    """Runs a host until the other end of the pipe is closed, so that it outlives nobody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (
        tempfile.TemporaryDirectory() as folder,
        ev.Daemon(name, "tcp://127.0.0.1:0", storage=folder, handlers=["evflow.tiles.stone"]) as daemon,
    ):
        pipe.send(daemon.contact)
        with suppress(EOFError):
            pipe.recv()


@contextmanager
def system() -> Iterator[str]:
    """The contact of a system of tiles over four processes; they have ended when the block has."""
    context = multiprocessing.get_context("forkserver")
    # So that it is loaded once, not by each of them.
    context.set_forkserver_preload([__name__, "evflow.deploy.daemon", "evflow.tiles.stone"])
    with ExitStack() as stack:
        pipes = {}
        for name in HOSTS:
            pipes[name], theirs = context.Pipe()
            process = context.Process(target=_host, args=(name, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join, 15)
        for pipe in pipes.values():
            stack.callback(pipe.close)
        try:
            contacts = {name: pipe.recv() for name, pipe in pipes.items()}
        except EOFError:
            raise ev.EvflowError("a process of the demo has ended before it began") from None
        # Tiles of 156 km at the equator: areas are in few of them, and a map can ask for the whole country.
        graph = tiles.graph(HOSTS, replicas=2, metres=156_000)
        stack.enter_context(graph.deploy(contacts))
        yield f"{contacts[HOSTS[0]]}/tiles/{HOSTS[0]}"


class Traffic:
    """Flights as publications, airports and flights of an airline as subscriptions.

    Args:
        contact: of the system.
        sky: the flights.
        known: the airports.
        page: a map, which shows the areas.

    Attributes:
        moves: how many publications and subscriptions were sent.
    """

    def __init__(self, contact: str, sky: Sky, known: Airports, page: tiles.Map | None = None) -> None:
        self._sky, self._known, self._page = sky, known, page
        self._codes = np.unique(sky.dest)
        self._found: list[np.ndarray[Any, Any]] = []
        # The step of each version, by the version; these rise.
        self._versions, self._steps = [0], [-1]
        self._there = np.zeros(0, np.int64)
        self.moves = 0
        self.client = tiles.connect(contact, self._take)

    def _take(self, matches: np.ndarray[Any, Any]) -> None:
        self._found.append(matches)
        if self._page is not None:
            self._page.flash(matches)

    def _sent(self, step: int, version: int, count: int) -> None:
        self._versions.append(version)
        self._steps.append(step)
        self.moves += count

    def begin(self) -> None:
        """Subscribes to what is near airports."""
        ids = _AIRPORT + np.arange(len(self._codes))
        places = np.stack(self._known.places(self._codes), axis=1)
        zones = np.insert(places, 2, NEAR_AIRPORT, axis=1)
        self._sent(-1, self.client.subscribe(ids, zones), len(ids))
        if self._page is not None:
            self._page.show(ids, zones)
        self.client.drain(60)

    def step(self, number: int, when: float) -> int:
        """Moves all flights to where they are, those that subscribe first.

        Args:
            number: of the step.
            when: seconds since 1970 (UTC).

        Returns:
            How many flights have arrived since the step before.
        """
        aloft = self._sky.aloft(when)
        gone = np.setdiff1d(self._there, aloft)
        if len(gone):
            self.client.unpublish(gone)
            self._ask(number, gone[self._sky.carrier[gone] == ASKS], None)
        zones = np.insert(self._sky.places(aloft, when), 2, 0.0, axis=1)
        asking = self._sky.carrier[aloft] == ASKS
        self._ask(number, aloft[asking], zones[asking])
        self.client.drain(60)
        known = np.isin(aloft, self._there)
        if known.any():
            self._sent(number, self.client.move(aloft[known], zones[known]), int(known.sum()))
        for carrier in np.unique(self._sky.carrier[aloft[~known]]).tolist():
            new = ~known & (self._sky.carrier[aloft] == carrier)
            version = self.client.publish(aloft[new], zones[new], {"carrier": carrier})
            self._sent(number, version, int(new.sum()))
        self.client.drain(60)
        self._there = aloft
        return len(gone)

    def _ask(self, number: int, ids: np.ndarray[Any, Any], zones: np.ndarray[Any, Any] | None) -> None:
        if not len(ids):
            return
        if zones is None:
            self.client.unsubscribe(ids)
        else:
            areas = zones + np.array([0.0, 0.0, NEAR_FLIGHT])
            self._sent(number, self.client.subscribe(ids, areas, {"carrier": ASKED}), len(ids))
        if self._page is not None and zones is None:
            self._page.hide(ids)
        elif self._page is not None:
            self._page.show(ids, areas)

    def told(self) -> dict[str, Any]:
        """What has matched until now.

        Returns:
            near: of each airport, by code, its matches and the flights in them.
            met: pairs of flights, who was asked for and who asked, that were near each other in a step.
        """
        rows = np.concatenate([np.zeros(0, tiles.MATCH), *self._found])
        fixed = rows["sub"] >= _AIRPORT
        where, pubs = rows["sub"][fixed] - _AIRPORT, rows["pub"][fixed]
        pairs = np.unique(np.stack((where, pubs), axis=1), axis=0)
        matches, flights = (
            np.bincount(one, minlength=len(self._codes)).tolist() for one in (where, pairs[:, 0])
        )
        near = dict(zip(self._codes.tolist(), zip(matches, flights, strict=True), strict=True))
        moving = rows[~fixed]
        steps = np.array(self._steps)
        of_pub, of_sub = (
            steps[np.searchsorted(self._versions, moving[f"{name}_version"])] for name in ("pub", "sub")
        )
        # Else one of both was where it had been before.
        moving = moving[of_pub == of_sub]
        return {"near": near, "met": set(zip(moving["pub"].tolist(), moving["sub"].tolist(), strict=True))}

    def settle(self, quiet: float = 0.5) -> None:
        """Waits until nothing has matched for so many seconds."""
        count = -1
        while count != len(self._found):
            count = len(self._found)
            time.sleep(quiet)


def fly(traffic: Traffic, begins: float, ends: float, speed: float, progress: Progress, step: float) -> None:
    """Moves flights from step to step.

    Args:
        traffic: the flights.
        begins, ends: seconds since 1970 (UTC).
        speed: seconds of flight time in a second; 0 for as fast as it goes.
        progress: called with the number of flights that arrived.
        step: seconds of flight time between two steps.
    """
    start = time.monotonic()
    for number, when in enumerate(np.arange(begins, ends, step).tolist()):
        progress(traffic.step(number, when))
        if speed:
            time.sleep(max(0.0, start + (number + 1) * step / speed - time.monotonic()))


def play(quiet: bool = False, speed: float = 3600.0, tell: Callable[[str], object] | None = None) -> Outcome:
    """Runs the demo.

    Args:
        quiet: show no progress.
        speed: seconds of flight time in a second; 0 for as fast as it goes.
        tell: if there shall be a map, called with its address.

    Raises:
        EvflowError: a package that the demo or its map needs is not installed; says how to get it.
    """
    known = airports()
    sky = flown_on(DAY, read(), known)
    with ExitStack() as stack:
        contact = stack.enter_context(system())
        page = None
        if tell is not None:
            page = stack.enter_context(tiles.Map(contact, view=_VIEW))
            tell(page.url)
        traffic = Traffic(contact, sky, known, page)
        stack.enter_context(traffic.client)
        traffic.begin()
        with progress_bar(len(sky), quiet) as progress:
            start = time.perf_counter()
            fly(traffic, float(sky.departs[0]), float(sky.arrives.max()) + STEP, speed, progress, STEP)
            seconds = time.perf_counter() - start
        traffic.settle()
        told = traffic.told()
    names = dict(zip(known.codes, known.names, strict=True))
    busiest = sorted(told["near"].items(), key=lambda item: (-item[1][0], item[0]))[:_BUSIEST]
    result = {
        "flights": len(sky),
        "moves": traffic.moves,
        "airports": len(told["near"]),
        "near_airports": sum(matches for matches, _ in told["near"].values()),
        "met": len(told["met"]),
        "busiest": [
            {"airport": code, "name": names[code], "flights": flights, "matches": matches}
            for code, (matches, flights) in busiest
        ],
        "seconds": round(seconds, 3),
    }
    return Outcome(result, _text(result))


def _text(result: dict[str, Any]) -> str:
    rows = [list(place.values()) for place in result["busiest"]]
    return (
        f"{result['flights']:,} flights of {DAY} from New York, each along its great circle: where they were "
        f"was published every {STEP / 60:.0f} minutes.\n"
        f"{result['airports']} airports subscribed to what is within {NEAR_AIRPORT / 1000:.0f} km. Most "
        f"matches were at\n\n{table(['airport', '', 'flights', 'matches'], rows)}\n\n"
        f"{result['near_airports']:,} matches at airports. Each flight of {ASKS} subscribed to those of "
        f"{ASKED} within {NEAR_FLIGHT / 1000:.0f} km of where it was: {result['met']:,} pairs met.\n"
        f"{result['moves']:,} moves over {len(HOSTS)} processes, with two replicas of each state, in "
        f"{result['seconds']:.1f} s."
    )
