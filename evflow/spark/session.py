"""What a Spark session needs so that ``evflow`` is a format of it, also on its executors.

Spark finds the format by itself where ``pyspark_evflow`` can be imported. In a checkout that takes two more
folders on the path of each Python process; ``register`` sends the package to executors that lack it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import evflow
from evflow.errors import SparkError
from evflow.spark.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Builder = TypeVar("Builder")

INSTALL = "pip install 'evflow[spark]'"
VERSIONS = ((4, 2), (4, 3))
"""The versions of Spark that evflow works with."""

_LOCAL = {
    "spark.app.name": "evflow",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Why a job fails is told by what started it, in one line; Spark would log the same with Java's traces.
    "spark.log.level": "FATAL",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What an embedded session gets: it is for this program alone."""

_starting = threading.Lock()


def require_spark() -> None:
    """Checks that PySpark, PyArrow and Java are there and fit; starts nothing but ``java -version``.

    Raises:
        SparkError: one of them is not; says what to install.
    """
    require_pyspark()
    require_java()


def require_pyspark() -> None:
    """Checks that PySpark and PyArrow are there, and PySpark is of a version that evflow works with.

    Raises:
        SparkError: they are not; says what to install.
    """
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            raise SparkError(f"Spark needs the Python package {module}, which is not installed: {INSTALL}")
    from pyspark import __version__

    require_version(f"pyspark {__version__}", __version__)


def require_version(what: str, version: str) -> None:
    """Checks a version of Spark.

    Args:
        what: has the version.
        version: its number.

    Raises:
        SparkError: evflow does not work with it.
    """
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) not in VERSIONS:
        known = " or ".join(f"{major}.{minor}" for major, minor in VERSIONS)
        raise SparkError(
            f"evflow works with Spark {known}, found {what}: {INSTALL}; on a platform that brings its own "
            f"Spark, choose one that has {known}"
        )


def worker_path() -> tuple[str, ...]:
    """The folders that a worker's Python needs on its path to import evflow and ``pyspark_evflow``: those of
    a checkout; none where the package is installed."""
    assert evflow.__file__ is not None
    package = Path(evflow.__file__).parent
    format_folder = package / "spark"
    if not (format_folder / "pyspark_evflow").is_dir():
        return ()
    return (str(package.parent), str(format_folder.resolve()))


def configure_spark_with_evflow(builder: Builder) -> Builder:
    """Gives a session's builder what reading, writing and matching with evflow need. No session is made.

    In a checkout it also puts the checkout on ``PYTHONPATH`` of this process's environment, from which the
    session's Java process, and the Python processes that it starts, take it.

    Args:
        builder: ``SparkSession.builder``, configured or not.

    Returns:
        The builder.

    Raises:
        SparkError: it is not a builder, or PySpark or PyArrow is not there, or does not fit.
    """
    require_pyspark()
    for method in ("config", "getOrCreate"):
        if not hasattr(builder, method):
            raise SparkError(
                f"expected a SparkSession.builder but found {type(builder).__name__}: {builder!r}"
            )
    settings = {"spark.sql.execution.arrow.pyspark.enabled": "true"}
    folders = worker_path()
    if folders:
        path = _joined(folders, os.environ.get("PYTHONPATH", ""))
        os.environ["PYTHONPATH"] = path
        settings["spark.executorEnv.PYTHONPATH"] = path
    # Otherwise the workers would be whatever python3 comes first on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    configured: Any = builder
    for key, value in settings.items():
        configured = configured.config(key, value)
    given: Builder = configured
    return given


def _joined(folders: Sequence[str], path: str) -> str:
    kept = [entry for entry in path.split(os.pathsep) if entry and entry not in folders]
    return os.pathsep.join([*folders, *kept])


def active_session(spark: SparkSession) -> SparkSession:
    """Makes a session that of this thread.

    A classic session is known to the thread that made it. In any other one ``format("evflow")`` is not found
    until this was called there; a Connect session needs it nowhere.

    Args:
        spark: the session.

    Returns:
        ``spark``.

    Raises:
        SparkError: PySpark does not fit.

    Example::

        Thread(target=lambda: save(active_session(spark).table("flights"))).start()
    """
    require_pyspark()
    jvm = getattr(spark, "_jvm", None) if hasattr(spark, "_jsparkSession") else None
    if jvm is not None:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    return spark


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Connect, whose driver is elsewhere."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(spark: SparkSession) -> bool:
    """Whether tasks run on this machine, in the driver's own process and workers that it started."""
    return not is_connect(spark) and str(spark.sparkContext.master).partition("[")[0] == "local"


def session_name(spark: SparkSession) -> str:
    """What tells whose executors a session has: the application, or the session of Connect."""
    if is_connect(spark):
        connected: Any = spark
        return str(connected.session_id)
    return str(spark.sparkContext.applicationId)


def is_remote(master: str | None) -> bool:
    """Whether a master is the URL of a Connect server."""
    return master is not None and master.startswith("sc://")


def spark_session(master: str | None = None, config: Mapping[str, str] | None = None) -> SparkSession:
    """The session that is active in this program, or else one that is started.

    Args:
        master: where it has to run, or the URL of a Connect server; None for the active one, or else all
            cores here.
        config: settings of one that is started.

    Raises:
        SparkError: a session of another master is active; or Spark cannot be started.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with _starting:
        active = _active()
        if active is not None:
            _check_master(active, master)
            return active
        wanted = master or "local[*]"
        builder = SparkSession.builder
        builder = builder.remote(wanted) if is_remote(wanted) else builder.master(wanted)
        if wanted.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {**(_LOCAL if wanted.startswith("local") else {}), **(config or {})}
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            return configure_spark_with_evflow(builder).getOrCreate()
        except PySparkException as error:
            raise SparkError(f"Spark at {wanted} cannot be started: {error}") from error


def _check_master(active: SparkSession, master: str | None) -> None:
    # A Connect session has no context, and does not tell its server.
    remote = is_connect(active)
    if master is None or (remote and is_remote(master)):
        return
    found = "a Connect server" if remote else active.sparkContext.master
    if found != master:
        raise SparkError(
            f"master={master!r}, but this program has a session of {found}; stop that, or leave master= out"
        )


def _active() -> SparkSession | None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None
