"""The suite in the background of a shell script, where SIGINT is ignored."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest


def test_interrupts_reach_what_a_test_starts() -> None:
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-Sc", program], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "True\n"


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "1"])
def test_interrupts_reach_it_in_the_background(checkout: Path, processes: str) -> None:
    test = f"{__file__}::{test_interrupts_reach_what_a_test_starts.__name__}"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        command = [sys.executable, "-m", "pytest", "-n", processes, test]
        done = subprocess.run(command, cwd=checkout, capture_output=True, encoding="utf-8")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 0, done.stdout + done.stderr
