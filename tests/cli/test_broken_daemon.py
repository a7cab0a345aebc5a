"""A daemon whose flow broke ends, so that whatever watches over it starts it again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import time

from evflow.tools.cli import main
from evflow.net.link.hub import Hub

original, begins = Hub.finish, time.monotonic() + 1.0


def finish(self, now):
    if now > begins:
        raise RuntimeError("planted")
    return original(self, now)


Hub.finish = finish
main()
"""


def test_daemon_whose_flow_broke_ends_with_one_line(tmp_path: Path) -> None:
    arguments = ["node", "edge", "--listen", "tcp://127.0.0.1:0", "--storage", str(tmp_path / "edge")]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=Path(__file__).parents[2], capture_output=True,
        encoding="utf-8", timeout=60,
    )  # fmt: skip
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: flow node edge broke: ") and "planted" in last
