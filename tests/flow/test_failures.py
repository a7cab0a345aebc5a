"""A user's function that fails is seen, wherever it runs: once in the log, with its traceback."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow import echo
from evflow.engine.letters import Failures
from evflow.errors import FlowError, SparkError


class Number(ev.Event):
    x: int


class Old(ev.Event):
    y: int


def typo(event: Any) -> None:
    """A handler with a typo."""
    print(event.xx)


def _in_flow(stone: ev.Stone, *more: ev.Stone) -> None:
    g = ev.Graph("g")
    at = g.source("in", Number) >> stone
    for each in more:
        at = at >> each
    with g.run() as flow:
        flow["in"].submit_batch({"x": range(5)})


def _terminal() -> None:
    _in_flow(ev.Terminal(typo, name="failing"))


def _batch_terminal() -> None:
    _in_flow(ev.Terminal(lambda batch: 1 / 0, batch=True, name="failing"))


def _field_of_batch() -> None:
    _in_flow(ev.Terminal(lambda batch: batch.x, batch=True, name="failing"))


def _raw_terminal() -> None:
    _in_flow(ev.Terminal(raw=lambda data, schema: 1 / 0, name="failing"))


def _workers() -> None:
    _in_flow(ev.Terminal(typo, workers=2, name="failing"))


def _filter() -> None:
    _in_flow(ev.Filter("1 / (input.x - input.x)", name="failing"), ev.Terminal(print))


def _morph() -> None:
    g = ev.Graph()
    g.morph(Number, Old, "{ output.y = 1 / (input.x - input.x); return 1; }")
    g.source("in", Number) >> ev.Terminal(print, input=Old, name="failing")
    with g.run() as flow:
        flow["in"].submit(Number(1))


def _congestion() -> None:
    g = ev.Graph()
    bridge = ev.Bridge("tcp://127.0.0.1:9", "nowhere", congestion=lambda congestion: 1 / 0, name="failing")
    g.source("in", Number) >> bridge
    with g.run() as flow:
        flow["in"].submit_batch({"x": np.arange(10)})
        flow.call(lambda: None)
        flow.close(timeout=0.0)


def _channel() -> None:
    with echo.Process("one", listen=None) as process:
        channel = process.create("numbers", Number)
        channel.subscribe(typo)
        channel.publish(Number(1))
        process.drain()
        (letter,) = channel.dead_letters()
        assert isinstance(letter.error, AttributeError)
        assert len(process.dead_letters()) == 1


def _spark_task() -> None:
    pa = pytest.importorskip("pyarrow")
    from evflow.spark.applying import Program, run_task

    g = ev.Graph()
    g.source("in", Number) >> ev.Filter("1 / (input.x - input.x)", name="failing")
    with pytest.raises(SparkError, match=r"stone 'failing' gave up Number\(x=0\): integer division by zero"):
        list(run_task(Program.of(g, Number.schema), iter([pa.record_batch({"x": range(5)})])))


@pytest.mark.parametrize(
    ("fail", "stone", "reason", "traceback"),
    [
        (_terminal, "failing", "AttributeError: 'NumberView' object has no attribute 'xx'", True),
        (_batch_terminal, "failing", "ZeroDivisionError: division by zero", True),
        (_field_of_batch, "failing", 'Number has the fields x; did you mean batch["x"]?', True),
        (_raw_terminal, "failing", "ZeroDivisionError: division by zero", True),
        (_workers, "failing", "Number has the fields x; did you mean 'x'?", True),
        (_filter, "failing", "integer division by zero (line 1)", False),
        (_morph, "failing", "integer division by zero (line 1)", False),
        (_congestion, "failing", "its congestion handler failed: ZeroDivisionError: division by zero", True),
        (_channel, "subscription", "Number has the fields x; did you mean 'x'?", True),
        (_spark_task, "failing", "integer division by zero (line 1)", False),
    ],
)
def test_a_function_that_fails_is_told_once(
    fail: Callable[[], None], stone: str, reason: str, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it runs, there is one warning that names the stone and the reason, with the traceback."""
    caplog.set_level(logging.WARNING, "evflow")
    fail()
    told = [r for r in caplog.records if r.getMessage().startswith("stone ") and reason in r.getMessage()]
    first, *_ = told
    assert first.levelname == "WARNING"
    assert stone in first.getMessage()
    assert bool(first.exc_info) is traceback
    assert sum(bool(record.exc_info) for record in told) == traceback


def test_failures_of_one_kind_are_told_more_and_more_seldom(caplog: pytest.LogCaptureFixture) -> None:
    """The first of each line that raises, whatever its text, then counts; and a summary at the end."""
    caplog.set_level(logging.WARNING, "evflow")

    def handler(event: Any) -> None:
        if event.x % 2:
            raise ValueError(f"number {event.x}")
        raise KeyError(event.x)

    g = ev.Graph("numbers")
    g.source("in", Number) >> ev.Terminal(handler, name="end")
    with g.run() as flow:
        flow["in"].submit_batch({"x": range(2000)})
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 * 4 + 1
    assert said[0] == "stone 'end': KeyError: 0; with Number(x=0)"
    assert said[-2] == "stone 'end': ValueError: number 1999 (1,000 so far)"
    assert "numbers ended with 2,000 dead letters: 1,000 at 'end' (KeyError: 0), 1,000 at" in said[-1]
    assert flow.failed == 2000


def test_a_text_without_end_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Of the text of an exception the beginning is told, and how long it is; also in the traceback."""

    def handler(event: Any) -> None:
        raise ValueError("x" * 1_000_000)

    with caplog.at_level(logging.WARNING, "evflow"):
        _in_flow(ev.Terminal(handler, name="end"))
    assert "stone 'end': ValueError: xxx" in caplog.text and "1,000," in caplog.text
    assert "in handler" in caplog.text
    assert len(caplog.text) < 100_000


def test_halves_of_characters_are_written_so_that_any_file_takes_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Names of files that are not UTF-8 have them."""

    def handler(event: Any) -> None:
        raise FileNotFoundError("caf\udce9")

    with caplog.at_level(logging.WARNING, "evflow"):
        _in_flow(ev.Terminal(handler, name="end"))
    assert caplog.text.encode().count(b"FileNotFoundError: caf\\udce9") >= 2


def test_what_was_submitted_again_is_not_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    """No dead letter is left at the end."""
    well = False

    def handler(event: Any) -> None:
        if not well:
            raise ValueError("not yet")

    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(handler)
    with g.run() as flow:
        flow["in"].submit(Number(1))
        flow.drain()
        well = True
        flow.dead_letters().resubmit()
    assert "ended with" not in caplog.text


def test_the_summary_counts_what_was_not_submitted_again(caplog: pytest.LogCaptureFixture) -> None:
    """In all, and for each reason; also where letters were let go."""
    well = False

    def handler(event: Any) -> None:
        if well:
            return
        if event.x % 2:
            raise ValueError(f"number {event.x} is not for now" + " at all" * 1000)
        raise KeyError(event.x)

    g = ev.Graph("numbers")
    g.source("in", Number) >> ev.Terminal(handler, name="end")
    with g.run(dead_letters=50) as flow:
        flow["in"].submit_batch({"x": range(100)})
        flow.drain()
        well = True
        for letter in flow.dead_letters()[-9:]:
            letter.resubmit()
            letter.resubmit()
    # Of the last nine 91, 93, 95, 97 and 99 are odd.
    told = caplog.records[-1].getMessage()
    assert told.startswith(
        "flow numbers ended with 91 dead letters: 46 at 'end' (KeyError: 0), 45 at 'end' (Val"
    )


def test_the_summary_of_dead_letters_leaves_out_what_has_cost_no_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A congestion handler that raises has failed, and its event goes as if there was none."""
    failures = Failures("numbers")
    failures.note("far", ["congestion failed: no"], letters=False)
    failures.note("end", ["a", "b"])
    failures.sum_up()
    assert caplog.records[-1].getMessage() == (
        "flow numbers ended with 2 dead letters: 1 at 'end' (a), 1 at 'end' (b)"
    )
    assert failures.count == 3


def test_on_error_raise_raises_what_failed_first_once() -> None:
    """``drain`` raises it, from the handler's own exception, and then ``close`` what failed since."""
    g = ev.Graph("numbers")
    g.source("in", Number) >> ev.Terminal(typo, name="end")
    flow = g.run(on_error="raise")
    flow["in"].submit(Number(1))
    with pytest.raises(
        FlowError, match=r"flow numbers: stone 'end': AttributeError: .* \(1 failed"
    ) as raised:
        flow.drain()
    assert isinstance(raised.value.__cause__, AttributeError)
    flow.drain()
    flow["in"].submit(Number(2))
    with pytest.raises(FlowError, match=r"\(2 failed"):
        flow.close()
    flow.close()


def test_on_error_raise_does_not_hide_what_a_block_raises() -> None:
    """The block's own error comes out of ``with``."""
    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(typo)
    with pytest.raises(LookupError), g.run(on_error="raise") as flow:
        flow["in"].submit(Number(1))
        raise LookupError
    with pytest.raises(FlowError, match="on_error 'stop': expected 'keep' or 'raise'"):
        g.run(on_error="stop")


def test_what_stones_hold_at_the_end_has_not_failed() -> None:
    """It is dead letters with a reason, but nobody's error."""
    g = ev.Graph()
    g.source("in", Number) >> ev.Storage(10) >> ev.Terminal(print)
    with g.run(on_error="raise") as flow:
        flow["in"].submit(Number(1))
    assert (len(flow.dead_letters()), flow.failed) == (1, 0)


SCRIPT = """
import evflow as ev

class Number(ev.Event):
    x: int

g = ev.Graph("numbers")
g.source("in", Number) >> ev.Terminal(lambda event: print(event.xx), name="end")

def feed(flow):
    flow["in"].submit_batch({"x": range(3)})

if __name__ == "__main__":
    with g.run(SETTINGS) as flow:
        feed(flow)
"""

COMMAND = [sys.executable, "-m", "evflow", "run"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "settings", "code"),
    [
        ([sys.executable], "", 0),
        ([sys.executable], "on_error='raise'", 1),
        (COMMAND, "", 1),
        ([*COMMAND, "--keep-going"], "", 0),
    ],
)
def test_a_process_that_configures_no_logging_prints_the_traceback(
    command: list[str], settings: str, code: int, tmp_path: Path
) -> None:
    """On stderr, with the line of the user's file; what exits with 1 is said."""
    file = tmp_path / "failing.py"
    file.write_text(SCRIPT.replace("SETTINGS", settings))
    done = subprocess.run([*command, str(file)], capture_output=True, encoding="utf-8")
    assert done.returncode == code, done.stderr
    assert "stone 'end': AttributeError" in done.stderr
    assert 'failing.py", line 8, in <lambda>' in done.stderr
    assert done.stderr.count("stone 'end': AttributeError") == 1 + (settings != "")
    assert "flow numbers ended with 3 dead letters" in done.stderr


@pytest.mark.slow
def test_a_program_that_reads_the_log_gets_nothing_on_stderr() -> None:
    """Its own handler has it."""
    text = SCRIPT.replace("SETTINGS", "").replace(
        "import evflow as ev\n",
        "import io, logging\nimport evflow as ev\nlogging.basicConfig(stream=io.StringIO())\n",
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, encoding="utf-8")
    assert done.stderr == ""


@pytest.mark.slow
def test_run_prints_its_log_as_json(tmp_path: Path) -> None:
    """An object a line, and the traceback in the one of the failure only."""
    file = tmp_path / "failing.py"
    file.write_text(SCRIPT.replace("SETTINGS", ""))
    command = [*COMMAND, "--log-format", "json", str(file)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["level"] for line in lines} == {"WARNING"}
    (traced,) = [line for line in lines if "traceback" in line]
    assert traced["message"].startswith("stone 'end': AttributeError")
    assert 'failing.py", line 8, in <lambda>' in traced["traceback"]


@pytest.mark.slow
def test_a_cell_of_a_notebook_shows_the_traceback() -> None:
    """Code compiled from a cell, where nobody has configured logging: stderr is what is shown."""
    cell = SCRIPT.replace("SETTINGS", "")
    kernel = (
        "import sys\n"
        "from code import InteractiveInterpreter\n"
        "shell = InteractiveInterpreter({'__name__': '__main__'})\n"
        "shell.runcode(compile(sys.argv[1], '<ipython-input-1>', 'exec'))\n"
    )
    done = subprocess.run([sys.executable, "-c", kernel, cell], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.count("stone 'end': AttributeError") == 1
    assert '"<ipython-input-1>", line 8, in <lambda>' in done.stderr
