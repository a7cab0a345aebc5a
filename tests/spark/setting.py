"""A Spark that starts in a third of the usual time, and ends without a process left.

Three things make it quick: a home of Spark without a Python part of its own, so that workers import the
installed one, which has its bytecode; an archive of Java's loaded classes, made once for each user; and no
optimising compiler.

    python -m tests.spark.setting       makes the archive now and says where it is
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

from evflow.stones.spark.session import configure_spark_with_evflow, worker_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["archive", "cache", "home", "quick_java", "session", "stop"]

SECONDS = 900
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


def cache() -> Path:
    """The folder in which everything is kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root, "evflow", "tests", "spark")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def home() -> Path:
    """A home of Spark: links to the programs and jars of the installed one, named by what it links to."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    name = hashlib.sha256(str(installed).encode()).hexdigest()[:8]
    final = cache() / f"home-{pyspark.__version__}-{name}"
    if not final.exists():
        _forget_gone()
        made = Path(tempfile.mkdtemp(dir=cache()))
        for folder in ("bin", "jars", "sbin"):
            (made / folder).symlink_to(installed / folder)
        # Another process may have been quicker.
        with suppress(OSError):
            made.rename(final)
        shutil.rmtree(made, ignore_errors=True)
    return final


def _forget_gone() -> None:
    """Removes what was made for installations that are no longer there."""
    for known in cache().glob("home-*"):
        if known.is_dir() and not (known / "jars").exists():
            shutil.rmtree(known, ignore_errors=True)
            for file in cache().glob(f"{known.name}-*"):
                file.unlink(missing_ok=True)


def archive() -> Path | None:
    """The archive of Java's classes, made if it is not there; None where that failed, or another process is
    at it."""
    java = subprocess.run(["java", "-version"], capture_output=True).stderr
    final = cache() / f"{home().name}-{hashlib.sha256(java + QUICK.encode()).hexdigest()[:8]}.jsa"
    failed = final.with_suffix(".failed")
    if final.exists() or failed.exists():
        return final if final.exists() else None
    with open(final.with_suffix(".lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        made = final.with_suffix(".new")
        try:
            subprocess.run(
                [sys.executable, "-m", "tests.spark.setting", str(made)],
                cwd=Path(__file__).parents[2],
                check=True,
                capture_output=True,
                timeout=SECONDS // 2,
            )
            made.rename(final)
        except (subprocess.SubprocessError, OSError) as error:
            output = getattr(error, "stderr", None) or b""
            failed.write_bytes(f"{error}\n".encode() + output)
            return None
    return final


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
        process.wait(SECONDS // 4)
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


def _make(path: str) -> None:
    with environment(), tempfile.TemporaryDirectory() as temporary:
        spark = session(f"{QUICK} -XX:ArchiveClassesAtExit={path}", Path(temporary))
        _use(spark, Path(temporary))
        stop(spark)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _make(sys.argv[1])
    else:
        print(f"home: {home()}\narchive: {archive()}")
