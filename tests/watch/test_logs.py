from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from evflow.tools.watch.logs import JsonLines, LogRing, kept_log

NAME = "evflow.tests.logs"

Keep = Callable[..., LogRing]


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger that nothing else hears, as it was before afterwards."""
    log = logging.getLogger(NAME)
    level, log.propagate = log.level, False
    yield log
    log.setLevel(level)
    log.propagate = True
    for handler in list(log.handlers):
        log.removeHandler(handler)


@pytest.fixture
def keep(log: logging.Logger) -> Iterator[Keep]:
    """Has the records of that logger kept."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(kept_log(logger=NAME, **settings))


def texts(said: dict[str, list[dict[str, str]]]) -> list[str]:
    return [line["text"] for line in said["lines"]]


def test_records_are_kept_with_time_level_and_logger(log: logging.Logger, keep: Keep) -> None:
    ring = keep()
    log.info("node %s listens", "edge")
    log.debug("nobody needs this")
    (line,) = ring.since(0)["lines"]
    assert (line["level"], line["logger"], line["text"]) == ("INFO", NAME, "node edge listens")
    assert line["time"] > 1e9


def test_who_follows_gets_each_record_once(log: logging.Logger, keep: Keep) -> None:
    ring = keep()
    log.warning("one")
    first = ring.since(0)
    log.warning("two")
    log.warning("three")
    second = ring.since(first["next"])
    assert (texts(first), texts(second)) == (["one"], ["two", "three"])
    assert texts(ring.since(second["next"])) == []


def test_oldest_are_let_go_and_counted_for_who_wanted_them(log: logging.Logger, keep: Keep) -> None:
    ring = keep(kept=3)
    for number in range(10):
        log.warning("%d", number)
    assert ring.since(4) | {"lines": texts(ring.since(4))} == {
        "next": 10,
        "lost": 3,
        "lines": ["7", "8", "9"],
    }
    assert ring.since(0)["lost"] == 0


def test_newest_so_many_can_be_asked_for(log: logging.Logger, keep: Keep) -> None:
    ring = keep()
    for number in range(10):
        log.warning("%d", number)
    assert texts(ring.since(-2)) == ["8", "9"]
    assert len(ring.since(-100)["lines"]) == 10


def test_many_are_given_in_parts(log: logging.Logger, keep: Keep) -> None:
    ring = keep()
    for number in range(10):
        log.warning("%d", number)
    said = ring.since(0, limit=4)
    assert texts(said) == ["0", "1", "2", "3"]
    assert texts(ring.since(said["next"], limit=4)) == ["4", "5", "6", "7"]


def test_number_of_a_node_that_has_begun_anew_begins_from_the_start(log: logging.Logger, keep: Keep) -> None:
    ring = keep()
    log.warning("first")
    assert texts(ring.since(5000)) == ["first"]


def test_traceback_is_kept_and_long_records_are_cut(log: logging.Logger, keep: Keep) -> None:
    ring = keep()
    try:
        raise ValueError("boom")
    except ValueError:
        log.exception("it failed")
    log.warning("x" * 100_000)
    failed, long = texts(ring.since(0))
    assert failed.startswith("it failed\nTraceback") and "ValueError: boom" in failed
    assert len(long) < 5000 and long.endswith("… (100,000 characters)")


def test_record_whose_arguments_do_not_fit_is_kept_all_the_same() -> None:
    ring = LogRing()
    ring.handle(logging.makeLogRecord({"msg": "%d of %d", "args": ("one",)}))
    assert "arguments do not fit" in texts(ring.since(0))[0]


def test_threads_may_log_while_others_read(log: logging.Logger) -> None:
    ring = LogRing(kept=100_000)
    log.addHandler(ring)
    log.setLevel(logging.INFO)
    threads = [
        threading.Thread(target=lambda: [log.info("x") for _ in range(500)]) for _ in range(4)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    got, number = 0, 0
    while got < 2000:
        said = ring.since(number)
        got, number = got + len(said["lines"]), said["next"]
    for thread in threads:
        thread.join()
    assert (got, number) == (2000, 2000)


def test_level_that_shows_more_is_left(log: logging.Logger, keep: Keep) -> None:
    log.setLevel(logging.DEBUG)
    keep()
    assert log.level == logging.DEBUG


def test_json_has_an_object_a_line(log: logging.Logger) -> None:
    """Also of a text of two lines and of an error, whose traceback is beside the message."""
    printed = io.StringIO()
    handler = logging.StreamHandler(printed)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.warning("two\nlines, %d stones", 3)
    try:
        raise KeyError("x")
    except KeyError:
        log.exception("it failed")
    first, second = map(json.loads, printed.getvalue().splitlines())
    assert first.pop("time") > 1e9
    assert first == {"level": "WARNING", "logger": NAME, "message": "two\nlines, 3 stones"}
    assert (second["level"], second["message"]) == ("ERROR", "it failed")
    assert second["traceback"].startswith("Traceback") and second["traceback"].endswith("KeyError: 'x'")
