"""A running graph is changed: a stone rests and goes on, a split gets another target and loses one."""

from __future__ import annotations

import evflow as ev


class Note(ev.Event):
    number: int


def handler(name: str) -> ev.Terminal:
    return ev.Terminal(lambda note: print(f"{name} got {note.number}"), name=name)


g = ev.Graph("notes")
fan = g.source("notes", Note) >> ev.Split(name="fan")
fan >> handler("first")

with g.run() as flow:
    notes = flow["notes"]

    flow.freeze("first")
    notes.submit(Note(1))
    notes.submit(Note(2))
    flow.drain()
    print("frozen with", flow.stats()["first"]["queued"], "notes")
    flow.unfreeze("first")

    flow.link("fan", handler("second"))
    notes.submit(Note(3))
    flow.drain()

    flow.unlink("fan", "first")
    notes.submit(Note(4))
    flow.drain()

    try:
        flow.unlink("fan", "first")
    except ev.FlowError as error:
        print("refused:", error)
