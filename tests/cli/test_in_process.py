"""``evflow node`` and ``evflow run`` called within a program, as tests call them."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evflow.tools.cli import main

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def left_behind() -> list[Any]:
    """What the command changes while it runs."""
    loggers = [logging.getLogger(), logging.getLogger("evflow")]
    kept = [(log.level, list(log.handlers)) for log in loggers]
    return [[signal.getsignal(number) for number in SIGNALS], kept, list(sys.path)]


def end_when_it_waits(before: list[Any]) -> None:
    """Asks the command to end as soon as it takes that."""
    while signal.getsignal(signal.SIGTERM) is before[0][1]:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)


def test_node_leaves_the_process_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    before = left_behind()
    ending = threading.Thread(target=end_when_it_waits, args=(before,), daemon=True)
    ending.start()
    done = CliRunner().invoke(
        main, ["node", "edge", "--listen", "tcp://127.0.0.1:0", "--storage", str(tmp_path / "edge")]
    )
    assert done.exit_code == 0, done.output
    assert "node edge listens at tcp://127.0.0.1:" in done.output
    assert left_behind() == before


def test_node_that_cannot_start_leaves_the_process_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    before = left_behind()
    done = CliRunner().invoke(
        main, ["node", "edge", "--listen", "nowhere", "--storage", str(tmp_path / "edge")]
    )
    assert done.exit_code == 1, done.output
    assert left_behind() == before


def test_run_with_a_log_of_json_leaves_logging_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    before = left_behind()
    (tmp_path / "empty.py").write_text("")
    done = CliRunner().invoke(main, ["run", str(tmp_path / "empty.py"), "--log-format", "json"])
    assert done.exit_code == 1, done.output
    assert left_behind()[:2] == before[:2]
