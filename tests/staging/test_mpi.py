"""The example solver over MPI, where that is installed, does what it does over pipes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.processes import ROOT

pytestmark = pytest.mark.slow


MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed")
@pytest.mark.skipif(not importlib.util.find_spec("mpi4py"), reason="mpi4py is not installed")
def test_two_processes_of_mpi_store_what_one_computes(tmp_path: Path) -> None:
    assert MPIRUN is not None
    command = [MPIRUN, "-n", "2", sys.executable, ROOT / "examples" / "staging_mpi.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    *steps, last = done.stdout.splitlines()
    assert steps == [f"step {step} is on the disk" for step in range(0, 101, 20)]
    assert last == "6 steps; the last is what one process computes: True"
