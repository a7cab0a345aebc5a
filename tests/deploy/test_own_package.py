"""The example of a package with stones: installed, announced, and run on hosts of which not all have it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import preloaded
from tests.deploy.daemons import DaemonProcess, hosts_of
from tests.node.processes import ROOT, wait_for

pytestmark = pytest.mark.slow

GRAPH = """
import evflow as ev
from evflow_sampling import Every, Newest


class Rec(ev.Event):
    seq: int


g = ev.Graph("thinned")
with g.on("bare"):
    recs = g.source("recs", Rec)
with g.on("left"):
    third = recs >> Every(3, name="third")
with g.on("bare"):
    even = third >> ev.Filter("input.seq % 2 == 0", name="even")
with g.on("left"):
    last = even >> Newest(2, name="last")
with g.on("bare"):
    last >> ev.Terminal("tests.deploy.handlers:note", batch=True, name="end")


def feed(thinned):
    thinned["recs"].submit_batch({"seq": list(range(100))})


if __name__ == "__main__":
    import json, sys
    print(json.dumps(g.to_dict()))
"""
FEED = """
import json, sys
import evflow as ev
import thinned
with ev.Deployment("thinned", json.loads(sys.argv[1])) as it:
    thinned.feed(it)
    it.drain(20)
"""
MORE = """
import json, sys
import evflow as ev
# What stats asks of a dead node is answered after so long.
with ev.Deployment("thinned", json.loads(sys.argv[1]), timeout=3) as thinned:
    thinned["recs"].submit_batch({"seq": list(range(100, 200))})
    thinned.drain(20)
    print(thinned.stats()["last"]["queued"], "evflow_sampling" in sys.modules)
"""
TRIED = """
import sys
import evflow as ev
import thinned
node, contact = sys.argv[1:]
for name in list(thinned.g.stones):
    thinned.g.move(name, node)
try:
    thinned.g.deploy({node: contact})
except ev.DeployError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example was installed, from a copy of it."""
    folder = tmp_path_factory.mktemp("installed")
    copy = folder / "source"
    shutil.copytree(ROOT / "examples" / "evflow-sampling", copy)
    command = "-m pip install --quiet --no-deps --no-build-isolation --target".split()
    subprocess.run([sys.executable, *command, str(folder / "packages"), "."], cwd=copy, check=True)
    return folder / "packages"


@pytest.fixture
def program(packages: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs the command or a program in a folder of its own; with the package, or without."""
    desk = tmp_path / "desk"
    desk.mkdir()
    for name, text in (("thinned", GRAPH), ("feed", FEED), ("more", MORE), ("tried", TRIED)):
        (desk / f"{name}.py").write_text(text)

    def run(what: str, *arguments: str, having: bool = True) -> str:
        path = os.pathsep.join(map(str, (ROOT, *([packages] if having else ()))))
        wanted = "evflow.tools.cli:main" if what == "evflow" else desk / what
        return preloaded.printed(wanted, arguments, env=os.environ | {"PYTHONPATH": path}, cwd=desk)

    return run


def test_installed_package_runs_on_daemons_that_allow_it(
    packages: Path, program: Callable[..., str], tmp_path: Path
) -> None:
    allow = ("--allow", "evflow_sampling")
    with (
        DaemonProcess("bare", tmp_path) as bare,
        DaemonProcess("left", tmp_path, *allow, packages=packages) as left,
        DaemonProcess("right", tmp_path, *allow, packages=packages) as right,
    ):
        hosts = hosts_of(bare, left, right)
        listed = "\n".join(["[hosts]", *(f'{name} = "{contact}"' for name, contact in hosts.items())])
        (tmp_path / "desk" / "hosts.toml").write_text(listed)
        told = ("--hosts", "hosts.toml")
        # As data a stone has the name under which its package announces it.
        data = json.loads(program("thinned.py"))
        assert [stone["kind"] for stone in data["stones"]] == [
            "source",
            "every",
            "filter",
            "newest",
            "terminal",
        ]
        (tmp_path / "desk" / "thinned.json").write_text(json.dumps(data))
        program("evflow", "validate", "thinned.py", *told)
        # A host that lacks the package can still draw and deploy what was written as data.
        program("evflow", "draw", "thinned.json", "-o", "still.svg", having=False)
        assert "every" in (tmp_path / "desk" / "still.svg").read_text()
        program("evflow", "deploy", "thinned.json", *told, having=False)
        program("feed.py", json.dumps(hosts))
        # Every third of 0…99, of these the even ones: 2, 8, …, 98; the last two are held.
        wait_for(lambda: len(bare.noted) == 15, "what was let go")
        program("evflow", "change", "move", "thinned", "third", "right", *told, having=False)
        program("evflow", "change", "move", "thinned", "last", "right", *told)
        left.kill()
        assert program("more.py", json.dumps(hosts), having=False).split() == ["2", "False"]
        expected = [seq for seq in range(2, 200, 3) if seq % 2 == 0][:-2]
        wait_for(lambda: len(bare.noted) == len(expected), "what was let go after the move")
        assert bare.noted == expected
        right.kill()
        right.restart()
        left.restart()
        status = program("evflow", "status", *told, having=False)
        assert "thinned" in status
        program(
            "evflow",
            "draw",
            "--live",
            "--once",
            "--every",
            "0.2",
            "-o",
            "live.svg",
            *told,
            having=False,
        )
        assert "newest" in (tmp_path / "desk" / "live.svg").read_text()


def test_host_that_does_not_allow_or_have_it_says_so(
    packages: Path, program: Callable[..., str], tmp_path: Path
) -> None:
    said = {}
    for name, options, having in (("shut", (), True), ("poor", ("--allow", "evflow_sampling"), False)):
        with DaemonProcess(name, tmp_path, *options, packages=packages if having else None) as daemon:
            contact = hosts_of(daemon)[name]
            said[name] = program("tried.py", name, contact)
    assert "stone class 'evflow_sampling:Every' is not on this node's list" in said["shut"]
    assert "start it with --allow evflow_sampling" in said["shut"]
    assert "stone kind 'every' is not known" in said["poor"]
