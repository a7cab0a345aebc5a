"""The format of a session that evflow is sent to, where a Python lacks evflow."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from evflow.spark.registering import archived, sent_format
from tests.spark.programs import python

pytestmark = pytest.mark.slow

cloudpickle = pytest.importorskip("pyspark.cloudpickle")

ALONE = """
import importlib.util, pickle, sys
from pyspark.sql.types import StructType
assert importlib.util.find_spec("evflow") is None
format = pickle.load(open(sys.argv[1], "rb"))({"contact": "tcp://127.0.0.1:9", "stone": "rows"})
for method in (lambda: format.streamWriter(StructType(), False), lambda: format.streamReader(StructType())):
    try:
        print(format.name(), type(method()).__name__)
    except Exception as error:
        print(format.name(), type(error).__name__, error)
"""


def test_a_process_that_is_sent_nothing_takes_evflow_from_this_host_or_says_what_is_missing(
    tmp_path: Path,
) -> None:
    """As the one in which Spark plans what a stream reads."""
    program = python(tmp_path / "bare")

    def said(archive: Path) -> list[str]:
        (tmp_path / "class").write_bytes(cloudpickle.dumps(sent_format(archive)))
        command = [program, "-c", ALONE, str(tmp_path / "class")]
        done = subprocess.run(
            command, cwd=tmp_path, env={}, stdout=subprocess.PIPE, encoding="utf-8", check=True
        )
        return done.stdout.splitlines()

    assert said(archived()) == ["evflow StreamWriter", "evflow StreamReader"]
    missing = said(tmp_path / "on another host")
    assert len(missing) == 2
    for line in missing:
        assert line.startswith("evflow RuntimeError pyspark_evflow is missing where Spark plans")
        assert program in line and "pip install 'evflow[spark]'" in line
