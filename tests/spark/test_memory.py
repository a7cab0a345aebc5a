"""What workers and a receiver need does not depend on how many rows there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.long.memory import check_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_ten_times_as_many_rows_take_no_more_memory(spark: SparkSession) -> None:
    """The rows of the second run are 260 MB."""
    check_memory(spark, [100_000, 1_000_000])
