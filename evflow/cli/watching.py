"""``evflow status``, ``top`` and ``logs``: what nodes say of themselves."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import click

from evflow.cli.asking import Asked, asked, speaking
from evflow.cli.tidy import flagged
from evflow.report import plain, text
from evflow.watch.survey import Watcher
from evflow.watch.view import frame, status_data, status_text

__all__ = ["logs", "status", "top"]

_LEVELS = {"DEBUG": "bright_black", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
every_option = click.option(
    "--every", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds between two looks."
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@asked
@click.pass_context
def status(context: click.Context, asked: Asked, as_json: bool) -> None:
    """Print what nodes do, and what is wrong with them.

    A CONTACT is tcp://HOST:PORT or ipc:///PATH; with keys NAME=CONTACT. A node that does not answer is told
    with what was tried and what to check. The exit code is 1 if anything is dead or has trouble.
    """
    with Watcher(asked.places(), here=socket.gethostname()) as watcher:
        survey = watcher.look()
    if as_json:
        click.echo(json.dumps(status_data(survey), ensure_ascii=False, default=repr))
    else:
        click.echo(flagged(status_text(survey)))
    if survey.troubles():
        context.exit(1)


@click.command()
@every_option
@click.option("--once", is_flag=True, help="Print one frame and end.")
@asked
def top(asked: Asked, every: float, once: bool) -> None:
    """Watch nodes live: rates, queues, dead letters, links and hosts.

    Ends with Ctrl-C. With --once it looks twice, as a rate needs, and prints what it saw.
    """
    from rich.console import Console
    from rich.live import Live

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
        _echo(said["lines"])
        while follow:
            time.sleep(0.5)
            said = client.ask("logs", since=said["next"])
            if said.get("lost"):
                click.echo(f"… {said['lost']:,} lines are no longer kept", err=True)
            _echo(said["lines"])


def _echo(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line["time"]))
        level = str(line["level"])
        head = f"{at} {click.style(plain(level), fg=_LEVELS.get(level))} {plain(str(line['logger']))}: "
        # A traceback keeps its lines.
        click.echo(head + "\n".join(plain(text) for text in str(line["text"]).split("\n")))
