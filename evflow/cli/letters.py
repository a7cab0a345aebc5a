"""``evflow dead-letters``: the events that stones on nodes have given up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from evflow.cli.asking import Asked, asked
from evflow.deploy.letters import RemoteLetter, letters_of, newest
from evflow.deploy.telling import MOST_AGAIN
from evflow.outside import shown
from evflow.report import plain
from evflow.watch.contract import Client

__all__ = ["dead_letters"]


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
    """Print the events that stones have given up, with reasons and tracebacks.

    A CONTACT is tcp://HOST:PORT or ipc:///PATH; with keys NAME=CONTACT. With --resubmit those that are
    printed are taken off the dead letters, and go to their stones again.
    """
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
                click.echo(json.dumps(_data(letter)) if as_json else _text(letter, traces))
            count += len(letters)
            # Some may have come in between.
            kept += max(counts["kept"], len(letters))
            lost += counts["lost"]
            again += _resubmitted(client, letters) if resubmit else 0
    if statuses and not kept and not lost:
        _check_known(deployment, statuses)
    # What reads the objects is not given a line of another kind.
    click.echo(_summary(count, kept, lost), err=as_json)
    if resubmit:
        click.echo(f"{again:,} submitted again", err=True)


def _check_known(deployment: str, statuses: Mapping[str, Any]) -> None:
    """Refuses a deployment that no node knows."""
    from evflow.deploy.client import no_deployment

    if not any(deployment in status["deployments"] for status in statuses.values()):
        raise no_deployment(deployment, statuses, statuses.values())


def _summary(count: int, kept: int, lost: int) -> str:
    what = f"{count:,} dead letters" if count == kept else f"{count:,} of {kept:,} dead letters"
    more = "" if count == kept else "; --limit prints more"
    return what + more + (f"; {lost:,} older ones are no longer kept" if lost else "")


def _resubmitted(client: Client, letters: list[RemoteLetter]) -> int:
    """How many letters were submitted again."""
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


def _text(letter: RemoteLetter, told: set[str]) -> str:
    """A letter as text; the same traceback only once."""
    lines = [f"{letter.stone} on {letter.node}: {letter.reason}", f"  {shown(letter.event, 300)}"]
    trace = _trace(letter)
    if trace and trace not in told:
        told.add(trace)
        lines += [f"  {line}" for line in trace.rstrip().splitlines()]
    return "\n".join("\n".join(map(plain, line.split("\n"))) for line in lines)


def _data(letter: RemoteLetter) -> dict[str, Any]:
    from evflow.watch.tap import plain_value

    return {
        "node": letter.node,
        "stone": letter.stone,
        "reason": letter.reason,
        "event": plain_value(letter.event),
        "traceback": _trace(letter),
    }
