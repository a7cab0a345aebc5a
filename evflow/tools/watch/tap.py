"""Tap: events shown as they pass a stone, decoded; no more than one can read, and the rest counted."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evflow.deploy.client import Tap
from evflow.events.fields import as_json
from evflow.events.view import View
from evflow.tools.report import plain

_WAIT = 0.25
_LONGEST = 24
_LEAST = 10


def plain_value(value: Any) -> Any:
    """A field's value as data for JSON: arrays as lists, bytes as hexadecimal text, ``nan`` and ``inf`` as
    texts, since JSON has none; logical types as ``as_json`` has them."""
    value = as_json(value)
    if isinstance(value, np.ndarray | np.generic):
        return plain_value(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {key: plain_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(one) for one in value]
    return value


class Lines:
    """Events as JSON, an object a line.

    Args:
        echo: takes each line.
        wall: seconds since 1970.
    """

    def __init__(self, echo: Callable[[str], object], wall: Callable[[], float] = time.time) -> None:
        self._echo = echo
        self._wall = wall

    def show(self, event: View) -> None:
        """Shows an event."""
        said = {
            "time": round(self._wall(), 6),
            "schema": event.schema.name,
            "event": plain_value(event.to_dict()),
            "attributes": plain_value(event.attrs),
        }
        self._echo(json.dumps(said, ensure_ascii=False))


class Rows(Lines):
    """Events as rows of a table, under a header that is repeated when events of another schema come."""

    _schema = ""
    _widths: list[int]

    def show(self, event: View) -> None:
        """Shows an event."""
        if event.schema.fingerprint != self._schema:
            self._schema = event.schema.fingerprint
            names = ["time", *(field.name for field in event.schema.fields), "attributes"]
            self._widths = [min(max(len(name), _LEAST), _LONGEST) for name in names]
            self._row(names)
        now = self._wall()
        at = f"{time.strftime('%H:%M:%S', time.localtime(now))}.{int(now % 1 * 10)}"
        values = [_short(plain_value(value)) for value in event.to_dict().values()]
        attributes = " ".join(f"{name}={value}" for name, value in event.attrs.items())
        self._row([at, *values, attributes])

    def _row(self, cells: list[str]) -> None:
        shown = [plain(cell).ljust(width) for cell, width in zip(cells, self._widths, strict=True)]
        self._echo("  ".join(shown).rstrip())


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


@dataclass
class Watched:
    """What was watched so far.

    Attributes:
        passed: events that came.
        shown: those that were shown.
        missed: those that passed the stone and did not get here in time.
    """

    passed: int = 0
    shown: int = 0
    missed: int = 0

    def __str__(self) -> str:
        passed, left_out = self.passed + self.missed, self.passed - self.shown + self.missed
        return f"{passed:,} event{'' if passed == 1 else 's'} passed, {left_out:,} of them left out"


def watch(
    tap: Tap,
    show: Callable[[View], object],
    *,
    count: int | None = None,
    rate: float | None = None,
    done: Watched | None = None,
    clock: Callable[[], float] = time.monotonic,
    ended: Callable[[], bool] = lambda: False,
) -> Watched:
    """Shows events as they pass.

    Args:
        tap: where they come from.
        show: takes each.
        count: ends when so many were shown; None never does.
        rate: shows at most so many a second; the others are counted.
        done: is brought up to date meanwhile, for whoever has to tell after an interruption.
        clock: seconds, only forward.
        ended: asked whenever nothing has come for a moment; ends it too.
    """
    done = Watched() if done is None else done
    most = max(1.0, rate or 0.0)
    room, at = most, clock()
    while count is None or done.shown < count:
        batch = tap.next(_WAIT)
        done.missed = tap.missed
        if batch is None:
            if ended():
                break
            continue
        if rate is not None:
            now = clock()
            room, at = min(most, room + (now - at) * rate), now
        left = math.inf if count is None else count - done.shown
        shown = int(min(len(batch), math.inf if rate is None else room, left))
        # What comes behind the last that is wanted has not been watched.
        done.passed += len(batch) if shown < left else shown
        for event in batch[:shown]:
            show(event)
            done.shown += 1
        room -= shown
    return done
