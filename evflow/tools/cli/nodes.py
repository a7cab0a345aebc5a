"""Commands about nodes: ``node`` runs one; ``status``, ``top``, ``logs``, … ask them."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from evflow.tools.cli import options
from evflow.tools.cli.options import (
    DIR,
    Asked,
    NamedContact,
    asked,
    flagged,
    keys_option,
    log_format,
    plain_option,
    speaking,
)  # fmt: skip
from evflow.tools.report import plain as printable

if TYPE_CHECKING:
    from evflow.deploy.client import Client
    from evflow.deploy.daemon import Daemon
    from evflow.deploy.letters import RemoteLetter

_MORE = 0.5
"""Seconds between two questions for more of a log."""

_GLANCE = 0.2
"""Seconds between two looks at whether the daemon still works."""

_SWITCH = 2e-4
"""Seconds until Python goes from one busy thread to another; Python itself has 5 ms."""

_COLOURS = {
    "DEBUG": "bright_black", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red",
    "ok": "green", "warning": "yellow", "wrong": "red",
}  # fmt: skip


def _lines(text: str) -> str:
    """A text of several lines, as a traceback is, that does nothing to a terminal."""
    return "\n".join(map(printable, text.split("\n")))


# --- a daemon


@click.command()
@click.argument("name", required=False)
@click.option(
    "--listen", metavar="CONTACT", multiple=True, default=("tcp://127.0.0.1:7000",), show_default=True,
    help="Where others dial it; port 0 picks one.",
)  # fmt: skip
@click.option("--advertise", metavar="CONTACT", help="The contact that others are told, if it is another.")
@click.option("--storage", type=DIR, help="Its folder.  [default: evflow-NAME]")
@click.option(
    "--allow", "handlers", metavar="MODULE[:FUNCTION]", multiple=True,
    help="Handlers that deployed graphs may use.",
)  # fmt: skip
@click.option(
    "--control", metavar="NAME", multiple=True,
    help="Who may deploy and change, and nodes that do it for them; by default all that may connect.",
)  # fmt: skip
@keys_option
@plain_option
@click.option(
    "--heartbeat", type=click.FloatRange(0.01, 3600), default=1.0, show_default=True,
    help="Seconds between two signs of life.",
)  # fmt: skip
@click.option(
    "--dead-after", type=click.FloatRange(0.1), default=5.0, show_default=True,
    help="Seconds of silence after which another node is taken for dead.",
)  # fmt: skip
@click.option(
    "--memory", metavar="MIB", type=click.IntRange(1, 1 << 26), default=256, show_default=True,
    help="MiB of memory for events of other nodes that wait here.",
)  # fmt: skip
@click.option("--metrics", metavar="ADDRESS:PORT", help="Serve Prometheus metrics there.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
    show_default=True, help="What is printed of the log.",
)  # fmt: skip
@log_format
def node(
    name: str | None,
    listen: tuple[str, ...],
    storage: Path | None,
    control: tuple[str, ...],
    memory: int,
    metrics: str | None,
    log_level: str,
    log_format: str,
    **settings: Any,
) -> None:
    """Run a node that graphs are deployed to.

    It runs until Ctrl-C or SIGTERM. What it runs is kept in its storage folder: when it is started
    again, also after a kill, it takes its stones up again. Handlers are looked for in the folder it is
    started in, too. Should its own bookkeeping fail it ends at once with exit code 1, so that whatever
    watches over it starts it again.
    """
    from evflow.deploy.daemon import Daemon
    from evflow.tools.watch.logs import kept_log, printed
    from evflow.tools.watch.metrics import serve

    level = logging.getLevelNamesMapping()[log_level.upper()]
    folder = storage if storage is not None else Path(f"evflow-{name or 'node'}")
    settings |= {"storage": folder, "control": control or None, "memory": memory << 20}
    # Whoever calls this within a program gets that back as it was.
    with (
        printed(level, log_format), kept_log(level) as ring, _modules_here(), _prompt(),
        ExitStack() as signals, Daemon(name, listen, **settings) as daemon, ExitStack() as served,
    ):  # fmt: skip
        daemon.rpc.table["logs"] = lambda peer, given, reply: reply(ring.since(int(given["since"])))
        if metrics is not None:
            served.enter_context(serve(daemon.rpc.status, *_address(metrics)))
        for contact in daemon.node.contacts:
            click.echo(f"node {daemon.node.name} listens at {contact}")
        sys.stdout.flush()
        _wait(daemon, signals)


@contextmanager
def _prompt() -> Iterator[None]:
    """Within the ``with`` block Python goes from one busy thread to another soon: handlers that compute hold
    up links and other deployments for less."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


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


# --- what nodes say of themselves


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@asked
@click.pass_context
def status(context: click.Context, asked: Asked, as_json: bool) -> None:
    """Print what nodes do, and what is wrong with them.

    A CONTACT is tcp://HOST:PORT or ipc:///PATH; with keys NAME=CONTACT. A node that does not answer is told
    with what was tried and what to check. The exit code is 1 if anything is dead or has trouble.
    """
    from evflow.tools.watch.survey import Watcher
    from evflow.tools.watch.view import status_data, status_text

    with Watcher(asked.places(), here=socket.gethostname()) as watcher:
        survey = watcher.look()
    if as_json:
        click.echo(json.dumps(status_data(survey), ensure_ascii=False, default=repr))
    else:
        click.echo(flagged(status_text(survey)))
    if survey.troubles():
        context.exit(1)


@click.command()
@click.option(
    "--every", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print one frame and end.")
@asked
def top(asked: Asked, every: float, once: bool) -> None:
    """Watch nodes live: rates, queues, links, hosts.

    Ends with Ctrl-C. With --once it looks twice, as a rate needs, and prints what it saw.
    """
    from rich.console import Console
    from rich.live import Live

    from evflow.tools.report import text
    from evflow.tools.watch.survey import Watcher
    from evflow.tools.watch.view import frame

    console = Console(highlight=False)
    with Watcher(asked.places(), here=socket.gethostname()) as watcher:
        before = watcher.look()
        if once:
            time.sleep(every)
            shown = frame(before, watcher.look())
            # A pipe has no width; then nothing is cut.
            console.print(shown) if console.is_terminal else click.echo(text(shown))
            return
        with Live(frame(None, before), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                now = watcher.look()
                live.update(frame(before, now, most=max(5, live.console.height - 20)), refresh=True)
                before = now


@click.command()
@click.argument("contact")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is logged from now on.")
@click.option("--lines", type=click.IntRange(0), default=200, show_default=True, help="The newest so many.")
@speaking
def logs(asked: Asked, contact: str, follow: bool, lines: int) -> None:
    """Print the log of a node, which is kept in its memory.

    CONTACT may be a name in the file of --hosts.
    """
    with asked.client(contact) as client:
        said = client.ask("logs", since=-lines) if lines else client.ask("logs", since=-1) | {"lines": []}
        _echo_log(said)
        while follow:
            time.sleep(_MORE)
            said = client.ask("logs", since=said["next"])
            _echo_log(said)


def _echo_log(said: Mapping[str, Any]) -> None:
    if said.get("lost"):
        click.echo(f"… {said['lost']:,} lines are no longer kept", err=True)
    for line in said["lines"]:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line["time"]))
        level = str(line["level"])
        head = (
            f"{at} {click.style(printable(level), fg=_COLOURS.get(level))} {printable(str(line['logger']))}"
        )
        click.echo(f"{head}: {_lines(str(line['text']))}")


@click.command()
@click.option("--listen", metavar="CONTACT", multiple=True, help="Could a node listen there?")
@click.option(
    "--peer", "peers", type=NamedContact(), multiple=True,
    help="Can that node be reached, and does it let this one in?",
)  # fmt: skip
@click.option("--keys", type=DIR, help="Are the keys in this folder right?")
@click.option("--name", help="With --peer and --keys: whose key to use; no node that runs now.")
@plain_option
@click.pass_context
def doctor(context: click.Context, /, **given: Any) -> None:
    """Find out what is wrong with this host, key, port or clock.

    Without options it checks the host. To try the link to a peer that wants keys, it needs a key of its own:
    evflow keygen doctor, and doctor.pub among the keys of the peer. The exit code is 1 if anything is wrong.
    """
    from evflow.tools.watch.doctor import examine, verdict

    findings = []
    for finding in examine(**given, open=options.open_client):
        findings.append(finding)
        level = click.style(finding.level.ljust(7), fg=_COLOURS.get(finding.level))
        click.echo(f"{level}  {printable(finding.about)}: {_lines(flagged(finding.text))}")
        for line in flagged(finding.advice).split("\n") if finding.advice else ():
            click.echo(f"         → {printable(line)}")
    if verdict(findings) == "wrong":
        context.exit(1)


# --- dead letters


@click.command("dead-letters")
@click.option("--deployment", metavar="NAME", default="", help="Those of this deployment only.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True,
    help="The newest so many of each node.",
)  # fmt: skip
@click.option("--resubmit", is_flag=True, help="Give them to their stones again.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
@asked
def dead_letters(asked: Asked, deployment: str, limit: int, resubmit: bool, as_json: bool) -> None:
    """Print the events that stones have given up.

    They are printed with reasons and tracebacks. A CONTACT is tcp://HOST:PORT or ipc:///PATH; with keys
    NAME=CONTACT. With --resubmit those that are printed are taken off the dead letters, and go to their
    stones again.
    """
    from evflow.deploy.client import no_deployment
    from evflow.deploy.letters import letters_of, newest

    traces: set[str] = set()
    statuses: dict[str, Any] = {}
    count = kept = lost = again = 0
    for place in asked.places():
        with place.open() as client:
            if deployment:
                statuses[client.node] = client.ask("status")
            letters = letters_of(newest(client.ask, limit, deployment), client.node)
            counts = client.ask("letter_counts", deployment=deployment)
            for letter in letters:
                click.echo(_letter_json(letter) if as_json else _letter_text(letter, traces))
            count += len(letters)
            # Some may have come in between.
            kept += max(counts["kept"], len(letters))
            lost += counts["lost"]
            again += _resubmitted(client, letters) if resubmit else 0
    known = any(deployment in said["deployments"] for said in statuses.values())
    if statuses and not kept and not lost and not known:
        raise no_deployment(deployment, statuses, statuses.values())
    what = (
        f"{count:,} dead letters"
        if count == kept
        else f"{count:,} of {kept:,} dead letters; --limit prints more"
    )
    # What reads the objects is not given a line of another kind.
    click.echo(what + (f"; {lost:,} older ones are no longer kept" if lost else ""), err=as_json)
    if resubmit:
        click.echo(f"{again:,} submitted again", err=True)


def _resubmitted(client: Client, letters: list[RemoteLetter]) -> int:
    """How many letters were submitted again."""
    from evflow.deploy.telling import MOST_AGAIN

    again = 0
    for start in range(0, len(letters), MOST_AGAIN):
        page = letters[start : start + MOST_AGAIN]
        gone = client.ask("resubmit", numbers=[letter.number for letter in page])
        for letter in page:
            if letter.number in gone:
                what = f"dead letter {letter.number} is no longer there"
                click.echo(f"{letter.stone} on {letter.node}: {what}", err=True)
        again += len(page) - len(gone)
    return again


def _trace(letter: RemoteLetter) -> str:
    return "" if letter.error is None else "\n".join(letter.error.__notes__)


def _letter_text(letter: RemoteLetter, told: set[str]) -> str:
    """A letter as text; the same traceback only once."""
    from evflow.outside import shown

    lines = [f"{letter.stone} on {letter.node}: {letter.reason}", f"  {shown(letter.event, 300)}"]
    trace = _trace(letter)
    if trace and trace not in told:
        told.add(trace)
        lines += [f"  {line}" for line in trace.rstrip().splitlines()]
    return "\n".join(map(_lines, lines))


def _letter_json(letter: RemoteLetter) -> str:
    from evflow.tools.watch.tap import plain_value

    return json.dumps(
        {
            "node": letter.node,
            "stone": letter.stone,
            "reason": letter.reason,
            "event": plain_value(letter.event),
            "traceback": _trace(letter),
        }
    )
