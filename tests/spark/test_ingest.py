"""A Spark source that runs a job of its own: what comes of it, how far it is, how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import evflow as ev
from evflow.deploy.admission import Admission
from evflow.errors import SparkError
from evflow.spark.ingest.feed import Feed
from evflow.spark.ingest.job import Job, reason_of
from evflow.spark.ingest.progress import Progress, shown
from evflow.spark.java import explained
from tests.spark import setting

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
Py4JError = pytest.importorskip("py4j.protocol").Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Row(ev.Event):
    number: int
    half: float
    word: ev.Str[8]


SQL = "select id as number, id / 2 as half, concat('w', id % 3) as word, 'more' as other"


def rows(start: int, stop: int) -> list[tuple[int, float, str]]:
    return [(n, n / 2, f"w{n % 3}") for n in range(start, stop)]


def graph(seen: list[Any], *given: Any, **settings: Any) -> ev.Graph:
    g = ev.Graph("fed")
    source = g.add(ev.SparkSource(*given, **{"name": "rows", **settings}))
    source >> ev.Terminal(lambda row: seen.append((row.number, row.half, row.word)), name="end")
    return g


def job_of(flow: Any) -> Job:
    while flow["rows"].progress().state == "starting":
        time.sleep(0.05)
    job = flow.engine.topology.slots["rows"].actor.job
    assert isinstance(job, Job)
    return job


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sql": "select 1", "table": "t"}, "sql and table are given; expected one of them"),
        ({"stream": True}, "stream= needs something to read: a DataFrame, sql=, table= or path="),
        ({"path": "rows.txt"}, r"path rows.txt: expected one of .parquet, .csv, .* at its end, or format="),
        ({"sql": "select 1", "format": "csv"}, "format= is of the files at path="),
        ({"sql": 7}, "sql 7: expected a text"),
        ({"sql": "select 1", "options": "a"}, "options='a': expected a mapping"),
    ],
)
def test_source_refuses_settings_that_do_not_go_together(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ev.GraphError, match=f"spark source in: {said}"):
        ev.SparkSource(Row, name="in", **settings)


@pytest.mark.parametrize(
    ("path", "format"),
    [("a.parquet", "parquet"), ("a.CSV.gz", "csv"), ("b/c.jsonl", "json"), ("x.orc", "orc")],
)
def test_format_is_told_by_the_ending(path: str, format: str) -> None:
    assert Feed(path=path).files_format == format


def test_job_travels_as_data() -> None:
    options = {"header": False, "jobid": "a"}
    source = ev.SparkSource(
        Row, path="in.csv", stream=True, options=options, config={"spark.x": 1}, name="in"
    )
    g = ev.Graph()
    g.add(source) >> ev.Terminal("builtins:print")
    again = ev.Graph.from_dict(json.loads(json.dumps(g.to_dict())))
    assert again.to_dict() == g.to_dict()
    feed = again.stones["in"].feed  # type: ignore[attr-defined]
    assert (feed.path, feed.stream, feed.writer_options) == ("in.csv", True, {"jobid": "a"})
    assert feed.options["header"] == "false"


def test_daemon_runs_jobs_only_if_allowed(tmp_path: Path) -> None:
    job, rows = ev.SparkSource(Row, sql="select 1", name="in"), ev.SparkSource(Row, name="in")
    assert "start it with --allow evflow.spark.ingest.job" in Admission((), tmp_path).refusal(job)
    assert Admission((), tmp_path).refusal(rows) == ""
    assert Admission(["evflow.spark.ingest.job"], tmp_path).refusal(job) == ""


def test_without_java_the_graph_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SparkError, match=r"Java.*install Java 17|pip install"):
        graph([], Row, sql="select 1").run()


def test_progress_is_told_in_words_and_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert str(Progress(1234, 2, 0.25, "running")) == "running, 1,234 rows, 2 batches, lag 0.2 s"
    assert str(Progress(0, 0, 0.0, "failed", "why")).endswith(": why")
    with shown("rows", lambda: Progress(5, 1, 0.0, "done")):
        pass
    assert capsys.readouterr().err == "rows: done, 5 rows, 1 batches, lag 0.0 s\n"


def test_moving_line_shows_rows_and_how_it_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "150")
    with shown("flights", lambda: Progress(5000, 1, 0.0, "done")):
        pass
    told = capsys.readouterr().err
    assert all(word in told for word in ("flights", "5,000 rows", "1 batches", "lag 0.0 s", "done"))


def test_reason_is_the_last_error_of_ours_or_the_first_line() -> None:
    worker = (
        "Traceback\n  File x\nevflow.errors.SchemaError: a\n\nevflow.errors.SparkError: no answer\n at java"
    )
    assert reason_of(RuntimeError(worker)) == "no answer"
    assert reason_of(RuntimeError("first\nsecond")) == "RuntimeError: first"
    assert reason_of(SparkError("ours\nall")) == "ours\nall"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (52, "ran out of memory and has ended; give it more, as with config('spark.driver.memory', '4g')"),
        (-9, "was killed, as the system does where memory is short; give it more"),
        (3, "has ended with exit code 3"),
    ],
)
def test_end_of_java_is_told_instead_of_a_refused_connection(
    code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = pytest.importorskip("pyspark").SparkContext
    ended = SimpleNamespace(proc=SimpleNamespace(wait=lambda timeout: code))
    monkeypatch.setattr(context, "_gateway", ended)
    for error in (
        ConnectionRefusedError(111, "Connection refused"),
        Py4JError("py4j.reflection.TypeUtil does not exist in the JVM"),
    ):
        assert reason_of(error).startswith(f"Spark's Java process {told}")
        with pytest.raises(SparkError, match=re.escape(told)), explained():
            raise error
    assert reason_of(ValueError("other")) == "ValueError: other"
    assert reason_of(RuntimeError("Job aborted: x\njava.lang.OutOfMemoryError: Java heap space")).startswith(
        "Spark's Java process is out of memory; give it more"
    )


def test_batch_jobs_of_every_kind_bring_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql(f"{SQL} from range(0, 300, 1, 2)")
    df.coalesce(1).where("number < 100").select("word", "number").createOrReplaceTempView("fed")
    table = pa.table(dict(zip(("number", "half", "word"), zip(*rows(0, 300), strict=True), strict=True)))
    parquet.write_table(table, tmp_path / "rows.parquet")
    lines = [",".join(map(str, row)) for row in rows(0, 300)]
    (tmp_path / "rows.csv").write_text("\n".join(["NUMBER,half,word", *lines]))
    jobs: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        # Timestamps are numbers of microseconds.
        "df": ((df.selectExpr("timestamp_micros(number) as number", "half", "word", "other"), Row), {}),
        "table": ((), {"table": "fed", "progress": True}),
        "csv": ((Row,), {"path": tmp_path / "rows.csv"}),
        "parquet": ((Row,), {"path": tmp_path / "rows.parquet"}),
        # Spark takes upper and lower case for one.
        "cases": ((df.selectExpr("number as NUMBER", "Half as Half", "word"), Row), {}),
    }
    wanted: dict[str, list[Any]] = {name: rows(0, 300) for name in jobs}
    wanted["table"] = [(word, number) for number, _, word in rows(0, 100)]
    seen: dict[str, list[Any]] = {name: [] for name in jobs}
    g = ev.Graph("fed")
    for name, (given, settings) in jobs.items():
        g.add(ev.SparkSource(*given, **settings, name=name)) >> ev.Terminal(seen[name].append)
    with g.run() as flow:
        flow.drain()
        told = {name: flow[name].progress() for name in jobs}
    for name, events in seen.items():
        assert [tuple(event.to_dict().values()) for event in events] == wanted[name], name
        assert told[name] == Progress(len(events), 1, 0.0, "done"), name


def test_job_over_a_folder_is_done_once(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[Any] = []
    for _ in range(2):
        g = graph(seen, Row, sql=f"{SQL} from range(10)", folder=tmp_path / "kept")
        with g.run() as flow:
            flow.drain()
    assert sorted(seen) == rows(0, 10)
    with graph(
        seen, Row, sql=f"{SQL} from range(10)", folder=tmp_path / "kept", options={"jobid": "2"}
    ).run() as f:
        f.drain()
    assert sorted(seen) == sorted(rows(0, 10) * 2)


def test_stream_of_files_may_begin_before_the_first_has_come(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    names = ["number", "half", "word"]
    for format_ in ("csv", "parquet"):
        feed = Feed(path=str(tmp_path / "empty"), format=format_, stream=True)
        assert feed.frame(spark, Row.schema).columns == names
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.csv").write_text("word,more,number,half\na,b,1,0.5\n")
    feed = Feed(path=str(tmp_path / "full"), format="csv", stream=True)
    assert feed.frame(spark, Row.schema).dtypes == [
        ("word", "string"), ("more", "string"), ("number", "bigint"), ("half", "double")
    ]  # fmt: skip


def test_stream_brings_files_as_they_come_and_goes_on_from_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()

    def arrive(start: int, stop: int) -> None:
        lines = [json.dumps({"number": n, "half": half, "word": word}) for n, half, word in rows(start, stop)]
        (tmp_path / "new").write_text("\n".join(lines))
        (tmp_path / "new").rename(inbox / f"{start}.json")

    seen: list[Any] = []
    g = graph(seen, Row, path=inbox, format="json", stream=True, folder=tmp_path / "kept")
    with g.run() as flow:
        for start in (0, 100):
            arrive(start, start + 100)
            flow.drain()
            assert sorted(seen) == rows(0, start + 100)
        assert flow["rows"].progress() == Progress(200, 2, 0.0, "running")
        job = job_of(flow)
    assert job.join(60)
    assert job.progress().state == "stopped"
    arrive(200, 250)
    with g.run() as flow:
        flow.drain()
        assert sorted(seen) == rows(0, 250)
        (inbox / "bad.json").write_text('{"number": null, "half": 1.0, "word": "a"}')
        with pytest.raises(SparkError, match=r"its Spark job failed: .*column number"):
            flow.drain()
        assert flow["rows"].progress().state == "failed"
    assert sorted(seen) == rows(0, 250)


ALONE = """
import sys
import evflow as ev
from evflow.spark import apply

def inverse(input):
    rest = input.n - 2
    return 12 / rest > 0

seen = []
config = {"spark.driver.extraJavaOptions": sys.argv[1], "spark.sql.warehouse.dir": sys.argv[2]}
g = ev.Graph()
source = g.add(ev.SparkSource(sql="select id from range(5)", master="local[1]", config=config))
source >> ev.Terminal(lambda row: seen.append(row.id))
with g.run() as flow:
    flow.drain()
from pyspark.sql import SparkSession
print(seen, SparkSession.active().sparkContext.master)
g = ev.Graph()
number = ev.Schema("number", {"id": int})
g.add(ev.SparkSource(number, sql="select if(id = 1, null, id) as id from range(2)")) >> ev.Terminal(print)
try:
    with g.run() as flow:
        flow.drain()
except ev.EvflowError as error:
    print(error)
g = ev.Graph()
g.source("numbers", ev.Schema("number", {"n": int})) >> ev.Filter(inverse, name="inverse")
apply(SparkSession.active().range(4).selectExpr("id as n"), g).show()
"""


def test_source_starts_a_session_of_its_own_where_there_is_none_which_says_once_what_fails(
    spark_home: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "alone.py").write_text(ALONE)
    command = [sys.executable, "alone.py", setting.quick_java(setting.archive()), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert done.returncode == 1, done.stderr
    first, last = done.stdout.splitlines()
    assert first == "[0, 1, 2, 3, 4] local[1]", done.stderr
    assert "its Spark job failed: schema number: column id: row 1: expected a value in every row" in last
    said = "SparkError: apply: stone 'inverse' gave up number(n=2): integer division by zero (line 3)"
    assert done.stderr.count(said) == 1, done.stderr
    assert done.stderr.count("stone 'inverse': integer division by zero (line 3)") == 1
    # One line says why a job failed, and no traces of Java around it.
    assert "\tat " not in done.stderr and "java." not in done.stderr


def test_failure_of_a_job_reaches_the_program(spark: SparkSession) -> None:
    g = graph([], Row, sql="select id as number, id / 2 as half from range(3)")
    with g.run() as flow:
        with pytest.raises(
            SparkError, match=r"'rows': its Spark job failed: .*no column for word; .* are: number, half"
        ):
            flow.drain()
        progress = flow["rows"].progress()
        assert (progress.state, progress.rows) == ("failed", 0)
        assert "no column for word" in progress.error


def test_close_ends_the_job(spark: SparkSession) -> None:
    spark.udf.register("hang", lambda number: time.sleep(60), "double")
    seen: list[Any] = []
    sql = "select id as number, hang(id) as half, 'a' as word from range(4)"
    # The job asks in vain that what it sent be deleted, for so long.
    flow = graph(seen, Row, sql=sql, options={"timeout": 3}).run()
    job = job_of(flow)
    while not spark.sparkContext.statusTracker().getActiveStageIds():
        time.sleep(0.05)
    assert "its Spark job is running" in job.busy
    with pytest.raises(ev.FlowError, match=r"not done within .* its Spark job is running, 0 rows so far"):
        flow.drain(0.2)
    flow.close(timeout=0.1)
    assert job.join(100)
    assert (job.progress().state, job.failure, seen) == ("stopped", None, [])


def test_dataframe_is_not_deployed_and_other_masters_are_refused(spark: SparkSession) -> None:
    g = graph([], spark.range(3).selectExpr("id as number"))
    with pytest.raises(
        ev.GraphError, match=r"spark source rows: a DataFrame .* instead: sql=, table= or path="
    ):
        g.to_dict()
    with (
        graph([], Row, sql="select 1", master="local[7]").run() as flow,
        pytest.raises(SparkError, match=r"master='local\[7\]', but this program has a session of local\[2"),
    ):
        flow.drain()
