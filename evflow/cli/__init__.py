"""The command ``evflow``: what a shell can do with graphs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click
from click.core import ParameterSource

import evflow
from evflow.cli.lazy import LazyGroup
from evflow.cli.tidy import log_format, tidy

__all__ = ["main"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIR = click.Path(file_okay=False, path_type=Path)
_OUT = click.Path(dir_okay=False, path_type=Path)
_ENDINGS = ".svg, .png or .pdf"

file_argument = click.argument("file", type=_FILE)
graph_option = click.option(
    "--graph", metavar="NAME", help="The graph's name, or its variable's; needed if FILE makes several."
)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(evflow.__version__, prog_name="evflow", message="%(prog)s %(version)s")
def main() -> None:
    """Typed events through graphs of compiled stones.

    A graph FILE is a Python file that makes an evflow.Graph, or the JSON of its to_dict().
    """


@main.group(invoke_without_command=True)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the results as one JSON object and nothing else."
)
@click.option(
    "--picture", type=_OUT, show_default="./evflow-demo.svg", help=f"Draw the graph to FILE: {_ENDINGS}."
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
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
    with tidy():
        from evflow.demo.show import show

        show(as_json=as_json, picture=picture, quiet=quiet or as_json, processes=processes)


@demo.command()
@click.option(
    "--json", "as_json", is_flag=True, help="Print the results as one JSON object and nothing else."
)
@click.option(
    "--picture", type=_OUT, show_default="./evflow-matching.svg", help="Draw the map to FILE, as SVG."
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
def matching(as_json: bool, picture: Path | None, quiet: bool) -> None:
    """Match the flights with 100,000 subscriptions.

    The subscribers are invented: they are near airports of the United States and want to know of flights to
    within some kilometres that are late, or of their airline. Draws a map of where matches fell. With --json
    it draws only where --picture says.
    """
    with tidy():
        from evflow.demo.matching import show

        show(as_json=as_json, picture=picture, quiet=quiet or as_json)


@demo.command()
@click.option(
    "--json", "as_json", is_flag=True, help="Print the results as one JSON object and nothing else."
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
def spark(as_json: bool, quiet: bool) -> None:
    """Have Spark clean the flights and send them to subscribers.

    A job of Spark, which starts for it, joins the flights with the places they are bound for, and streams
    them into a graph that matches them with 100,000 subscriptions. Needs Java.
    """
    with tidy():
        from evflow.demo.spark import show

        show(as_json=as_json, quiet=quiet or as_json)


@main.command()
@file_argument
@graph_option
@click.option("--draw", "picture", type=_OUT, help=f"Draw the graph with its counts to FILE: {_ENDINGS}.")
@click.option("--node", metavar="NAME", help="Run only the stones that are placed on this node.")
@click.option(
    "--listen",
    metavar="CONTACT",
    multiple=True,
    help="Where other nodes can dial this one: tcp://127.0.0.1:7000.",
)
@click.option("--peer", "peers", metavar="NAME=CONTACT", multiple=True, help="Where to dial another node.")
@click.option("--keys", type=_DIR, help="The folder of keys that evflow keygen fills.")
@click.option("--plain", is_flag=True, help="Let tcp go beyond this host without keys.")
@click.option("--journal", type=_OUT, help="A file that keeps which events were handled, over restarts.")
@click.option(
    "--memory",
    metavar="MIB",
    type=click.IntRange(1),
    help="MiB of memory for events of other nodes that wait here.  [default: 256]",
)
@click.option("--keep-going", is_flag=True, help="Exit with 0 though stones have failed on events.")
@log_format
@click.pass_context
def run(
    context: click.Context,
    file: Path,
    graph: str | None,
    picture: Path | None,
    node: str | None,
    listen: tuple[str, ...],
    peers: tuple[str, ...],
    keys: Path | None,
    plain: bool,
    journal: Path | None,
    memory: int | None,
    keep_going: bool,
    log_format: str,
) -> None:
    """Run a graph, or a node of it, and print what happened at each stone.

    FILE may define feed(flow), which submits events. The graph runs until feed returns, or until Ctrl-C or
    SIGTERM; in any case all that was submitted is handled first. The exit code is 1 if a stone failed on an
    event, also if only a handler raised; else it is 130 after Ctrl-C.

    With --node only the stones on that node run, and their events cross to the other nodes, which run by
    commands of their own. feed is called where a source is (flow.node.name says on which node); other nodes
    run until Ctrl-C or SIGTERM. A node that gets events listens; one that sends names it with --peer.
    """
    from evflow.cli.program import load
    from evflow.cli.run import run_program

    if node is None and (listen or peers or keys or plain or journal or memory):
        raise click.UsageError(
            "--listen, --peer, --keys, --plain, --journal and --memory are of a node: add --node NAME"
        )
    with _printed(log_format), tidy(file, named="--node NAME"):
        program = load(file, graph)
        made = None
        if node is not None:
            from evflow.cli.nodes import NodeOptions, make_node

            told = {} if memory is None else {"memory": memory}
            made = make_node(program.graph, NodeOptions(node, listen, peers, keys, plain, journal, **told))
        code = run_program(program, picture, made, keep_going)
    if code:
        context.exit(code)


def _printed(log_format: str) -> AbstractContextManager[None]:
    """Prints the log in a form that Python by itself does not print it in."""
    if log_format == "text":
        return nullcontext()
    from evflow.watch.logs import printed

    return printed("WARNING", log_format)


@main.command()
@click.argument("name")
@click.option("--dir", "folder", type=_DIR, default="keys", show_default=True, help="Where to put them.")
def keygen(name: str, folder: Path) -> None:
    """Make the keys of a node.

    NAME.key is its secret key; NAME.pub goes to the nodes that it talks to. Keys that are there are not
    overwritten.
    """
    from evflow.cli.keygen import make_keys

    with tidy():
        make_keys(folder, name)
