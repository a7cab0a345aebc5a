"""Makes the format ``evflow`` known to a session, and sends evflow to where Spark's Python lacks it.

Spark finds the format by itself where each of its Python processes can import ``pyspark_evflow``. Where they
cannot, a session has to be told of it, and evflow has to travel: as an archive that is made of what this
process has imported. What evflow needs itself (numpy, pyzmq, …) has machine code in it, and does not travel.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import evflow
from evflow.errors import SparkError
from evflow.forked import temporary_folder
from evflow.spark.java import explained
from evflow.spark.session import (
    INSTALL,
    active_session,
    is_connect,
    is_local,
    require_pyspark,
    require_version,
    session_name,
    worker_path,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OWN = ("evflow", "pyspark_evflow")
_NEEDED = ("llvmlite", "msgpack", "msgspec", "numpy", "pyarrow", "zmq")
_METHODS = ("writer", "streamWriter", "schema", "reader", "streamReader")
_TASKS = 4
"""Tasks that look what executors have; the first that lacks something tells it for all."""

_SECONDS = 120
_LOOK = """
import importlib.util
print(*(name for name in {names!r} if importlib.util.find_spec(name) is None))
"""

_known: set[tuple[int, str]] = set()
"""Sessions that are done, by process."""

_registering = threading.Lock()


def register(spark: SparkSession) -> None:
    """Has a session know the format ``evflow``, on the driver and on its executors; what is done stays done.

    ``ev.SparkSource``, ``apply`` and ``match`` do it by themselves. A program that only reads and writes with
    ``format("evflow")`` calls it once for each session, classic or of Connect, where the Python of Spark's
    workers is not the one that evflow is installed in. On a cluster a job of some small tasks looks what
    executors have.

    Args:
        spark: the session.

    Raises:
        SparkError: Spark is of another version, or the workers' Python lacks what evflow needs: says what.

    Example: ``evflow.spark.register(spark); spark.read.format("evflow").option(…)``
    """
    require_pyspark()
    with explained(), _registering:
        # A format is known to one session, of which a context may have several.
        own = "" if is_connect(spark) else spark._jsparkSession.sessionUUID()
        key = os.getpid(), f"{session_name(spark)} {own}"
        if key in _known:
            return
        require_version(f"a session of Spark {spark.version}", spark.version)
        lacking = set(_lacking(spark))
        needed = sorted(lacking - set(_OWN))
        if needed:
            raise SparkError(
                f"the Python of Spark's workers lacks {', '.join(needed)}: there, {INSTALL}, or set "
                "PYSPARK_PYTHON to a Python that has it"
            )
        if lacking:
            archive = archived()
            if is_connect(spark):
                spark.addArtifacts(str(archive), pyfile=True)
            else:
                spark.sparkContext.addPyFile(str(archive))
            _tell(spark, sent_format(archive))
        else:
            _tell(spark, _format().DefaultSource)
        _known.add(key)


def _lacking(spark: SparkSession) -> Iterator[str]:
    """The modules that Spark's Python processes lack."""
    if not is_connect(spark):
        yield from _lacking_here(spark.sparkContext.pythonExec)
        if is_local(spark):
            return
    rows = _probed(spark).collect()
    yield from (name for row in rows for name in row.lacking.split())


def _lacking_here(python: str) -> list[str]:
    """What the Python lacks by which the driver reads and writes formats."""
    command = [python, "-c", _LOOK.format(names=(*_OWN, *_NEEDED))]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise SparkError(
            f"the Python of Spark's workers, {python} (PYSPARK_PYTHON), does not run: {said.strip()[-300:]}"
        ) from None
    return done.stdout.split()


def _probed(spark: SparkSession) -> DataFrame:
    """What executors lack; the function must not need evflow, so it is one that travels as code."""
    names = (*_OWN, *_NEEDED)

    def look(batches: Any) -> Any:
        import importlib.util

        import pyarrow

        for _ in batches:
            continue
        lacking = " ".join(name for name in names if importlib.util.find_spec(name) is None)
        yield pyarrow.record_batch({"lacking": [lacking]})

    return spark.range(0, _TASKS, 1, _TASKS).mapInArrow(look, "lacking string")


def archived() -> Path:
    """evflow as Python can import it from a file."""
    assert evflow.__file__ is not None
    root = Path(evflow.__file__).parent
    travelled = next((path for path in root.parents if path.is_file()), None)
    if travelled is not None:
        return travelled
    file = temporary_folder("evflow-") / "evflow.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for path in _files(root):
            made.write(path, Path("evflow") / path.relative_to(root))
        format_root = Path(str(_format().__file__)).parent
        for path in _files(format_root):
            made.write(path, Path("pyspark_evflow") / path.relative_to(format_root))
    return file


def _files(root: Path) -> Iterator[Path]:
    # A checkout has links for folders.
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (Path(folder, name) for name in sorted(files) if not name.endswith(".pyc"))


def _format() -> Any:
    """The module that Spark's Python processes import for the format."""
    for folder in worker_path():
        if folder not in sys.path:
            sys.path.append(folder)
    return importlib.import_module("pyspark_evflow")


def sent_format(archive: Path) -> type[Any]:
    """The format where evflow is sent: a class that travels by value, since it is defined in here.

    Spark does not give what is sent to the process that plans a stream's reads. On this host that process
    takes the archive itself; one on another host says what is missing.

    Args:
        archive: evflow as a file of this host.
    """
    from pyspark.sql.datasource import DataSource

    path = str(archive)

    def format_of(options: Any) -> Any:
        import importlib
        import importlib.util
        import sys

        if importlib.util.find_spec("pyspark_evflow") is None:
            sys.path.append(path)
        try:
            module = importlib.import_module("pyspark_evflow")
        except ModuleNotFoundError as error:
            raise RuntimeError(
                f"{error.name} is missing where Spark plans what a stream reads, in {sys.executable} on "
                "another host, and what evflow.spark.register sends does not come there: run "
                "`pip install 'evflow[spark]'` there"
            ) from None
        return module.DefaultSource(options)

    def forward(name: str) -> Any:
        return lambda self, *given, **named: getattr(format_of(self.options), name)(*given, **named)

    methods = {name: forward(name) for name in _METHODS}
    return type("Sent", (DataSource,), {"name": classmethod(lambda cls: "evflow"), **methods})


def _tell(spark: SparkSession, format: type[Any]) -> None:
    from pyspark.errors import PySparkException

    try:
        active_session(spark).dataSource.register(format)
    except PySparkException as error:
        # Spark has found it by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
