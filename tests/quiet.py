"""Keeps a log quiet for as long as something runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Nothing of the log ``name`` is made into a record meanwhile; also a decorator."""
    log = logging.getLogger(name)
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)
