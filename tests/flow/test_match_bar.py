"""A large file of subscriptions shows how far it is, on a terminal only."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest

from tests.flow.alerts import graph


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "wanted [red].txt"
    lines = [f"number == {n}" if n % 3 else rf"carrier == 'U\x{n % 7 + 48:x}'" for n in range(60)]
    path.write_text("\n".join(["# what", "", *lines]))
    return path


@pytest.mark.parametrize("least", [20, 61])
def test_a_terminal_shows_each_long_loop(least: int, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evflow.stones.matching.bar._MANY", least)
    monkeypatch.setattr("sys.stderr", shown := Terminal())
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    graph([], file=file).check()
    told = shown.getvalue()
    assert "wanted [red].txt: lines read" in told and "62/62" in told
    assert ("looked through" in told and "60/60" in told) is (least == 20)
    assert ("parsed" in told and "20/20" in told) is (least == 20)


def test_without_a_terminal_only_the_log_tells(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("evflow.stones.matching.bar._MANY", 1)
    monkeypatch.setattr("sys.stderr", shown := io.StringIO())
    caplog.set_level(logging.INFO, "evflow.matching")
    with graph([], file=file).run():
        pass
    assert "looked through" not in shown.getvalue() and "lines read" not in shown.getvalue()
    told = [record.getMessage() for record in caplog.records if record.name == "evflow.matching"]
    assert [line.rpartition(" in ")[0] for line in told] == [
        f"match alerts: read {file}",
        "match alerts: took in 60 subscriptions",
    ]
