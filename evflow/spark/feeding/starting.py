"""Which session of Spark a program has, or gets."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from evflow.errors import SparkError
from evflow.spark.session import configure_spark_with_evflow, is_connect

__all__ = ["spark_session"]

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


def spark_session(master: str | None = None, config: Mapping[str, str] | None = None) -> SparkSession:
    """The session that is active in this program, or else one that is started.

    Args:
        master: where it has to run, or the URL of a Connect server; None for the active one, or else all
            cores here.
        config: settings of one that is started.

    Raises:
        SparkError: a session of another master is active; or Spark cannot be started.
    """
    with _starting:
        active = _active()
        if active is not None:
            _check_master(active, master)
            return active
        wanted = master or "local[*]"
        builder = (
            SparkSession.builder.remote(wanted)
            if wanted.startswith("sc://")
            else SparkSession.builder.master(wanted)
        )
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
    if master is None or (remote and master.startswith("sc://")):
        return
    found = "a Connect server" if remote else active.sparkContext.master
    if found != master:
        raise SparkError(
            f"master={master!r}, but this program has a session of {found}; stop that, or leave master= out"
        )


def _active() -> SparkSession | None:
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None
