"""A fault costs one event. It waits among the dead letters, to be looked at and submitted again."""

from __future__ import annotations

import evflow as ev


class Share(ev.Event):
    name: ev.Str[16]
    pieces: int


class Portion(ev.Event):
    name: ev.Str[16]
    percent: int


printer_has_paper = False


def print_label(portion: Portion) -> None:
    if portion.name == "Ben" and not printer_has_paper:
        raise RuntimeError("out of paper")
    print(f"{portion.name}: {portion.percent} %")


CODE = "output.name = input.name; output.percent = 100 / input.pieces; return 1;"

g = ev.Graph("cake")
portions = g.source("shares", Share) >> ev.Transform(CODE, output=Portion, name="divide")
portions >> ev.Terminal(print_label, name="label")

with g.run() as flow:
    for name, pieces in [("Ada", 4), ("Ben", 5), ("Cem", 0), ("Dea", 2)]:
        flow["shares"].submit(Share(name, pieces))
    flow.drain()
    for letter in flow.dead_letters():
        print(f"dead at {letter.stone}: {letter.event.name}, {letter.reason}")

    printer_has_paper = True
    for letter in flow.dead_letters():
        if letter.stone == "label":
            letter.resubmit()
    flow.drain()
    print(len(flow.dead_letters()), "left")
