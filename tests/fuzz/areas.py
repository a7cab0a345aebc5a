"""What there is to fuzz: each area makes one case from a ``random.Random`` and checks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from evflow import CodeError
from evflow.codgen.front import Input, build
from tests.codgen.programs import random_schema
from tests.fuzz import (
    descriptions,
    differential,
    events,
    foreign,
    hostile,
    links,
    queues,
    samples,
    spark,
    subscriptions,
    trees,
)
from tests.fuzz.pyprograms import PyProgram

__all__ = ["AREAS", "Tally", "choose", "run"]

Tell = Callable[[str], None]


@dataclass
class Tally:
    """What a case was: pairs of a program and an input (or inputs alone), and programs that were run."""

    pairs: int = 0
    programs: int = 0


def _cod(random: Random, tell: Tell) -> Tally:
    made, schema = (samples.blind if random.randrange(30) == 0 else samples.function)(random)
    given = samples.inputs(random, schema)
    story = f"{samples.shown(made)}\n{samples.listed(given)}"
    if random.randrange(100) == 0:
        story += "\nmany times"
        given = samples.many(random, given)
    differential.check(made, given, random, lambda step: tell(f"{story}\n{step}"))
    return Tally(samples.INPUTS, 1)


def _python(random: Random, tell: Tell) -> Tally:
    kind = random.choice(["filter", "transform", "transform", "router"])
    schema = random_schema(random, "In")
    output = random.choice([schema, random_schema(random, "Out")]) if kind == "transform" else None
    text = PyProgram(random, kind, schema, output).text
    tell(text)
    outputs = [] if output is None else [("output", output)]
    try:
        made = build(text, kind, [Input("input", schema)], outputs, fuel=samples.FUEL)
    except CodeError:
        return Tally(1)
    given = samples.inputs(random, schema)
    story = f"{samples.shown(made)}\n{samples.listed(given)}"
    differential.check(made, given, random, lambda step: tell(f"{story}\n{step}"))
    return Tally(len(given.events), 1)


def _queue(random: Random, tell: Tell) -> Tally:
    return Tally(queues.check(random, queues.function(random), tell), 1)


def _tree(random: Random, tell: Tell) -> Tally:
    return Tally(*trees.check(random, tell))


def _text(random: Random, tell: Tell) -> Tally:
    return Tally(*hostile.check(random, tell))


def _codec(random: Random, tell: Tell) -> Tally:
    return Tally(events.check(random, tell))


def _validate(random: Random, tell: Tell) -> Tally:
    return Tally(foreign.check(random, tell)[0])


def _schema(random: Random, tell: Tell) -> Tally:
    return Tally(descriptions.check(random, tell)[0])


def _link(random: Random, tell: Tell) -> Tally:
    return Tally(links.check(random, tell))


def _subscriptions(random: Random, tell: Tell) -> Tally:
    return Tally(subscriptions.check(random, tell)[0])


def _spark(random: Random, tell: Tell) -> Tally:
    return Tally(spark.check(random, tell))


AREAS: dict[str, tuple[int, Callable[[Random, Tell], Tally]]] = {
    "codgen": (60, _cod),
    "python": (10, _python),
    "chain": (6, _tree),
    "queue": (8, _queue),
    "cod-text": (6, _text),
    "codec": (4, _codec),
    "validate": (4, _validate),
    "schema": (2, _schema),
    "link": (1, _link),
    "subscriptions": (4, _subscriptions),
    "spark": (2, _spark),
}
"""By name: how often it has its turn beside the others, and its function."""


def choose(seed: int) -> str:
    """The area of a case."""
    (name,) = Random(seed).choices(list(AREAS), [weight for weight, _ in AREAS.values()])
    return name


def run(area: str, seed: int, tell: Tell) -> Tally:
    """Runs one case.

    Args:
        area: of what. seed: says which. tell: is told what is being tried, before it is.

    Raises:
        Exception: something is wrong: most often an AssertionError.
    """
    return AREAS[area][1](Random(f"{area} {seed}"), tell)
