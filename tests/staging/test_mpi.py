"""The example solver over MPI, where that is installed, does what it does over pipes."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.processes import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")
@pytest.mark.skipif(not importlib.util.find_spec("mpi4py"), reason="mpi4py is not installed")
def test_two_processes_of_mpi_store_what_one_computes(tmp_path: Path) -> None:
    options = ["-n", "2", "--allow-run-as-root", "--oversubscribe"]
    program = [sys.executable, ROOT / "examples" / "staging_mpi.py"]
    done = subprocess.run(
        ["mpirun", *options, *program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *steps, last = done.stdout.splitlines()
    assert steps == [f"step {step} is on the disk" for step in range(0, 101, 20)]
    assert last == "6 steps; the last is what one process computes: True"
