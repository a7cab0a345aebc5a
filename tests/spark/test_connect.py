"""A server of Spark Connect in a process of its own, and a program that has no Java."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import evflow as ev
from tests.node.processes import free_port, wait_for
from tests.spark import connected, setting
from tests.spark.programs import process
from tests.spark.sinks import SINK, Row
from tests.spark.writes import receiver

pytestmark = pytest.mark.slow

if importlib.util.find_spec("grpc") is None:
    pytest.skip("pyspark[connect] is not installed", allow_module_level=True)


@pytest.mark.usefixtures("spark_home")
def test_everything_works_with_a_connect_server(tmp_path: Path) -> None:
    port = free_port()
    server = [
        str(Path(os.environ["SPARK_HOME"], "bin", "spark-submit")),
        *("--master", "local[2]", "--driver-memory", "1g"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--driver-java-options", setting.quick_java(setting.archive())),
    ]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(tmp_path),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.ui.enabled": "false",
    }
    for key, value in settings.items():
        server += ["--conf", f"{key}={value}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(setting.worker_path())}
    graph = ev.Graph("kept")
    graph.source("here", Row) >> ev.SparkSink(Row, name=SINK)
    with (
        receiver() as there,
        graph.run() as kept,
        open(tmp_path / "log", "w") as log,
        process(server, env=environment, cwd=tmp_path, stdout=log, stderr=log) as made,
    ):
        kept["here"].submit_batch({"seq": list(range(500))})
        kept.drain(30)
        assert kept.node is not None
        wait_for(lambda: "started" in (tmp_path / "log").read_text() or made.poll(), "the server starts", 60)
        arguments = [f"sc://127.0.0.1:{port}", there.options["contact"], kept.node.contact, str(tmp_path)]
        # Without Java, which the server alone needs.
        program = subprocess.run(
            [sys.executable, connected.__file__, *arguments],
            env=environment | {"PATH": str(tmp_path), "JAVA_HOME": ""},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            timeout=200,
        )
        assert program.returncode == 0, "\n".join((tmp_path / "log").read_text().splitlines()[-20:])
        assert sorted(there.column("id")) == sorted([*range(500), *range(connected.ROWS)])
    found = json.loads(program.stdout.splitlines()[-1])
    assert found["read"] == list(range(500))
    assert found["pairs"] == [[n, n % 3] for n in range(20) if n % 3 == 2 or (n % 3 == 1 and n < 10)]
    assert found["tiles"] == [[1, 4], [2, 4], [3, 4]]
    # A thousandth of a degree is 111 m.
    assert found["left"] == [[0, 4, 4], [1, 5, 4]]
    assert found["odd"] == list(range(1, connected.ROWS, 2))
    assert found["fed"] == list(range(connected.ROWS))
