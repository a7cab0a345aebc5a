"""``evflow deploy``, ``undeploy`` and ``change``: graphs on daemons."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evflow.tools.cli.options import FILE, Asked, graph_option, speaking

if TYPE_CHECKING:
    from evflow.deploy.handle import Deployment
    from evflow.stone import Stone


@click.command()
@click.argument("file", type=FILE)
@graph_option
@click.option("--replace", is_flag=True, help="Let it take the place of the deployment of its name.")
@speaking
def deploy(file: Path, graph: str | None, replace: bool, asked: Asked) -> None:
    """Roll a graph out over its hosts: all of it or nothing.

    Each stone says by on= which host it is placed on; --hosts says where these are. The deployment lives on
    the hosts, and goes on when this command has ended. FILE may define feed(flow): it is called with a handle
    of the deployment, and may submit events.
    """
    from evflow.tools.cli.program import load

    program = load(file, graph)
    with program.graph.deploy(_contacts(asked), replace=replace, **asked.settings) as handle:
        stones = program.graph.stones
        placed = ", ".join(sorted({str(stone.on) for stone in stones.values()}))
        click.echo(f"deployed {handle.name}, version {handle.version}: {len(stones)} stones on {placed}")
        if program.feed is not None:
            program.call_feed(handle)
            handle.drain()


@click.command()
@click.argument("deployment")
@click.option("--drain/--now", default=True, show_default=True, help="Handle first all that is under way.")
@speaking
def undeploy(deployment: str, drain: bool, asked: Asked) -> None:
    """Take a deployment off its hosts.

    Prints what happened at each stone.
    """
    from evflow.tools.report import stats_table

    with handle_of(deployment, asked) as handle:
        if drain:
            stats = handle.stats_of(handle.shutdown())
        else:
            stats = handle.stats()
            handle.undeploy()
        click.echo(stats_table(stats, {name: counts["kind"] for name, counts in stats.items()}))


@click.group()
def change() -> None:
    """Change a deployment while events flow.

    All of a change is made, or nothing.
    """


def _changing(name: str, *arguments: str) -> Callable[[Callable[..., None]], click.Command]:
    """A command of ``change``: calls the function with a handle of the deployment and its arguments, and says
    at the end which version that made.

    Args:
        name: the command.
        arguments: what follows the deployment.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def command(asked: Asked, deployment: str, **given: Any) -> None:
            with handle_of(deployment, asked) as handle:
                function(handle, **given)
                click.echo(f"{handle.name} is at version {handle.version}")

        for argument in (*reversed(arguments), "deployment"):
            command = click.argument(argument)(command)
        return change.command(name)(speaking(command))

    return decorate


@_changing("move", "stone", "host")
def _move(handle: Deployment, stone: str, host: str) -> None:
    """Move a stone to another host, with its queue and state."""
    handle.move(stone, host)


@_changing("insert", "stone")
@click.option("--after", required=True, help="The stone before it.")
@click.option("--before", required=True, help="The stone behind it.")
@click.option("--port", type=click.IntRange(0), default=0, show_default=True, help="The output of --after.")
def _insert(handle: Deployment, stone: str, after: str, before: str, port: int) -> None:
    """Put a stone between two that are linked.

    STONE is the code of a filter, or FILE.py:NAME, a stone that a Python file makes.
    """
    click.echo(f"inserted {handle.insert(_stone(stone), after=after, before=before, port=port)}")


@_changing("replace", "stone", "new")
def _replace(handle: Deployment, stone: str, new: str) -> None:
    """Put another stone in the place of STONE.

    NEW is the code of a filter, or FILE.py:NAME, a stone that a Python file makes.
    """
    handle.replace(stone, _stone(new))


@_changing("remove", "stone")
def _remove(handle: Deployment, stone: str) -> None:
    """Take a stone out; what led to it leads to what is behind it."""
    handle.remove(stone)


@_changing("link", "source", "target")
@click.option("--port", type=click.IntRange(0), default=0, show_default=True, help="The output of SOURCE.")
def _link(handle: Deployment, source: str, target: str, port: int) -> None:
    """Link a stone to another one, or to FILE.py:NAME, a new one."""
    handle.link(source, _stone(target) if ":" in target else target, port)


@_changing("unlink", "source", "target")
def _unlink(handle: Deployment, source: str, target: str) -> None:
    """Take a link away."""
    handle.unlink(source, target)


@_changing("freeze", "stone")
def _freeze(handle: Deployment, stone: str) -> None:
    """Let a stone queue what arrives."""
    handle.freeze(stone)


@_changing("unfreeze", "stone")
def _unfreeze(handle: Deployment, stone: str) -> None:
    """Let a frozen stone go on."""
    handle.unfreeze(stone)


@_changing("host", "host")
@click.argument("contact", required=False)
def _host(handle: Deployment, host: str, contact: str | None) -> None:
    """Let a host join, at CONTACT; without one, let it leave."""
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
    with handle_of(deployment, asked) as handle:
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


def handle_of(deployment: str, asked: Asked) -> Deployment:
    """A handle of a deployment on the hosts that a command was told.

    Args:
        deployment: its name.
        asked: what the command was told.

    Raises:
        click.UsageError: it was told no hosts.
    """
    from evflow.deploy.handle import Deployment

    return Deployment(deployment, _contacts(asked), **asked.settings)


def _stone(text: str) -> Stone:
    """The stone that a user's text means."""
    from evflow.stones.filter import Filter
    from evflow.tools.cli.program import variable

    file, colon, name = text.rpartition(":")
    if colon and file.endswith(".py"):
        return variable(Path(file), name)
    return Filter(text)
