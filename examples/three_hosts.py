"""Three hosts, and a stone that moves from one to another while events flow.

The hosts are network namespaces: each has its own network card, cabled to one switch. Where this user may not
make any, three ports of this host do instead. Each host runs ``evflow node``, with keys; this program rolls a
graph out over them, feeds it, moves the filter, and then compares what has arrived with what should have.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import evflow as ev

HOSTS = ("edge", "center", "office")
EVFLOW = (sys.executable, "-c", "from evflow.tools.cli import main; main()")  # the command evflow
TAG = "ev3h-"


class Reading(ev.Event):
    number: int


def note(batch: ev.EventBatch) -> None:
    """The handler. It runs on the office, whose ``evflow node`` finds it in this file."""
    with Path("arrivals").open("a") as file:
        file.writelines(f"{time.monotonic()} {number}\n" for number in batch["number"])


g = ev.Graph("stations")
with g.on("edge"):
    readings = g.source("readings", Reading)
with g.on("center"):
    even = readings >> ev.Filter("input.number % 2 == 0", name="even")
with g.on("office"):
    even >> ev.Terminal("three_hosts:note", batch=True, name="note")


def drive(folder: Path, hosts: dict[str, str]) -> None:
    """What somebody at a fourth place, the desk, does with the three hosts."""
    with g.deploy(hosts, name="desk", keys=folder / "keys") as stations:
        sent, end = 0, time.monotonic() + 2
        mover = threading.Timer(1, stations.move, ["even", "office"])
        mover.start()
        while time.monotonic() < end or mover.is_alive():
            stations["readings"].submit_batch({"number": range(sent, sent + 50)}, schema=Reading)
            sent += 50
            time.sleep(0.002)
        stations.drain(timeout=30)
        for name, counts in stations.stats().items():
            print(f"{name:14} on {counts['node']:6} {int(counts['in']):7,} in {int(counts['out']):7,} out")
    arrivals = [line.split() for line in (folder / "arrivals").read_text().splitlines()]
    times = [float(at) for at, _ in arrivals]
    right = [int(number) for _, number in arrivals] == list(range(0, sent, 2))
    print(f"{sent:,} submitted, {len(arrivals):,} arrived:", "each once, in order" if right else "WRONG")
    print(f"longest time without an arrival: {max(b - a for a, b in pairwise(times)):.3f} s")
    sys.exit(0 if right else 1)


# What follows makes the hosts. Their names say which run of this program they are of.


def inside(host: str) -> list[str]:
    """How a command begins that is to run on a host."""
    return ["ip", "netns", "exec", f"{TAG}{os.getpid()}-{host}"]


def ip(command: str, host: str = "") -> str:
    words = [*(inside(host) if host else []), "ip", *command.split()]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def build() -> None:
    """Makes the hosts, and a switch in a namespace of its own, which is also where the desk is."""
    for host in ("switch", *HOSTS):
        ip(f"netns add {inside(host)[-1]}")
        ip("link set lo up", host)
    ip("link add switch type bridge", "switch")
    ip("link set switch up", "switch")
    ip("address add 10.84.0.254/24 dev switch", "switch")
    for number, host in enumerate(HOSTS, 1):
        ip(f"link add {host} type veth peer name card netns {inside(host)[-1]}", "switch")
        ip(f"link set {host} master switch up", "switch")
        ip(f"address add 10.84.0.{number}/24 dev card", host)
        ip("link set card up", host)


def sweep() -> None:
    """Takes the hosts away with all that runs there, also those that an earlier run has left."""
    for name in (line.split()[0] for line in ip("netns list").splitlines()):
        run = name.removeprefix(TAG).partition("-")[0]
        if name.startswith(TAG) and (run == str(os.getpid()) or not Path("/proc", run).exists()):
            for process in ip(f"netns pids {name}").split():
                os.kill(int(process), signal.SIGKILL)
            ip(f"netns delete {name}")


def start(host: str, folder: Path, listen: str, enter: list[str], stack: ExitStack) -> str:
    """Starts ``evflow node`` on a host, until the stack ends; gives the contact that it prints."""
    node = f"node {host} --listen {listen} --keys keys --allow three_hosts --log-level error"
    path = f"{Path(__file__).parent.resolve()}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    process = subprocess.Popen(
        [*enter, *EVFLOW, *node.split()], cwd=folder, env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    stack.enter_context(process)
    stack.callback(process.kill)
    assert process.stdout is not None
    return process.stdout.readline().split()[-1]


def run(folder: Path, listen: str, enter: Callable[[str], list[str]], stack: ExitStack) -> int:
    """Makes keys, starts a node on each host, and then this program once more, as the desk."""
    for end in (*HOSTS, "desk"):  # each real host has its own secret key only, and the public ones of others
        subprocess.run(
            [*EVFLOW, "keygen", end, "--dir", folder / "keys"], check=True, stdout=subprocess.DEVNULL
        )
    contacts = [start(h, folder, listen.format(n), enter(h), stack) for n, h in enumerate(HOSTS, 1)]
    print("hosts:", *contacts, flush=True)
    return subprocess.run([*enter("switch"), sys.executable, __file__, "desk", folder, *contacts]).returncode


def main() -> int:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # then too, all is cleaned up
    with TemporaryDirectory() as folder, ExitStack() as stack:
        try:
            sweep()
            stack.callback(sweep)
            build()
        except (OSError, subprocess.CalledProcessError) as error:
            print("no network namespaces, so these are three ports of this host:", error)
            return run(Path(folder), "tcp://127.0.0.1:0", lambda host: [], stack)
        return run(Path(folder), "tcp://10.84.0.{}:7000", inside, stack)


if __name__ == "__main__":
    if sys.argv[1:2] == ["desk"]:
        drive(Path(sys.argv[2]), dict(zip(HOSTS, sys.argv[3:], strict=True)))
    else:
        sys.exit(main())
