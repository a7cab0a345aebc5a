"""The two programs of the example, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evflow

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_the_office_gets_large_trades_of_the_desk() -> None:
    assert evflow.__file__ is not None
    environment = os.environ | {
        "PYTHONPATH": str(Path(evflow.__file__).parents[1]),
        "PYTHONWARNINGS": "error",
    }
    desk = subprocess.Popen(
        [sys.executable, EXAMPLES / "echo_desk.py", "60"],
        stdout=subprocess.PIPE, encoding="utf-8", env=environment,
    )  # fmt: skip
    with desk:
        assert desk.stdout is not None
        contact = desk.stdout.readline().split()[-1]
        office = subprocess.run(
            [sys.executable, EXAMPLES / "echo_office.py", contact],
            capture_output=True, encoding="utf-8", env=environment, timeout=60,
        )  # fmt: skip
        desk.kill()
    assert office.returncode == 0, office.stderr
    # The first trades may be there before the members are printed.
    *trades, members = sorted(office.stdout.splitlines())
    assert members == "members: desk, office"
    assert len(trades) == 5
    assert all(int(re.fullmatch(r"large: \w+ (\d+)", line)[1]) > 1000 for line in trades)  # type: ignore[index]
