"""Commands that are imported when they are used, so that ``evflow --help`` need not wait for them."""

from __future__ import annotations

import errno
import importlib
from typing import Any

import click

from evflow.trouble import advice

__all__ = ["COMMANDS", "LazyGroup"]

COMMANDS: dict[str, tuple[str, str]] = {
    "change": ("evflow.cli.deploying:change", "Change a deployment while events flow."),
    "dead-letters": ("evflow.cli.letters:dead_letters", "Print the events that stones have given up."),
    "deploy": ("evflow.cli.deploying:deploy", "Roll a graph out over its hosts: all of it or nothing."),
    "doctor": ("evflow.cli.doctor:doctor", "Find out what is wrong with this host, key, port or clock."),
    "draw": ("evflow.cli.graphs:draw", "Draw a graph, or a deployment as it runs."),
    "gpu": ("evflow.cli.gpu:gpu", "Check and time matching on a CUDA device."),
    "logs": ("evflow.cli.watching:logs", "Print the log of a node."),
    "node": ("evflow.cli.daemon:node", "Run a node that graphs are deployed to."),
    "record": ("evflow.cli.passing:record", "Write the events that pass a stone to a file."),
    "replay": ("evflow.cli.passing:replay", "Submit the events of a recording to a stone."),
    "status": ("evflow.cli.watching:status", "Print what nodes do, and what is wrong with them."),
    "tap": ("evflow.cli.passing:tap", "Print the events that pass a stone."),
    "top": ("evflow.cli.watching:top", "Watch nodes live: rates, queues, links, hosts."),
    "undeploy": ("evflow.cli.deploying:undeploy", "Take a deployment off its hosts."),
    "validate": ("evflow.cli.graphs:validate", "Check a graph and its functions without running it."),
}
"""Command → where it is, and its help in a line."""

_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class LazyGroup(click.Group):
    """A group that knows ``COMMANDS`` besides its own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            # What is printed goes to a file without a name; an error of any other file has one.
            if error.filename is not None or error.errno not in _UNWRITTEN:
                raise
            raise click.ClickException(
                f"the output cannot be written: {error.strerror}; {advice(error)}"
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            own = super().get_command(ctx, name)
            rows.append((name, COMMANDS[name][1] if own is None else own.get_short_help_str(80)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
