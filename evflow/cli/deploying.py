"""``evflow deploy`` and ``evflow change``: graphs on daemons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evflow.cli.asking import Asked, speaking

if TYPE_CHECKING:
    from evflow.deploy.handle import Deployment
    from evflow.stone import Stone

__all__ = ["change", "deploy", "undeploy"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--graph", metavar="NAME", help="The graph's name, or its variable's.")
@click.option("--replace", is_flag=True, help="Let it take the place of the deployment of its name.")
@speaking
def deploy(file: Path, graph: str | None, replace: bool, asked: Asked) -> None:
    """Roll a graph out over its hosts: all of it or nothing.

    Each stone says by on= which host it is placed on; --hosts says where these are. The deployment lives on
    the hosts, and goes on when this command has ended. FILE may define feed(flow): it is called with a handle
    of the deployment, and may submit events.
    """
    from evflow.cli.program import load, located

    program = load(file, graph)
    hosts = _contacts(asked)
    with program.graph.deploy(hosts, replace=replace, **asked.settings) as handle:
        stones = program.graph.stones
        placed = ", ".join(sorted({str(stone.on) for stone in stones.values()}))
        click.echo(f"deployed {handle.name}, version {handle.version}: {len(stones)} stones on {placed}")
        if program.feed is not None:
            try:
                program.feed(handle)  # type: ignore[arg-type]
            except Exception as error:
                raise located(file, error) from error
            handle.drain()


@click.command()
@click.argument("deployment")
@click.option("--drain/--now", default=True, show_default=True, help="Handle first all that is under way.")
@speaking
def undeploy(deployment: str, drain: bool, asked: Asked) -> None:
    """Take a deployment off its hosts, and print what happened at each stone."""
    from evflow.report import stats_table

    with _handle(deployment, asked) as handle:
        if drain:
            stats = handle.stats_of(handle.shutdown())
        else:
            stats = handle.stats()
            handle.undeploy()
        click.echo(stats_table(stats, {name: counts["kind"] for name, counts in stats.items()}))


@click.group()
def change() -> None:
    """Change a deployment while events flow: all of a change is made, or nothing."""


@change.command()
@click.argument("deployment")
@click.argument("stone")
@click.argument("host")
@speaking
def move(deployment: str, stone: str, host: str, asked: Asked) -> None:
    """Move a stone to another host, with its queue and state."""
    with _changing(deployment, asked) as handle:
        handle.move(stone, host)


@change.command()
@click.argument("deployment")
@click.argument("stone")
@click.option("--after", required=True, help="The stone before it.")
@click.option("--before", required=True, help="The stone behind it.")
@click.option("--port", type=click.IntRange(0), default=0, show_default=True, help="The output of --after.")
@speaking
def insert(deployment: str, stone: str, after: str, before: str, port: int, asked: Asked) -> None:
    """Put a stone between two that are linked.

    STONE is the code of a filter, or FILE.py:NAME, a stone that a Python file makes.
    """
    with _changing(deployment, asked) as handle:
        name = handle.insert(_stone(stone), after=after, before=before, port=port)
        click.echo(f"inserted {name}")


@change.command()
@click.argument("deployment")
@click.argument("stone")
@click.argument("new")
@speaking
def replace(deployment: str, stone: str, new: str, asked: Asked) -> None:
    """Put another stone in the place of STONE.

    NEW is the code of a filter, or FILE.py:NAME, a stone that a Python file makes.
    """
    with _changing(deployment, asked) as handle:
        handle.replace(stone, _stone(new))


@change.command()
@click.argument("deployment")
@click.argument("stone")
@speaking
def remove(deployment: str, stone: str, asked: Asked) -> None:
    """Take a stone out; what led to it leads to what is behind it."""
    with _changing(deployment, asked) as handle:
        handle.remove(stone)


@change.command()
@click.argument("deployment")
@click.argument("source")
@click.argument("target")
@click.option("--port", type=click.IntRange(0), default=0, show_default=True, help="The output of SOURCE.")
@speaking
def link(deployment: str, source: str, target: str, port: int, asked: Asked) -> None:
    """Link a stone to another one, or to FILE.py:NAME, a new one."""
    with _changing(deployment, asked) as handle:
        handle.link(source, _stone(target) if ":" in target else target, port)


@change.command()
@click.argument("deployment")
@click.argument("source")
@click.argument("target")
@speaking
def unlink(deployment: str, source: str, target: str, asked: Asked) -> None:
    """Take a link away."""
    with _changing(deployment, asked) as handle:
        handle.unlink(source, target)


@change.command()
@click.argument("deployment")
@click.argument("stone")
@speaking
def freeze(deployment: str, stone: str, asked: Asked) -> None:
    """Let a stone queue what arrives."""
    with _changing(deployment, asked) as handle:
        handle.freeze(stone)


@change.command()
@click.argument("deployment")
@click.argument("stone")
@speaking
def unfreeze(deployment: str, stone: str, asked: Asked) -> None:
    """Let a frozen stone go on."""
    with _changing(deployment, asked) as handle:
        handle.unfreeze(stone)


@change.command("host")
@click.argument("deployment")
@click.argument("host")
@click.argument("contact", required=False)
@speaking
def change_host(deployment: str, host: str, contact: str | None, asked: Asked) -> None:
    """Let a host join, at CONTACT; without one, let it leave."""
    with _changing(deployment, asked) as handle:
        if contact is None:
            handle.remove_host(host)
        else:
            handle.add_host(host, contact)


@change.command()
@click.argument("deployment")
@click.argument("stone")
@click.argument("values", metavar="[NAME=VALUE]...", nargs=-1)
@speaking
def attributes(deployment: str, stone: str, values: tuple[str, ...], asked: Asked) -> None:
    """Print a stone's attributes, after setting some."""
    with _handle(deployment, asked) as handle:
        click.echo(json.dumps(handle.attributes(stone, **dict(map(_attribute, values)))))


def _attribute(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text}: expected NAME=VALUE")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _contacts(asked: Asked) -> dict[str, str]:
    if asked.hosts is None:
        raise click.UsageError("say where the hosts are: --hosts FILE")
    return asked.hosts.contacts


def _handle(deployment: str, asked: Asked) -> Deployment:
    from evflow.deploy.handle import Deployment

    return Deployment(deployment, _contacts(asked), **asked.settings)


@contextmanager
def _changing(deployment: str, asked: Asked) -> Iterator[Deployment]:
    """A handle for a change; says at the end which version that made."""
    with _handle(deployment, asked) as handle:
        yield handle
        click.echo(f"{handle.name} is at version {handle.version}")


def _stone(text: str) -> Stone:
    """The stone that a user's text means."""
    from evflow.cli.program import variable
    from evflow.stones.filter import Filter

    file, colon, name = text.rpartition(":")
    if colon and file.endswith(".py"):
        return variable(Path(file), name)
    return Filter(text)
