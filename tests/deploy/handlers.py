"""Handlers for daemons that are processes: they append to the file that the environment names."""

from __future__ import annotations

import os
from typing import Any

FILE = "EVFLOW_TEST_NOTES"


def note(batch: Any) -> None:
    """Appends the numbers of a batch, a line each; whole lines also when it is killed."""
    text = "".join(f"{number}\n" for number in batch["seq"].tolist()).encode()
    file = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, text)
    finally:
        os.close(file)


def fail(event: Any) -> None:
    """Raises, always."""
    raise ValueError("as it was asked to")
