"""Calls into code of somebody else that may never return, made by a thread that must go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from evflow.errors import DeployError

__all__ = ["within"]

T = TypeVar("T")


def within(seconds: float, what: str, call: Callable[[], T]) -> T:
    """What a call gives; it is made in a thread of its own, which is left alone if it takes too long.

    Args:
        seconds: how long it may take.
        what: what is called, for the error.
        call: called without arguments.

    Raises:
        DeployError: it took longer.
        BaseException: what the call raised.
    """
    given: list[T] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            given.append(call())
        except BaseException as error:  # noqa: BLE001  it is whoever waits for this that must hear of it
            raised.append(error)

    thread = threading.Thread(target=copy_context().run, args=(work,), name=f"evflow {what}", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not given:
        raise DeployError(
            f"{what} did not return within {seconds:g} s; what is imported and constructed for a stone must "
            "not wait"
        )
    return given[0]
