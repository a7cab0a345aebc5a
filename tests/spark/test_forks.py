"""A fork of a program leaves the folders of Spark stones, sessions and matchers to the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import os, sys
from pathlib import Path
from evflow.deploy.store import FileStore
from evflow.spark import registering
from evflow.spark.sinklog.log import RowLog
from evflow.spark.landing.folder import Folder
from evflow.spark.matching import broadcast

own = Path(sys.argv[1])
opened = [RowLog(None, 1 << 20), Folder(None)]
made = {registering.archived().parent, broadcast._root(), opened[0]._log.path.parent, opened[1].path}
assert len(made) == 4
if not os.fork():
    assert broadcast._root() not in made
    for each in opened:
        each.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
for folder in made:
    print("left" if folder.is_dir() else f"{folder} is gone")

held = {"log": lambda: RowLog(own / "log", 1 << 20), "rows": lambda: Folder(own / "rows"),
        "store": lambda: FileStore(own / "store")}
ours = {name: make() for name, make in held.items()}
reader, writer = os.pipe()
if not (fork := os.fork()):
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
for name, make in held.items():
    ours[name].close()
    make().close()
    print("opened again")
os.close(writer)
os.waitpid(fork, 0)
"""


def test_a_fork_takes_no_folder_along_when_it_ends(tmp_path: Path) -> None:
    temporary, own = tmp_path / "tmp", tmp_path / "own"
    temporary.mkdir()
    own.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(own)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.splitlines() == ["left"] * 4 + ["opened again"] * 3
    # A Spark source that nobody closed is cleared away by the next one.
    assert not [path for path in temporary.iterdir() if not path.name.startswith("evflow-spark-")]
