"""The command ``evflow``: what a shell can do with graphs.

Modules of commands import what they need when a command runs, so ``evflow --help`` does not wait for it.
"""

from __future__ import annotations

import click

import evflow
from evflow.tools.cli import deploying, graphs, matching, nodes, passing, tiles
from evflow.tools.cli.options import Main

__all__ = ["main"]


@click.group(
    cls=Main,
    commands=[
        deploying.change, deploying.deploy, deploying.undeploy, graphs.demo, graphs.draw, graphs.gpu,
        graphs.keygen, graphs.run, graphs.validate, matching.match, nodes.dead_letters, nodes.doctor,
        nodes.logs, nodes.node, nodes.status, nodes.top, passing.record, passing.replay, passing.tap,
        tiles.tiles,
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)  # fmt: skip
@click.version_option(evflow.__version__, prog_name="evflow", message="%(prog)s %(version)s")
def main() -> None:
    """Typed events through graphs of compiled stones.

    A graph FILE is a Python file that makes an evflow.Graph, or the JSON of its to_dict().
    """
