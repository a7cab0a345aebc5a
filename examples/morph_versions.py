"""A new sender and an old receiver: a morph turns the new events into those that the receiver knows."""

from __future__ import annotations

import evflow as ev


class PersonV1(ev.Event):
    name: ev.Str[40]
    age: int


class PersonV2(ev.Event):
    given: ev.Str[20]
    family: ev.Str[20]
    born: int


def receiver_of_old(person: PersonV1) -> None:
    print(f"{person.name}, {person.age}")


g = ev.Graph("people")
g.source("people", PersonV1, PersonV2) >> ev.Terminal(receiver_of_old, input=PersonV1)
g.morph(
    PersonV2,
    PersonV1,
    "output.name = input.family; output.age = 2024 - input.born; return 1;",
)

with g.run() as flow:
    flow["people"].submit(PersonV1("Noether", 53))
    flow["people"].submit(PersonV2("Rosalind", "Franklin", 1920))
    flow.drain()
