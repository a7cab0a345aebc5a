from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import evflow as ev
import evflow.spark
from evflow.errors import SparkError
from evflow.spark import registering
from evflow.spark.format.options import Options
from evflow.spark.session import configure_spark_with_evflow, require_spark

GOOD = {"contact": "tcp://127.0.0.1:7000", "stone": "rows"}


def test_options_have_values_whatever_their_case() -> None:
    given = {"Contact": "center=tcp://10.0.0.1:7000", "STONE": "d/rows", "jobId": "nightly", "timeout": "2.5"}
    found = Options.parse(
        given | {"keys": "keys", "name": "etl", "plain": "True", "checkpointLocation": "/c"}
    )
    expected = Options("tcp://10.0.0.1:7000", "d/rows", "center", "nightly", 2.5, "keys", "etl", True)
    assert found == expected
    assert found.there == "center"
    assert Options.parse(GOOD).there == "tcp://127.0.0.1:7000"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"contact": ""}, "option 'contact' is missing"),
        ({"stone": ""}, "option 'stone' is missing"),
        ({"contact": "127.0.0.1:7000"}, "option 'contact': .*begins with neither tcp:// nor ipc://"),
        ({"timeout": "soon"}, "option 'timeout' 'soon': expected seconds"),
        ({"timeout": "0"}, "option 'timeout' '0': expected seconds"),
        ({"timeout": "nan"}, "option 'timeout' 'nan': expected seconds"),
        ({"plain": "yes"}, "option 'plain' 'yes': expected true or false"),
        ({"keys": "keys"}, "with keys expected NAME=CONTACT"),
        ({"tiemout": "1"}, "option 'tiemout' is not known: expected .*is 'timeout' meant"),
        ({"path": "rows"}, "path 'rows': format evflow has none"),
    ],
)
def test_option_that_is_wrong_is_named(changed: dict[str, str], message: str) -> None:
    with pytest.raises(SparkError, match=message):
        Options.parse(GOOD | changed)


def test_options_of_reads_are_known_to_reads_only() -> None:
    given = {"FROM": " 3 ", "to": "Latest", "startingoffset": "7", "maxRowsPerTrigger": "10", "query": "q"}
    found = Options.parse(GOOD | given | {"partitions": "2"}, reads=True)
    assert (found.first, found.last, found.start) == (3, "latest", 7)
    assert (found.most_rows, found.partitions, found.query) == (10, 2, "q")
    with pytest.raises(SparkError, match="option 'from' is not known"):
        Options.parse(GOOD | {"from": "3"})


def test_configure_refuses_what_is_no_builder() -> None:
    with pytest.raises(SparkError, match=r"expected a SparkSession.builder but found dict"):
        configure_spark_with_evflow({})


def test_missing_java_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkError, match=r"JAVA_HOME, which is .* has no bin/java: install Java 17"):
        require_spark()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkError, match=r"there is no java on the path: install Java 17"):
        require_spark()


def test_missing_pyspark_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        SparkError, match=r"package pyspark, which is not installed: pip install 'evflow\[spark\]'"
    ):
        require_spark()


def entries() -> dict[str, Callable[[], Any]]:
    """Each way in: functions, stones with a job or a DataFrame's schema, the format."""
    from pyspark.sql.types import LongType, StructType

    from evflow.spark.pyspark_evflow import DefaultSource

    found: dict[str, Callable[[], Any]] = {
        name: partial(getattr, evflow.spark, name) for name in evflow.spark.__all__
    }
    format = DefaultSource(GOOD)
    struct = StructType().add("id", LongType())
    g = ev.Graph()
    g.add(ev.SparkSource(sql="select 1 as one")) >> ev.Terminal(print)
    return found | {
        "require_spark": require_spark,
        "configure": partial(configure_spark_with_evflow, object()),
        "register the function": partial(registering.register, object()),
        "source": g.run,
        "sink": partial(ev.SparkSink, struct),
        "writer": partial(format.writer, struct, False),
        "streamWriter": partial(format.streamWriter, struct, False),
        "schema": format.schema,
        "reader": partial(format.reader, struct),
        "streamReader": partial(format.streamReader, struct),
    }


@pytest.mark.parametrize("version", ["4.1.2", "4.4.0.dev1", "3.5.8"])
def test_another_version_of_spark_is_one_clear_error_at_every_entry(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    ways = entries()
    monkeypatch.setattr("pyspark.__version__", version)
    said = []
    for name, way in ways.items():
        with pytest.raises(SparkError) as caught:
            way()
        said.append((name, str(caught.value)))
    expected = f"evflow works with Spark 4.2 or 4.3, found pyspark {version}: pip install 'evflow[spark]'"
    assert [name for name, text in said if not text.startswith(expected)] == []
    assert len({text for _, text in said}) == 1


@pytest.mark.slow
def test_format_is_imported_without_anything_else() -> None:
    code = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_evflow; "
        "print(*set(sys.modules) - before)"
    )
    from evflow.spark.session import worker_path

    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {worker_path()!r}; {code}"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout.split() == ["pyspark_evflow"]
