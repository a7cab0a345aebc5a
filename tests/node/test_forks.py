"""Programs that fork while their flows run: the flows stay the parent's alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import forking

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("manner", [*forking.CHILDREN, "locks", "handler", "fork", "spawn", "forkserver"])
def test_forks_leave_flows_to_their_parent(manner: str, tmp_path: Path) -> None:
    """Forks end, use nothing of the parent's, and all that the parent sends comes once and in order."""
    command = [sys.executable, "-m", "tests.node.forking", manner, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout.splitlines()[-1]) == [], ended.stderr[-3000:]
