"""What the coverage-guided targets share: a corpus of valid inputs, and the loop of atheris."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.fuzz import guard

__all__ = ["fuzz"]


def fuzz(atheris: Any, target: Callable[[bytes], None], seeds: Iterable[bytes]) -> None:
    """Runs a target with the options of libFuzzer that stand on the command line.

    Args:
        atheris: the module, which has to be imported before what it instruments.
        target: raises an exception where something is wrong.
        seeds: inputs to start from.
    """
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as corpus, guard.installed():
        for number, seed in enumerate(seeds):
            (Path(corpus) / str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, corpus, "-max_len=4096", "-rss_limit_mb=4096", "-timeout=60"], target)
        atheris.Fuzz()
