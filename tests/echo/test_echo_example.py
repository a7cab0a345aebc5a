"""The two programs of the example, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_office_gets_large_trades_of_the_desk() -> None:
    settings: dict[str, Any] = {
        "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8",
        "env": os.environ | {"PYTHONWARNINGS": "error"},
    }  # fmt: skip
    desk = preloaded.start(EXAMPLES / "echo_desk.py", ["60"], **settings)
    try:
        assert desk.stdout is not None
        contact = desk.stdout.readline().split()[-1]
        office = preloaded.start(EXAMPLES / "echo_office.py", [contact], **settings)
        out, err = office.communicate(60)
    finally:
        desk.kill()
        desk.communicate(60)
    assert office.returncode == 0, err
    members, *trades = out.splitlines()
    assert members == "members: desk, office"
    assert len(trades) == 5
    assert all(int(re.fullmatch(r"large: \w+ (\d+)", line)[1]) > 1000 for line in trades)  # type: ignore[index]
