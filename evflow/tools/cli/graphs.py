"""Commands about a graph: ``run``, ``draw``, ``validate``; ``demo``, ``keygen`` and ``gpu``."""

from __future__ import annotations

import os
import socket
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from evflow.errors import GraphError
from evflow.tools.cli.options import (
    DIR,
    FILE,
    OUT,
    Asked,
    NamedContact,
    asked,
    graph_option,
    hosts_option,
    keys_option,
    log_format,
    plain_option,
)  # fmt: skip

if TYPE_CHECKING:
    from evflow.graph.graph import Graph

_ENDINGS = ".svg, .png or .pdf"
_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the results as one JSON object and nothing else."
)
_quiet_option = click.option("--quiet", is_flag=True, help="Show no progress.")


@click.group(invoke_without_command=True)
@_json_option
@click.option(
    "--picture", type=OUT, show_default="./evflow-demo.svg", help=f"Draw the graph to FILE: {_ENDINGS}."
)
@_quiet_option
@click.option(
    "--processes", type=click.IntRange(1, 3), default=1, show_default=True,
    help="Place the stones on so many nodes, each in a process of its own.",
)  # fmt: skip
@click.pass_context
def demo(context: click.Context, as_json: bool, picture: Path | None, quiet: bool, processes: int) -> None:
    """Send a year of real flights through a graph.

    The 336,776 flights that left New York in 2013: how many were late at which airport, and how fast did the
    others fly, by the hour? Draws the graph with its counts. With --json it draws only where --picture says.
    """
    if context.invoked_subcommand is not None:
        if any(context.get_parameter_source(name) is not ParameterSource.DEFAULT for name in context.params):
            raise click.UsageError(f"options stand last: evflow demo {context.invoked_subcommand} --json")
        return
    from evflow.tools.demo.output import publish
    from evflow.tools.demo.show import play

    publish(play(quiet or as_json, processes), as_json, picture, "evflow-demo.svg")


@demo.command()
@_json_option
@click.option(
    "--picture", type=OUT, show_default="./evflow-matching.svg", help="Draw the map to FILE, as SVG."
)
@_quiet_option
def matching(as_json: bool, picture: Path | None, quiet: bool) -> None:
    """Match the flights with 100,000 subscriptions.

    The subscribers are invented: they are near airports of the United States and want to know of flights to
    within some kilometres that are late, or of their airline. Draws a map of where matches fell. With --json
    it draws only where --picture says.
    """
    from evflow.tools.demo.matching import play
    from evflow.tools.demo.output import publish

    publish(play(quiet or as_json), as_json, picture, "evflow-matching.svg")


@demo.command()
@_json_option
@_quiet_option
def spark(as_json: bool, quiet: bool) -> None:
    """Have Spark clean the flights and send them to subscribers.

    A job of Spark, which starts for it, joins the flights with the places they are bound for, and streams
    them into a graph that matches them with 100,000 subscriptions. Needs Java.
    """
    from evflow.tools.demo.output import publish
    from evflow.tools.demo.spark import play

    publish(play(quiet or as_json), as_json)


@demo.command()
@_json_option
@_quiet_option
@click.option(
    "--processes", type=click.Choice(["1", "2", "4", "8"]), default="4", show_default=True,
    help="Compute in so many processes.",
)  # fmt: skip
@click.option(
    "--steps", type=click.IntRange(1, 100_000), default=60, show_default=True, help="Write so many steps."
)
@click.option(
    "--store", type=click.Path(path_type=Path), help="Keep the output in FILE.h5 or in the folder FILE.zarr."
)
def staging(as_json: bool, quiet: bool, processes: str, steps: int, store: Path | None) -> None:
    """Stage the output of a simulation while it goes on.

    Processes compute how two substances react and spread. A staging node pulls their output, draws it, and
    stores it, while they compute the next step.
    """
    from evflow.tools.demo.output import publish
    from evflow.tools.demo.staging import play

    publish(play(quiet or as_json, int(processes), steps, store), as_json)


@demo.command()
@_json_option
@_quiet_option
@click.option(
    "--speed", type=click.FloatRange(0), default=3600.0, show_default=True,
    help="Seconds of flight time in a second; 0 for as fast as it goes.",
)  # fmt: skip
@click.option("--map", "is_shown", is_flag=True, help="Open a live map in a browser; needs evflow[map].")
def tiles(as_json: bool, quiet: bool, speed: float, is_shown: bool) -> None:
    """Fly a day over location publish/subscribe.

    The flights of 2013-07-01 move over the tiles of four processes. Airports subscribe to what is near, and
    flights of one airline to those of another one that are near them. The data has no positions: each flight
    is on its great circle, at an even speed from its departure on.
    """
    from evflow.tools.demo.output import publish
    from evflow.tools.demo.tiles import play

    def tell(url: str) -> None:
        click.echo(f"The map is at {url}", err=True)
        click.launch(url)

    publish(play(quiet or as_json, speed, tell if is_shown else None), as_json)


@click.command()
@click.argument("file", type=FILE)
@graph_option
@click.option("--draw", "picture", type=OUT, help=f"Draw the graph with its counts to FILE: {_ENDINGS}.")
@click.option("--node", metavar="NAME", help="Run only the stones that are placed on this node.")
@click.option(
    "--listen", metavar="CONTACT", multiple=True,
    help="Where other nodes can dial this one: tcp://127.0.0.1:7000.",
)  # fmt: skip
@click.option("--peer", "peers", type=NamedContact(), multiple=True, help="Where to dial another node.")
@keys_option
@plain_option
@click.option("--journal", type=OUT, help="A file that keeps which events were handled, over restarts.")
@click.option(
    "--memory", metavar="MIB", type=click.IntRange(1), show_default="256",
    help="MiB of memory for events of other nodes that wait here.",
)  # fmt: skip
@click.option("--keep-going", is_flag=True, help="Exit with 0 though stones have failed on events.")
@log_format
@click.pass_context
def run(
    context: click.Context,
    /,
    file: Path,
    graph: str | None,
    picture: Path | None,
    node: str | None,
    keep_going: bool,
    log_format: str,
    memory: int | None,
    **options: Any,
) -> None:
    """Run a graph, or a node of it.

    Prints what happened at each stone. FILE may define feed(flow), which submits events. The graph runs
    until feed returns, or until Ctrl-C or SIGTERM; in any case all that was submitted is handled first.
    The exit code is 1 if a stone failed on an event, also if only a handler raised; else it is 130
    after Ctrl-C.

    With --node only the stones on that node run, and their events cross to the other nodes, which run by
    commands of their own. feed is called where a source is (flow.node.name says on which node); other nodes
    run until Ctrl-C or SIGTERM. A node that gets events listens; one that sends names it with --peer.
    """
    from evflow.tools.cli.program import load
    from evflow.tools.cli.run import make_node, run_program
    from evflow.tools.watch.logs import printed

    if node is None and (memory or any(options.values())):
        raise click.UsageError(
            "--listen, --peer, --keys, --plain, --journal and --memory apply to one node: add --node NAME"
        )
    # By itself Python prints warnings as text.
    with nullcontext() if log_format == "text" else printed("WARNING", log_format):
        program = load(file, graph)
        if memory is not None:
            options["memory"] = memory << 20
        made = None if node is None else make_node(program.graph, node, **options)
        code = run_program(program, picture, made, keep_going)
    context.exit(code)


@click.command()
@click.option("-o", "--output", type=OUT, show_default="./NAME.svg", help=f"Where to: {_ENDINGS}.")
@graph_option
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
    """Draw a graph, or a deployment as it runs.

    A graph FILE need not be complete; with --live it is a deployment. A live picture has the nodes as
    frames, with counts and rates, and is drawn again and again until Ctrl-C: a browser that shows it
    need only load it anew.
    """
    if live:
        _draw_live(asked, output, deployment, every, once)
        return
    if len(asked.contacts) != 1 or asked.hosts is not None:
        raise click.UsageError("give one graph FILE; or --live, with CONTACT… or --hosts")
    file = Path(asked.contacts[0])
    if not file.is_file():
        raise click.UsageError(f"there is no file {file}; to draw what runs on nodes, add --live")
    from evflow.tools.cli.program import load

    path = output or Path(file.with_suffix(".svg").name)
    load(file, graph).graph.draw(str(path))
    click.echo(path)


def _draw_live(asked: Asked, output: Path | None, deployment: str | None, every: float, once: bool) -> None:
    from evflow.tools.watch.live import chosen, picture
    from evflow.tools.watch.survey import Watcher

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
@click.argument("file", type=FILE)
@graph_option
@hosts_option
def validate(file: Path, graph: str | None, hosts: Path | None) -> None:
    """Check a graph and its functions without running it.

    With --hosts also whether it could be deployed there: every stone is on a host, and can be sent to it.
    Then it prints what each host would get. Nothing is asked over the network.
    """
    from evflow.tools.cli.program import load

    found = load(file, graph).graph
    shown = ""
    if hosts is None:
        found.check()
    else:
        shown = f"\n\n{_placed(found, hosts)}"
    click.echo(f"{found.name}: {len(found.stones)} stones, {len(found.links)} links, nothing wrong{shown}")


def _placed(graph: Graph, file: Path) -> str:
    from evflow.deploy.hosts import Hosts
    from evflow.tools.watch.placement import placement_problems, placement_table

    hosts = Hosts.load(file)
    if problems := placement_problems(graph, hosts):
        raise GraphError(*problems)
    return placement_table(graph, hosts)


@click.command()
@click.argument("name")
@click.option("--dir", "folder", type=DIR, default="keys", show_default=True, help="Where to put them.")
def keygen(name: str, folder: Path) -> None:
    """Make the keys of a node.

    NAME.key is its secret key; NAME.pub goes to the nodes that it talks to. Keys that are there are not
    overwritten.
    """
    from evflow.net.node.keyfile import generate

    secret, public = generate(folder, name)
    click.echo(
        f"{secret}  the secret key of {name}: it stays on the host of {name}\n"
        f"{public}  its public key: copy it into the folder of keys of every node that {name} talks to\n"
        f"The .pub of each of those nodes goes into {folder} on the host of {name}."
    )


@click.group()
def gpu() -> None:
    """Check matching on a CUDA device."""


@gpu.command()
@click.option("--full", is_flag=True, help="At the papers' size: 250,000 and 2,500,000 filters.")
@click.option("--events", type=click.IntRange(1), default=50, show_default=True, help="Events a scenario.")
@click.option("--device", type=click.IntRange(0), default=0, show_default=True, help="Which device.")
def selftest(full: bool, events: int, device: int) -> None:
    """Compare the engines on a device with the CPU.

    Needs a card from Turing on, NVIDIA's driver and PyCUDA: docs/gpu.md tells how to get them, also without
    internet. Takes nearly all memory of the card for a moment. The exit code is 1 if something is wrong.
    """
    from evflow.gpu.selftest import selftest as run

    line = ""
    for line in run(full=full, events=events, device=device):
        click.echo(line)
    if line != "0 wrong":
        raise SystemExit(1)
