"""What dead letters keep: so many, so many bytes, and nothing beside the event."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.engine.letters import LetterBox
from evflow.events.attributes import Attributes

MiB = 1 << 20


class Blob(ev.Event):
    seq: int
    data: bytes


def _put(box: LetterBox, *sizes: int, reason: str = "no", error: BaseException | None = None) -> None:
    for size in sizes:
        batch = ev.EventBatch.from_events([Blob(box.letters().total, bytes(size))])
        box.put("stone", batch, [reason], error)


def _kept(box: LetterBox) -> list[int]:
    return [letter.event.seq for letter in box.letters()]


def _box(most_bytes: int) -> LetterBox:
    return LetterBox(1000, lambda stone, batch, timeout: None, most_bytes)


def test_the_newest_are_kept_that_fit() -> None:
    """Older ones are let go and counted when all have more bytes than may be kept."""
    box = _box(MiB)
    _put(box, *[300_000] * 10)
    assert (_kept(box), box.letters().lost, box.letters().total) == ([7, 8, 9], 7, 10)


def test_the_newest_is_kept_whatever_its_size() -> None:
    """It is the only one then, until the next comes."""
    box = _box(MiB)
    _put(box, 10, 2 * MiB)
    assert _kept(box) == [1]
    _put(box, 10)
    assert _kept(box) == [2]


def test_what_was_submitted_again_takes_no_room() -> None:
    """Of four letters of a quarter each, one goes back to its stone, and one more fits."""
    box = _box(MiB)
    _put(box, *[250_000] * 4)
    box.letters()[1].resubmit()
    _put(box, 250_000)
    assert (_kept(box), box.letters().lost) == ([0, 2, 3, 4], 0)


@pytest.mark.parametrize("error", [ev.FlowError, KeyboardInterrupt])
def test_a_letter_that_cannot_be_submitted_again_keeps_its_place(error: type[BaseException]) -> None:
    """It is still there, before those that came later; also where the wait for its stone is interrupted."""

    def refuse(stone: str, batch: ev.EventBatch, timeout: float | None) -> None:
        raise error(f"stone {stone!r} is full for {timeout} s")

    box = LetterBox(1000, refuse, MiB)
    _put(box, 10, 10, 10)
    with pytest.raises(error, match=r"full for 0\.5 s"):
        box.letters()[1].resubmit(timeout=0.5)
    assert _kept(box) == [0, 1, 2]


def test_attributes_and_texts_of_errors_count() -> None:
    """They lie in memory too."""
    box = _box(MiB)
    for seq in range(5):
        batch = ev.EventBatch.from_events([Blob(seq, b"")])
        batch = batch.with_attributes(Attributes.from_rows([{"long": "x" * 500_000}]))
        box.put("stone", batch, ["no"])
    assert _kept(box) == [3, 4]
    for error, most in (
        (ValueError("x" * 500_000), MiB),
        (ValueError({"a": [b"x" * 500_000]}), MiB),
        (_noted(), MiB),
        (_laden(), MiB),
        (_deep(), 500_000),
    ):
        box = _box(most)
        for _ in range(5):
            _put(box, 10, error=error)
        assert len(box.letters()) == 2, error


def _noted() -> BaseException:
    error = ValueError("noted")
    error.add_note("x" * 500_000)
    return error


def _laden() -> BaseException:
    error: Any = ValueError("laden")
    error.data, error.more = np.zeros(250_000, np.uint8), [bytearray(250_000)]
    return error


def _deep() -> BaseException:
    """Raised through 800 functions, each of which takes about 250 bytes."""

    def go(deeper: int) -> None:
        if not deeper:
            raise ValueError("deep")
        go(deeper - 1)

    with pytest.raises(ValueError, match="deep") as caught:
        go(800)
    return caught.value


def test_a_reason_is_cut() -> None:
    """A handler may raise an error that tells of a whole event."""
    box = _box(MiB)
    _put(box, 10, reason="x" * 100_000)
    assert box.letters()[0].reason == "x" * 1000


class _Held:
    pass


def _raise() -> None:
    held = _Held()
    alive.append(weakref.ref(held))
    try:
        raise ValueError("inner")
    except ValueError as inner:
        raise KeyError("outer") from inner


alive: list[weakref.ref[_Held]] = []


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    alive.clear()


@pytest.mark.parametrize(
    "settings", [{}, {"batch": True}, {"workers": 1}, {"workers": 1, "batch": True}], ids=str
)
def test_an_error_keeps_nothing_that_its_handler_held(settings: dict[str, Any]) -> None:
    """So a letter does not keep the frame alive in which its event came; the error still tells the line."""
    g = ev.Graph()
    g.source("blobs", Blob) >> ev.Terminal(lambda event: _raise(), **settings)
    with g.run() as flow:
        flow["blobs"].submit_batch([Blob(0, b""), Blob(1, b"")])
        flow.drain(timeout=10)
        letters = flow.dead_letters()
    gc.collect()
    assert alive and not any(held() for held in alive)
    error = letters[0].error
    assert isinstance(error, KeyError) and isinstance(error.__cause__, ValueError)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None and trace.tb_frame.f_code is _raise.__code__
