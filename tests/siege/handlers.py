"""Handlers of besieged nodes: they write what arrived to files, sleep, fail, or try to leave."""

from __future__ import annotations

import os
import time
from typing import Any

NOTES = "EVFLOW_SIEGE_NOTES"
"""The environment variable that names a file for what arrived; naps go to a file beside it."""


def note(batch: Any) -> None:
    """Appends a line for each event (way, number, when sent, when arrived), then sleeps if one says so."""
    arrived = time.monotonic()
    rows = zip(batch["way"].tolist(), batch["seq"].tolist(), batch["sent"].tolist(), strict=True)
    _append("", "".join(f"{way} {seq} {sent:.4f} {arrived:.4f}\n" for way, seq, sent in rows))
    seconds = float(batch["nap"].max())
    if seconds > 0:
        _sleep(seconds)


def doze(event: Any) -> None:
    """Sleeps for as long as the event says."""
    _sleep(float(event.number))


def sip(batch: Any) -> None:
    """Sleeps if an event says so, and does nothing else."""
    seconds = float(batch["nap"].max())
    if seconds > 0:
        _sleep(seconds)


def swallow(batch: Any) -> None:
    """Does nothing."""


def fail(event: Any) -> None:
    """Raises."""
    raise ValueError("as it was asked to")


def leave(event: Any) -> None:
    """Tries to end the process."""
    raise SystemExit(3)


def interrupt(event: Any) -> None:
    """Raises what Ctrl-C raises."""
    raise KeyboardInterrupt


def recurse(event: Any) -> None:
    """Calls itself without end."""
    recurse(event)


def _sleep(seconds: float) -> None:
    begun = time.monotonic()
    _append(".naps", f"begin {begun:.4f}\n")
    time.sleep(seconds)
    _append(".naps", f"end {time.monotonic():.4f}\n")


def _append(suffix: str, text: str) -> None:
    # In one call, so that a line is whole also where the process is killed.
    file = os.open(os.environ[NOTES] + suffix, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
