"""The Java process of Spark: whether there can be one, and how it has ended."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evflow.errors import SparkError

JAVA = "install Java 17 or newer, for instance `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME"

NEWEST_UNFIT_JAVA = 16

_OUT_OF_MEMORY = 52
"""The exit code that Spark gives a Java process without memory."""

_ENDING = 10.0
"""Seconds from the first connection that breaks to the end of the process."""

_MORE = (
    "give it more, as with config('spark.driver.memory', '4g') before the session starts, or it less to do"
)


def require_java() -> None:
    """Checks that there is a Java that is new enough; starts nothing but ``java -version``.

    Raises:
        SparkError: there is none; says what to install.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if program is None:
        where = f"JAVA_HOME, which is {home}, has no bin/java" if home else "there is no java on the path"
        raise SparkError(f"Spark needs Java, and {where}: {JAVA}")
    said = subprocess.run(
        [program, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=60
    ).stdout
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) <= NEWEST_UNFIT_JAVA:
        raise SparkError(f"Spark needs Java 17 or newer, and {program} says {said.strip()!r}: {JAVA}")


def end_of_java(error: BaseException) -> str:
    """Why Java is at the end, where that is what an error comes of; "" where it comes of something else.

    Args:
        error: what Python was told: that its connection to Java broke or was refused, mostly.
    """
    if "java.lang.OutOfMemoryError" in str(error):
        return f"Spark's Java process is out of memory; {_MORE}"
    process = _process()
    if process is None or not _is_lost(error):
        return ""
    try:
        code = process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        return ""
    if code == _OUT_OF_MEMORY:
        return f"Spark's Java process ran out of memory and has ended; {_MORE}"
    if code == -signal.SIGKILL:
        return f"Spark's Java process was killed, as the system does where memory is short; {_MORE}"
    return f"Spark's Java process has ended with exit code {code}; what it said last is on stderr"


def _process() -> subprocess.Popen[bytes] | None:
    """The Java process that this program has started."""
    from pyspark import SparkContext

    found: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return found


def _is_lost(error: BaseException) -> bool:
    """Whether an error may come of a connection to Java that broke."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    return isinstance(error, ConnectionError | Py4JError) and not isinstance(error, Py4JJavaError)


@contextmanager
def explained() -> Iterator[None]:
    """Has errors within that come of Java's end say so.

    Raises:
        SparkError: Java has ended.
    """
    try:
        yield
    except Exception as error:
        ended = end_of_java(error)
        if not ended:
            raise
        raise SparkError(ended) from error
