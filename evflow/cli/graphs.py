"""``evflow draw`` and ``evflow validate``: a graph that does not run, or that runs elsewhere."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evflow.cli.asking import Asked, asked, hosts_option
from evflow.cli.tidy import tidy
from evflow.errors import GraphError

if TYPE_CHECKING:
    from evflow.graph import Graph

__all__ = ["draw", "validate"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUT = click.Path(dir_okay=False, path_type=Path)
_graph_option = click.option(
    "--graph", metavar="NAME", help="The graph's name, or its variable's; needed if FILE makes several."
)


@click.command()
@click.option("-o", "--output", type=_OUT, show_default="./NAME.svg", help="Where to: .svg, .png or .pdf.")
@_graph_option
@click.option("--live", is_flag=True, help="Draw what runs on nodes: give CONTACT… or --hosts, and no FILE.")
@click.option("--deployment", metavar="NAME", help="Which; needed if the nodes have several.")
@click.option(
    "--every", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between two."
)
@click.option("--once", is_flag=True, help="Draw once and end.")
@asked
def draw(
    asked: Asked,
    output: Path | None,
    graph: str | None,
    live: bool,
    deployment: str | None,
    every: float,
    once: bool,
) -> None:
    """Draw a graph FILE, which need not be complete; or with --live a deployment.

    A live picture has the nodes as frames, with counts and rates, and is drawn again and again until Ctrl-C:
    a browser that shows it need only load it anew.
    """
    if live:
        _draw_live(asked, output, deployment, every, once)
        return
    if len(asked.contacts) != 1 or asked.hosts is not None:
        raise click.UsageError("give one graph FILE; or --live, with CONTACT… or --hosts")
    file = Path(asked.contacts[0])
    if not file.is_file():
        raise click.UsageError(f"there is no file {file}; to draw what runs on nodes, add --live")
    from evflow.cli.program import load

    with tidy(file):
        path = output or Path(file.with_suffix(".svg").name)
        load(file, graph).graph.draw(str(path))
        click.echo(path)


def _draw_live(asked: Asked, output: Path | None, deployment: str | None, every: float, once: bool) -> None:
    from evflow.watch.live import chosen, picture
    from evflow.watch.survey import Watcher

    with Watcher(asked.places(), here=socket.gethostname()) as watcher:
        before = watcher.look()
        for seen in before.nodes:
            if seen.trouble is not None:
                click.echo(str(seen.trouble), err=True)
        name = chosen(before, deployment)
        path = output or Path(f"{name.replace(os.sep, '_')}.svg")
        # The other keeps its ending, which says what is drawn.
        other = path.with_name(f".{path.stem}.new{path.suffix}")
        while True:
            time.sleep(every)
            now = watcher.look()
            picture(before, now, name).save(other)
            # As a whole: whoever reads it meanwhile never finds half a picture.
            other.replace(path)
            if once:
                click.echo(path)
                return
            click.echo(f"\r{path} {time.strftime('%H:%M:%S')}", nl=False, err=True)
            before = now


@click.command()
@click.argument("file", type=_FILE)
@_graph_option
@hosts_option
def validate(file: Path, graph: str | None, hosts: Path | None) -> None:
    """Check a graph and its functions without running it.

    With --hosts also whether it could be deployed there: every stone is on a host, and can be sent to it.
    Then it prints what each host would get. Nothing is asked over the network.
    """
    from evflow.cli.program import load

    with tidy(file):
        found = load(file, graph).graph
        if hosts is None:
            found.check()
            shown = ""
        else:
            shown = f"\n\n{_placed(found, hosts)}"
        click.echo(
            f"{found.name}: {len(found.stones)} stones, {len(found.links)} links, nothing wrong{shown}"
        )


def _placed(graph: Graph, file: Path) -> str:
    from evflow.deploy.hosts import Hosts
    from evflow.watch.placement import placement_problems, placement_table

    hosts = Hosts.load(file)
    if problems := placement_problems(graph, hosts):
        raise GraphError(*problems)
    return placement_table(graph, hosts)
