from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.writes import STONE, Receiver, receiver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


def put(spark: SparkSession, folder: Path, numbers: range) -> None:
    """Adds a file of rows, as one that appears at once."""
    rows = "\n".join(f'{{"id": {number}}}' for number in numbers)
    made = folder.with_name("made.json")
    made.write_text(rows)
    made.rename(folder / f"{numbers.start:09}.json")


def files(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of the rows in the files of a folder, two files a micro-batch."""
    reader = spark.readStream.schema("id long").option("maxFilesPerTrigger", 2)
    return reader.json(str(folder)).repartition(2)


def run(frame: DataFrame, there: Receiver, checkpoint: Path, form: str = "evflow") -> None:
    """Runs a query until it has done all there is."""
    writer = frame.writeStream.format(form).options(**there.options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def broken(fails: Path, after: bool) -> Any:
    """The format, whose commit fails while a file is there, before or after the stone has committed."""
    import sys

    from pyspark import cloudpickle
    from pyspark_evflow import DefaultSource

    from evflow.spark.format.writing import StreamWriter

    # Spark's processes have no module of this name.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    path = str(fails)

    class BrokenWriter(StreamWriter):
        def commit(self, messages: Sequence[Any], batchId: int) -> None:
            if after:
                super().commit(messages, batchId)
            if Path(path).exists():
                raise RuntimeError("planned failure")
            if not after:
                super().commit(messages, batchId)

    class BrokenSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "broken"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return BrokenWriter(self.options, schema, overwrite)

    return BrokenSource


def test_query_over_files_delivers_each_row_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    folder.mkdir()
    for start in range(0, 300, 100):
        put(spark, folder, range(start, start + 100))
    with receiver() as there:
        run(files(spark, folder), there, checkpoint)
        assert sorted(there.column("id")) == list(range(300))
        put(spark, folder, range(300, 400))
        run(files(spark, folder), there, checkpoint)
        assert sorted(there.column("id")) == list(range(400))
        # As if the driver had died after the stone's commit, before Spark's own.
        for path in (checkpoint / "commits").glob("*2*"):
            path.unlink()
        taken = there.flow.stats()[STONE]["in"]
        put(spark, folder, range(400, 500))
        run(files(spark, folder), there, checkpoint)
        assert sorted(there.column("id")) == list(range(500))
        assert there.flow.stats()[STONE]["in"] == taken + 100
        # Another query has another identity.
        shutil.rmtree(checkpoint)
        run(files(spark, folder), there, checkpoint)
        assert sorted(there.column("id")) == sorted([*range(500), *range(500)])


@pytest.mark.parametrize("after", [False, True])
def test_query_whose_commit_fails_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path, after: bool
) -> None:
    folder, checkpoint, fails = tmp_path / "files", tmp_path / "checkpoint", tmp_path / "fails"
    folder.mkdir()
    fails.touch()
    for start in range(0, 400, 100):
        put(spark, folder, range(start, start + 100))
    spark.dataSource.register(broken(fails, after))
    with receiver() as there:
        with pytest.raises(Exception, match="planned failure"):
            run(files(spark, folder), there, checkpoint, "broken")
        there.flow.drain(30)
        assert len(there.column("id")) == (200 if after else 0)
        fails.unlink()
        run(files(spark, folder), there, checkpoint, "broken")
        assert sorted(there.column("id")) == list(range(400))


def test_query_cannot_have_a_job_id_or_replace_rows(spark: SparkSession, tmp_path: Path) -> None:
    with receiver() as there:
        stream = spark.readStream.format("rate").load().selectExpr("value id")
        writer = stream.writeStream.format("evflow").option("checkpointLocation", str(tmp_path))
        query = writer.options(**there.options, jobid="x").trigger(once=True).start()
        with pytest.raises(Exception, match="SparkError: option 'jobid' is for batch jobs"):
            query.awaitTermination()
