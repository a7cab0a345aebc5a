"""Attacks by somebody who may deploy: functions that cost much, and handlers that do what they should not."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import evflow as ev
from tests.siege.handlers import __name__ as handlers
from tests.siege.hostile import Foe

_AGAIN = 10.0


class Evil(ev.Event):
    """What is submitted."""

    number: float
    text: str


_ARGUMENTS = ", ".join(f"input.number + {n}" for n in range(100))


def wide(foe: Foe) -> None:
    """Functions that are wide or deep; such a function is refused, or compiled in time."""
    for number, code in enumerate(_wide(foe)):
        if foe.left:
            _deploy(foe, f"wide{number}", ev.Filter(code, name="evil"), count=10)


def _wide(foe: Foe) -> list[str]:
    found = [
        f"min({_ARGUMENTS}) > 0",
        f"max({_ARGUMENTS}) + min({_ARGUMENTS}) > min({_ARGUMENTS})",
        "min(" * 30 + "input.number" + ", 1.0)" * 30 + " > 0",
        "(" * 3000 + "1" + ")" * 3000,
        " + ".join(["input.number"] * 5000) + " > 0",
        " && ".join(f"input.number > {n}" for n in range(2000)),
        "".join(f"input.number > {n} ? {n} : " for n in range(500)) + "0",
        "{" + "".join(f"double x{n} = input.number + {n};" for n in range(1500)) + "return 1;}",
        "{" + "if (input.number > 1) {" * 200 + "return 1;" + "}" * 200 + "return 0;}",
        "{ double x[1000000]; x[0] = 1; return x[0]; }",
        "{ static double x[100000000]; x[0] = 1; return x[0]; }",
        "-" * 60_000 + "1",
    ]
    foe.random.shuffle(found)
    return found


def fuel(foe: Foe) -> None:
    """Loops that burn all that a function may have."""
    found = [
        "{ double x = 0; long i; for (i = 0; i >= 0; i++) x += sin(i) * pow(x, 1.5); return x > 0; }",
        "{ double x = 0; while (1) x = pow(sin(x), cos(x)) + exp(tan(x)); return x > 0; }",
        "{ while (1) { } return 1; }",
        "{ double x[1000]; long i; for (i = 0; i >= 0; i++) x[i % 1000] += sqrt(i); return x[5] > 0; }",
    ]
    code = foe.random.choice(found)
    _deploy(foe, "fuel", ev.Filter(code, name="evil", fuel=100_000_000), count=2)


def texts(foe: Foe) -> None:
    """Searches in megabytes of text, over and over."""
    code = foe.random.choice(
        (
            "{ long n = 0, i; for (i = 0; i < 1000000; i++)"
            ' n += contains(input.text, "aaaaaaaaab"); return n > 0; }',
            'contains(input.text, "' + "a" * 500 + 'b")',
            "{ long n = 0, i; for (i = 0; i < 1000000; i++) n += input.text == input.text; return n > 0; }",
        )
    )
    _deploy(foe, "texts", ev.Filter(code, name="evil", fuel=100_000_000), count=2, text="a" * (2 << 20))


def strange(foe: Foe) -> None:
    """Handlers that nobody allowed: other modules, and what an allowed module has imported."""
    found = [
        f"{handlers}:os._exit", f"{handlers}:os.system", f"{handlers}:time.sleep",
        f"{handlers}:__builtins__", "os:_exit", "tests.siege.handlers.os:abort", "evflow:os._exit",
        "builtins:eval",
    ]  # fmt: skip
    while foe.left:
        text = foe.random.choice(found)
        if foe.random.random() < 0.7:
            stone: ev.Stone = ev.Terminal(text, name="evil")
        else:
            stone = ev.Bridge("nobody", "nothing", congestion=text, name="evil")
        if _deploy(foe, "strange", stone, count=5):
            foe.done[f"admitted {text}"] += 1


def failing(foe: Foe) -> None:
    """Handlers that raise all sorts of things."""
    while foe.left:
        name = foe.random.choice(("fail", "leave", "interrupt", "recurse"))
        _deploy(foe, "failing", ev.Terminal(f"{handlers}:{name}", name="evil"), count=50)


def dozing(foe: Foe) -> None:
    """A handler that sleeps, at each of a few events."""
    _deploy(foe, "dozing", ev.Terminal(f"{handlers}:doze", name="evil"), count=3, number=foe.left / 4)


def flood(foe: Foe) -> None:
    """As many events as the node takes, small or large; or 3 seconds of work for a slow handler."""
    slow = foe.random.random() < 0.5
    terminal = ev.Terminal(f"{handlers}:{'doze' if slow else 'swallow'}", name="evil", batch=not slow)
    length = foe.random.choice((0, 1000, 1 << 20))
    count, seconds = (300, 0.01) if slow else (10_000_000, 0.0)
    _deploy(foe, "flood", terminal, count=count, number=seconds, text="x" * length)


def _deploy(
    foe: Foe, name: str, stone: Any, *, count: int, number: float = 5.0, text: str = "some text"
) -> bool:
    """Deploys a graph with a stone on the target, submits events as long as there is time, and takes it down.

    Returns:
        Whether the graph was taken.
    """
    graph = ev.Graph(f"mole {name} {foe.random.randrange(1 << 30)}")
    others = [host for host in foe.hosts if host != foe.target]
    try:
        stone.on = foe.target
        at = graph.source("recs", Evil, on=foe.random.choice(others)) >> stone
        if stone.kind == "filter":
            _ = at >> ev.Terminal(f"{handlers}:swallow", batch=True, name="end", on=foe.target)
        handle = graph.deploy(foe.hosts, name=foe.name, keys=foe.keys, timeout=max(3.0, foe.left))
    except ev.EvflowError as error:
        foe.done["refused"] += 1
        print(f"{graph.name}: {str(error)[:300]}", flush=True)
        return False
    foe.done["deployed"] += 1
    try:
        _submit(foe, handle, count, number, text)
    finally:
        _take_down(foe, handle)
    return True


def _submit(foe: Foe, handle: ev.Deployment, count: int, number: float, text: str) -> None:
    at_once = max(1, min(count, (1 << 20) // (len(text) + 20)))
    columns = {"number": [number] * at_once, "text": [text] * at_once}
    with suppress(ev.EvflowError):
        entry = handle["recs"]
        for number in range(0, count, at_once):
            # Also where deploying has taken all the time: some events have to come.
            if number and not foe.left:
                return
            entry.submit_batch(columns, timeout=max(1.0, foe.left))
            foe.done["events"] += at_once
        # So that the function is run before it is taken away.
        handle.drain(max(1.0, min(2.0, foe.left)))


def _take_down(foe: Foe, handle: ev.Deployment) -> None:
    until = time.monotonic() + _AGAIN
    while time.monotonic() < until:
        try:
            handle.undeploy()
            return
        except ev.EvflowError as error:
            print(f"{handle.name}: {str(error)[:300]}", flush=True)
            time.sleep(0.5)
    foe.done["left deployed"] += 1
