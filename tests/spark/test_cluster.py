"""A master and two workers, whose Python lacks the package: the driver, where it is installed, sends it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import evflow as ev
from tests.node.processes import free_port, wait_for
from tests.spark import cluster, setting
from tests.spark.programs import process, python
from tests.spark.sinks import local, rows
from tests.spark.writes import STONE, receiver

pytestmark = pytest.mark.slow


def contact(flow: ev.Flow) -> str:
    """Where others reach a flow."""
    assert flow.node is not None
    return flow.node.contact


@contextmanager
def standalone(folder: Path, java: str) -> Iterator[tuple[str, list[int]]]:
    """A master, and two workers on two of this host's addresses, of which each has one executor of one core.

    Spark never runs a task a second time on the host where it is slow.
    """
    master = f"spark://127.0.0.1:{free_port()}"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {
        "SPARK_DAEMON_JAVA_OPTS": f"{java} -Dspark.master.rest.enabled=false",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    del environment["SPARK_LOCAL_IP"]
    program = str(Path(os.environ["SPARK_HOME"], "bin", "spark-class"))
    port = master.rpartition(":")[2]
    master_class, worker_class = (
        f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker")
    )
    with ExitStack() as stack:
        log = stack.enter_context(open(folder / "log", "w"))
        settings: dict[str, Any] = {"env": environment, "stdout": log, "stderr": log, "cwd": folder}
        common = [program, master_class, "-h", "127.0.0.1", "-p", port, "--webui-port", "0"]
        stack.enter_context(process(common, **settings))
        workers = []
        for host in ("127.0.0.1", "127.0.0.2"):
            work = [
                program,
                worker_class,
                "-h",
                host,
                "-c",
                "1",
                "-m",
                "1g",
                "-d",
                str(folder / host),
                "--webui-port",
                "0",
            ]
            workers.append(stack.enter_context(process([*work, master], **settings)).pid)
        yield master, workers


@contextmanager
def driver(master: str, contacts: Sequence[str], folder: Path, java: str) -> Iterator[subprocess.Popen[str]]:
    """The program of ``tests.spark.cluster``."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with process(
        [
            python(folder / "driver", having=True),
            str(Path(cluster.__file__)),
            master,
            *contacts,
            str(folder),
            java,
        ],
        cwd=folder,
        env=environment | {"PYSPARK_PYTHON": python(folder / "worker")},
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as made:
        yield made


def executor(worker: int) -> psutil.Process:
    """The executor of a worker, among children that may end while they are looked at."""

    def is_executor(child: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return any("CoarseGrainedExecutorBackend" in part for part in child.cmdline())
        return False

    return next(filter(is_executor, psutil.Process(worker).children(recursive=True)))


@pytest.mark.usefixtures("spark_home")
def test_rows_come_once_from_executors_that_are_killed_and_hang(tmp_path: Path) -> None:
    java = setting.quick_java(setting.archive())
    with (
        receiver() as there,
        local() as (held, _),
        standalone(tmp_path, java) as (master, workers),
        driver(master, [contact(there.flow), contact(held)], tmp_path, java) as program,
    ):
        held["here"].submit_batch(rows(*range(10)))

        def line() -> str:
            assert program.stdout is not None
            return program.stdout.readline().rstrip()

        # The events 1 and 3 are in the circle.
        assert line() == "applied [(1, 4), (3, 4)]"
        # Not those that the driver has installed: each executor's own copy of what was sent.
        packages = line().removeprefix("executors ").split()
        assert packages and all("evflow.zip" in package for package in packages), packages
        assert line() == "begin killed"
        wait_for(lambda: len([*tmp_path.glob("waits *")]) == 2, "both tasks wait", 60)
        wait_for(lambda: there.flow.stats()[STONE]["in"], "some rows are sent", 60)
        executor(workers[0]).kill()
        (tmp_path / "go").touch()
        assert line() == "done killed 1"
        assert sorted(there.column("id")) == list(range(cluster.ROWS))
        assert line() == "begin hung"
        assert line() == "done hung 0"
        assert sorted(there.column("id")[cluster.ROWS :]) == list(range(cluster.ROWS))
        assert line() == "streamed"
        assert sorted(there.column("id")[2 * cluster.ROWS :]) == list(range(-9, 1))
        assert program.wait(60) == 0
