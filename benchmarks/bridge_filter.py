"""Whether a filter at the source pays: the CPU of a sender by the part of its events that the filter rejects.

Figure 11 of the EVPath paper (section 4.1.1): a process sends records of 1,000 bytes to another, over TCP.
Either all of them go there and are filtered there, or they are filtered before they are sent. The sender's
CPU is counted until all that was sent has been acknowledged. From the break-even point on the filter costs
the sender less than it saves.

    python benchmarks/bridge_filter.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from statistics import mean
from typing import Any

import bridge_evflow
import table
from bridge_evflow import KINDS, Tally
from bridge_pair import BATCH, Pair, Way, Work, events

import evflow as ev

TITLE = "evflow: the sender's CPU with a filter at the source"
RECORDS = 2_000_000
"""The CPU is given for so many records, as the paper does."""
SIZE = 1_000
PERCENT = (0, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
"""What the filters at the source reject."""
AT_RECEIVER = 50
"""What the filter at the receiver rejects where the source has none."""


@cache
def passing(percent: int) -> frozenset[int]:
    """Which of a hundred events pass, by number."""
    return frozenset(i for i in range(100) if i * 37 % 100 >= percent)


@dataclass(frozen=True)
class Filtered(Work):
    """Events of which a filter rejects some, never neighbours; a message is the number of its first event."""

    percent: int = 0
    events: int = BATCH
    at: str = "sender"

    def made(self) -> Sequence[Any]:
        return range(0, len(events(self.size)), self.events)

    def touch(self, message: Any) -> float:
        """The sum of the prices that pass; the price of event i is i % 100."""
        if self.events == 1:
            return message % 100 if message % 100 in passing(self.percent) else 0
        return sum(passing(self.percent)) * self.events / 100

    def passed(self, count: int) -> int:
        """How many of the first ``count`` events pass."""
        passes = passing(self.percent)
        return count // 100 * len(passes) + sum(i in passes for i in range(count % 100))

    def graph(self, tally: Tally) -> ev.Graph:
        graph = ev.Graph("filter")
        source = graph.source("events", KINDS[self.size], on="sender")
        passed = source >> ev.Filter(f"input.key * 37 % 100 >= {self.percent}", on=self.at)
        passed >> ev.Terminal(tally.batch, batch=True, on="receiver")
        return graph


class Receiver:
    """Adds up what passes."""

    def __init__(self, work: Filtered) -> None:
        self.work = work
        self.tally = Tally()
        node = ev.Node("receiver", "tcp://127.0.0.1:0", shared_memory=False)
        self.contact = node.contact
        self.flow = work.graph(self.tally).run(node=node)

    def receive(self, count: int) -> float:
        return self.tally.wait(self.work.passed(count * self.work.events))

    def close(self) -> None:
        self.flow.close()


class Sender:
    """Submits, and waits until all is acknowledged."""

    def __init__(self, work: Filtered, contact: str) -> None:
        single = work.events == 1
        self.messages = bridge_evflow.single_events(work) if single else bridge_evflow.encoded(work)
        node = ev.Node("sender", peers={"receiver": contact}, shared_memory=False)
        self.flow = work.graph(Tally()).run(node=node)
        source = self.flow["events"]
        self.submit: Any = source.submit if single else source.submit_batch

    def send(self, count: int) -> Sequence[int]:
        submit = self.submit
        for message in islice(cycle(self.messages), count):
            submit(message)
        self.flow.drain()
        return ()

    def close(self) -> None:
        self.flow.close()


@dataclass(frozen=True)
class Line:
    """The sender's CPU for ``RECORDS`` records, in seconds: the least of the rounds.

    Attributes:
        unfiltered: with no filter at the source.
        filtered: with one, by ``PERCENT``.
    """

    name: str
    unfiltered: float
    filtered: Sequence[float]

    @property
    def break_even(self) -> float | None:
        """The percentage from which on the filter saves CPU, on a straight line between two points; None if
        it does not even where it rejects all.

        The points are the measured ones as far as they fall: a filter that rejects more cannot cost more, so
        where a later one is higher both are noise.
        """
        over = [cpu - self.unfiltered for cpu in falling(self.filtered)]
        dearer = [i for i, more in enumerate(over) if more > 0]
        if not dearer:
            return 0
        last = dearer[-1]
        if last + 1 == len(over):
            return None
        part = over[last] / (over[last] - over[last + 1])
        return PERCENT[last] + part * (PERCENT[last + 1] - PERCENT[last])


def falling(points: Sequence[float]) -> list[float]:
    """The sequence without a rise that is nearest to these points, by least squares: isotonic regression, by
    its formula of the means of all spans around a point."""
    among = range(len(points))
    return [min(max(mean(points[i : k + 1]) for k in among[at:]) for i in among[: at + 1]) for at in among]


def measure(quick: bool) -> list[Line]:
    """A line for batches, and one for events submitted one by one."""
    part = 5 if quick else 1
    rounds = 2 if quick else 25
    return [
        line("batches of 1,000", BATCH, 200 // part, rounds),
        line("one by one", 1, 100_000 // part, rounds),
    ]


def line(name: str, at_once: int, messages: int, rounds: int) -> Line:
    works = [Filtered(SIZE, AT_RECEIVER, at_once, "receiver")]
    works += [Filtered(SIZE, percent, at_once) for percent in PERCENT]
    with ExitStack() as stack:
        way = Way(f"evflow, {name}", Receiver, Sender)
        pairs = [stack.enter_context(closing(Pair(way, work))) for work in works]
        for pair in pairs:
            pair.round(messages)
        cpu = [[pair.round(messages).cpu for pair in pairs] for _ in range(rounds)]
    unfiltered, *filtered = [min(of) * RECORDS / messages / at_once for of in zip(*cpu, strict=True)]
    return Line(name, unfiltered, filtered)


def show(lines: Sequence[Line]) -> None:
    """Prints the CPU by rejection ratio in Markdown."""
    head = ["the filter rejects", *(line.name for line in lines)]
    rows = [["no filter at the source", *(f"{line.unfiltered:.2f} s" for line in lines)]]
    for i, percent in enumerate(PERCENT):
        rows.append([f"{percent} %", *(f"{line.filtered[i]:.2f} s" for line in lines)])
    points = [line.break_even for line in lines]
    rows.append(["break-even", *("none" if at is None else f"{at:.1f} %" for at in points)])
    table.markdown(f"{TITLE}, {RECORDS:,} records of {SIZE:,} B", [head, *rows])


def save(lines: Sequence[Line]) -> None:
    """Writes ``results/bridge_filter.json`` and ``results/bridge_filter.svg``."""
    figure, axes = table.axes_of(f"{TITLE}, {RECORDS:,} records of {SIZE:,} B", 3.5)
    for line, colour in zip(lines, ("#c25b12", "#5a6b7a"), strict=True):
        axes.plot(
            PERCENT, line.filtered, "o-", markersize=3, color=colour, label=f"{line.name}, filter at source"
        )
        axes.axhline(line.unfiltered, color=colour, linestyle="--", label=f"{line.name}, no filter there")
    axes.set(xlabel="% of the events rejected", ylabel="s of CPU")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    kept = [{**vars(line), "break_even": line.break_even} for line in lines]
    table.write("bridge_filter", figure, title=TITLE, records=RECORDS, percent=list(PERCENT), lines=kept)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--quick", action="store_true", help="a tenth of the messages, two rounds")
    lines = measure(arguments.parse_args().quick)
    show(lines)
    save(lines)


if __name__ == "__main__":
    main()
