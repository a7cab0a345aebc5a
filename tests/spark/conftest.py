"""One Spark session for all tests of a pytest process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from evflow.errors import SparkError
from evflow.spark.session import require_spark
from tests.spark import setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDS = {"spark", "spark_home"}

WARNINGS = (
    # Py4J leaves its sockets to the garbage collector.
    "ignore:unclosed:ResourceWarning",
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if NEEDS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
            for warning in WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def spark_home() -> Iterator[pytest.MonkeyPatch]:
    """Spark's environment; skips where it cannot start, unless ``EVFLOW_SPARK_TESTS`` is ``must``."""
    try:
        require_spark()
    except SparkError as missing:
        if os.environ.get("EVFLOW_SPARK_TESTS") == "must":
            raise
        pytest.skip(f"Spark cannot be tested here: {missing}")
    with setting.environment() as environment:
        yield environment


@pytest.fixture(scope="session")
def spark(spark_home: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session of ``EVFLOW_TEST_MASTER`` or ``local[2,4]``, whose tasks have four attempts."""
    java = setting.quick_java(setting.archive())
    made = setting.session(java, tmp_path_factory.mktemp("spark"))
    yield made
    setting.stop(made)
