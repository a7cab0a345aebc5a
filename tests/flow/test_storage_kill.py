"""A process with a storage file is killed at any moment; what was stored is there afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import evflow as ev

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import evflow as ev

class Rec(ev.Event):
    seq: int

passed = open(sys.argv[2], "a", buffering=1)
g = ev.Graph()
store = g.source("recs", Rec) >> ev.Storage(50, path=sys.argv[1], name="store")
store >> ev.Terminal(lambda e: passed.write(f"{e.seq}\\n"))
with g.run() as flow:
    for seq in range(1_000_000):
        flow["recs"].submit(Rec(seq))
        if seq % 10 == 0:
            flow.drain()
            print(seq, flush=True)
"""


class Rec(ev.Event):
    seq: int


@pytest.mark.parametrize("moment", [0.0, 0.03, 0.1])
def test_a_killed_process_loses_nothing_that_was_stored(tmp_path: Path, moment: float) -> None:
    """Every event acknowledged by drain was passed on before the kill or is in the file, in order."""
    store, passed = tmp_path / "store.db", tmp_path / "passed"
    command = [sys.executable, "-c", PROGRAM, str(store), str(passed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        last = 0
        for line in process.stdout:
            last = int(line)
            if last >= 100:
                break
        time.sleep(moment)
        os.kill(process.pid, signal.SIGKILL)
        drained = max([last, *(int(line) for line in process.stdout if line.endswith("\n"))])
    before = [int(line) for line in passed.read_text().splitlines()]
    held: list[Any] = []
    g = ev.Graph()
    (
        g.source("recs", Rec)
        >> ev.Storage(50, path=store, name="store")
        >> ev.Terminal(lambda e: held.append(e.seq))
    )
    with g.run() as flow:
        flow.send_stored("store")
    assert before == list(range(len(before)))
    assert held == list(range(held[0], held[-1] + 1))
    # What was handed on just before the kill may be in both, but nothing is in neither.
    assert held[0] <= len(before)
    assert held[-1] >= drained
