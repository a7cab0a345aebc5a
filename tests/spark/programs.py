"""Programs that tests start, of which nothing is left."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil

__all__ = ["process"]


@contextmanager
def process(arguments: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """A process; neither it nor what it started is left."""
    with subprocess.Popen(arguments, **settings) as made:
        try:
            yield made
        finally:
            if made.poll() is None:
                for one in psutil.Process(made.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
                made.kill()
