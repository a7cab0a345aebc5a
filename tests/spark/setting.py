"""A Spark that starts in less than the usual time, and ends without a process left.

Three things make it quick: a home of Spark without a Python part of its own, so that workers import the
installed one, which has its bytecode; no optimising compiler; and an archive of Java's loaded classes. That
halves the CPU time of each Java process. The first test that needs it makes it, once for each user, whichever
environment Spark is installed in; with all tests of Spark that pays at once.

    python -m tests.spark.setting       makes the archive, if it is not there, and prints its path
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evflow.spark.session import configure_spark_with_evflow, worker_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["archive", "cache", "home", "quick_java", "session", "stop"]

SECONDS = 200
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


def cache() -> Path:
    """The folder in which everything is kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root, "evflow", "tests", "spark")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def home() -> Path:
    """A home of Spark: the programs and jars of the installed one, named by what they are.

    An archive of classes is good only for the very files that it was made with. As links of their own, these
    stay when they are installed anew.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    jars = sorted((jar.name, jar.stat().st_size) for jar in (installed / "jars").iterdir())
    name = hashlib.sha256(repr(jars).encode()).hexdigest()[:8]
    final = cache() / f"home-{pyspark.__version__}-{name}"
    if not final.exists():
        made = Path(tempfile.mkdtemp(dir=cache()))
        for folder in ("bin", "jars", "sbin"):
            shutil.copytree(installed / folder, made / folder, copy_function=_link)
        # Another process may have been quicker.
        with suppress(OSError):
            made.rename(final)
        shutil.rmtree(made, ignore_errors=True)
    return final


def _link(source: str, target: str) -> None:
    """Links a file, or copies it to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def archive() -> Path | None:
    """The archive of Java's classes, made if it is not there; None where it cannot be made."""
    final = _archive()
    with open(cache() / "lock", "w") as lock:
        # Of several test processes one makes it, and the others wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not final.exists():
            subprocess.run(
                [sys.executable, "-m", "tests.spark.setting"],
                cwd=Path(__file__).parents[2],
                capture_output=True,
            )
    return final if final.exists() else None


def _archive() -> Path:
    java = subprocess.run(["java", "-version"], capture_output=True).stderr
    return cache() / f"{home().name}-{hashlib.sha256(java + QUICK.encode()).hexdigest()[:8]}.jsa"


def quick_java(classes: Path | None) -> str:
    """Options of Java for a process that lives some seconds."""
    return QUICK if classes is None else f"{QUICK} -XX:SharedArchiveFile={classes}"


def session(java: str, folder: Path, **settings: str) -> SparkSession:
    """A new session with its own Java process, which is on loopback only.

    Args:
        java: options of its Java process.
        folder: where it may leave files.
        settings: more of its configuration, with ``__`` for a dot.
    """
    from pyspark.sql import SparkSession

    options = {
        "spark.app.name": "evflow",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{java} -Dderby.system.home={folder}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    options |= {key.replace("__", "."): value for key, value in settings.items()}
    builder = SparkSession.builder.master(os.environ.get("EVFLOW_TEST_MASTER", "local[2,4]"))
    for key, value in options.items():
        builder = builder.config(key, value)
    made = configure_spark_with_evflow(builder).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def stop(spark: SparkSession) -> None:
    """Ends a session, its Java process and all that this started."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(SECONDS)
    finally:
        process.kill()
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def environment() -> Iterator[pytest.MonkeyPatch]:
    """The environment in which a session starts; as it was afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home()))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_LAUNCHER_OPTS", QUICK)
        # Only so that configure_spark_with_evflow's changes are taken back too.
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        # As if the package were installed.
        for folder in worker_path():
            if folder not in sys.path:
                patch.syspath_prepend(folder)
        yield patch


def _use(spark: SparkSession, folder: Path) -> None:
    """Does what most tests do, so that the classes for it are loaded."""
    rows = spark.range(100).selectExpr("id", "cast(id as string) text", "cast(id as double) half")
    rows.groupBy("text").count().toArrow()
    rows.mapInArrow(lambda batches: batches, "id long, text string, half double").write.parquet(
        f"{folder}/rows"
    )
    spark.createDataFrame([(1, "a")], "a int, b string").collect()
    stream = spark.readStream.schema("id long, text string, half double").parquet(f"{folder}/rows")
    query = stream.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()


def _make() -> Path:
    """Makes the archive; it is written when a session ends that has done what most tests do."""
    final = _archive()
    made = final.with_suffix(f".{os.getpid()}")
    with environment(), tempfile.TemporaryDirectory() as temporary:
        spark = session(f"{QUICK} -XX:ArchiveClassesAtExit={made} -Xlog:disable", Path(temporary))
        _use(spark, Path(temporary))
        stop(spark)
    return made.rename(final)


if __name__ == "__main__":
    print(_archive() if _archive().exists() else _make())
