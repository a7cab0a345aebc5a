"""``evflow node``: a daemon that others deploy graphs to."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from evflow.cli.tidy import log_format, tidy

if TYPE_CHECKING:
    from evflow.deploy.daemon import Daemon

__all__ = ["node"]

_GLANCE = 0.2
"""Seconds between two looks at whether the daemon still works."""

_DIR = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("name", required=False)
@click.option(
    "--listen",
    metavar="CONTACT",
    multiple=True,
    default=("tcp://127.0.0.1:7000",),
    show_default=True,
    help="Where others dial it; port 0 picks one.",
)
@click.option("--advertise", metavar="CONTACT", help="The contact that others are told, if it is another.")
@click.option("--storage", type=_DIR, help="Its folder.  [default: evflow-NAME]")
@click.option(
    "--allow",
    "handlers",
    metavar="MODULE[:FUNCTION]",
    multiple=True,
    help="Handlers that deployed graphs may use.",
)
@click.option(
    "--control",
    metavar="NAME",
    multiple=True,
    help="Who may deploy and change, and nodes that do it for them; by default all that may connect.",
)
@click.option("--keys", type=_DIR, help="The folder of keys that evflow keygen fills.")
@click.option("--plain", is_flag=True, help="Let tcp go beyond this host without keys.")
@click.option(
    "--heartbeat",
    type=click.FloatRange(0.01, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two signs of life.",
)
@click.option(
    "--dead-after",
    type=click.FloatRange(0.1),
    default=5.0,
    show_default=True,
    help="Seconds of silence after which another node is taken for dead.",
)
@click.option(
    "--memory",
    metavar="MIB",
    type=click.IntRange(1, 1 << 26),
    default=256,
    show_default=True,
    help="MiB of memory for events of other nodes that wait here.",
)
@click.option("--metrics", metavar="ADDRESS:PORT", help="Serve Prometheus metrics there.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is printed of the log.",
)
@log_format
def node(
    name: str | None,
    listen: tuple[str, ...],
    advertise: str | None,
    storage: Path | None,
    handlers: tuple[str, ...],
    control: tuple[str, ...],
    keys: Path | None,
    plain: bool,
    heartbeat: float,
    dead_after: float,
    memory: int,
    metrics: str | None,
    log_level: str,
    log_format: str,
) -> None:  # fmt: skip
    """Run a node that graphs are deployed to, until Ctrl-C or SIGTERM.

    What it runs is kept in its storage folder: when it is started again, also after a kill, it takes its
    stones up again. Handlers are looked for in the folder it is started in, too. Should its own bookkeeping
    fail it ends at once with exit code 1, so that whatever watches over it starts it again.
    """
    from evflow.deploy.daemon import Daemon
    from evflow.watch.logs import kept_log, printed
    from evflow.watch.metrics import serve

    level = logging.getLevelNamesMapping()[log_level.upper()]
    # Whoever calls this within a program gets that back as it was.
    with (
        tidy(named="NAME as the first argument"), printed(level, log_format), kept_log(level) as ring,
        _modules_here(), ExitStack() as signals,
    ):  # fmt: skip
        folder = storage if storage is not None else Path(f"evflow-{name or 'node'}")
        with Daemon(
            name, listen, storage=folder, handlers=handlers, control=control or None,
            advertise=advertise, keys=keys, plain=plain, heartbeat=heartbeat, dead_after=dead_after,
            memory=memory << 20,
        ) as daemon:  # fmt: skip
            daemon.verbs.table["logs"] = lambda peer, given, reply: reply(ring.since(int(given["since"])))
            server = None if metrics is None else serve(daemon.verbs.status, *_address(metrics))
            for contact in daemon.node.contacts:
                click.echo(f"node {daemon.node.name} listens at {contact}")
            sys.stdout.flush()
            try:
                _wait(daemon, signals)
            finally:
                if server is not None:
                    server.close()


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise click.UsageError(f"--metrics {text}: expected ADDRESS:PORT, such as 127.0.0.1:9464")
    return host, int(port)


@contextmanager
def _modules_here() -> Iterator[None]:
    """Within the ``with`` block modules are looked for in the current folder first."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove("")


def _wait(daemon: Daemon, signals: ExitStack) -> None:
    """Until Ctrl-C or SIGTERM.

    Args:
        daemon: the daemon.
        signals: what puts the handlers back, once a second signal can no longer disturb an orderly end.

    Raises:
        FlowError: the daemon broke.
    """
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.signal(number, end)
        # None is of a handler that Python does not know.
        signals.callback(signal.signal, number, signal.SIG_DFL if before is None else before)
    # In short waits, since a signal does not end a wait by itself.
    while not ended.wait(_GLANCE):
        if (failure := daemon.failure) is not None:
            raise failure
