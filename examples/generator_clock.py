"""A generator makes events by itself: a clock ticks twenty times a second, and strikes each fifth time."""

from __future__ import annotations

import threading

import evflow as ev


class Beat(ev.Event):
    number: int
    strike: bool


CLOCK = """
    output.number = input.count;
    output.strike = input.count % 5 == 4;
    return 1;
"""

done = threading.Event()


def show(beat: Beat) -> None:
    print("dong" if beat.strike else "tick", beat.number)
    if beat.number == 9:
        done.set()


g = ev.Graph("clock")
clock = g.add(ev.Generator(CLOCK, output=Beat, period=0.05, name="clock"))
clock >> ev.Filter("input.number < 10") >> ev.Terminal(show)

with g.run() as flow:
    done.wait(timeout=30)

print("the generator stopped with its graph")
