"""Errors and logs as a shell shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from evflow.errors import EvflowError, GraphError

__all__ = ["flagged", "log_format", "tidy"]

_IN_FLAGS = (
    (r"\bkeys=([A-Z]+)\b", r"--keys \1"),
    (r"\bsay (plain|replace)=True\b", r"say --\1"),
    (r"\bgive it with peers=", "give it with --peer"),
    (r"\bgraph\.run\(node=ev\.Node\(\)\)", "--node NAME"),
    (
        r"run the graph with node=ev\.Node\(peers=\{'([^']*)': CONTACT\}\)",
        r"give --node NAME --peer \1=CONTACT",
    ),
    (r"change it with its handle, take it down with undeploy", "use evflow change or evflow undeploy"),
)
"""What errors tell a program to do, and what that is at the command line."""

log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The form of the log; json is an object a line.",
)


def flagged(text: str, named: str = "--name NAME") -> str:
    """An error's text that names flags of the command line where it has named arguments of functions.

    Args:
        text: the error's.
        named: how the command is told the name of this end.
    """
    text = re.sub(r"\bname=NAME\b", named, text)
    for argument, flag in _IN_FLAGS:
        text = re.sub(argument, flag, text)
    return text


@contextmanager
def tidy(file: Path | None = None, named: str = "--name NAME") -> Iterator[None]:
    """Errors of evflow as a text and exit code 1, without a traceback; Ctrl-C as exit code 130.

    Args:
        file: the user's file that errors of stone functions are in.
        named: how the command is told the name of this end.
    """
    try:
        yield
    except EvflowError as error:
        problems = error.problems if isinstance(error, GraphError) else ()
        text = str(error) if len(problems) < 2 else f"{len(problems)} problems\n\n" + "\n\n".join(problems)
        raise click.ClickException(_place(file, error) + flagged(text, named)) from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _place(file: Path | None, error: EvflowError) -> str:
    if file is None:
        return ""
    from evflow.cli.program import where

    return where(file, error)
