"""Errors and logs as a shell shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from evflow.errors import EvflowError, GraphError

__all__ = ["log_format", "tidy"]

log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The form of the log; json is an object a line.",
)


@contextmanager
def tidy(file: Path | None = None) -> Iterator[None]:
    """Errors of evflow as a text and exit code 1, without a traceback; Ctrl-C as exit code 130.

    Args:
        file: the user's file that errors of stone functions are in.
    """
    try:
        yield
    except EvflowError as error:
        problems = error.problems if isinstance(error, GraphError) else ()
        text = str(error) if len(problems) < 2 else f"{len(problems)} problems\n\n" + "\n\n".join(problems)
        raise click.ClickException(_place(file, error) + text) from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _place(file: Path | None, error: EvflowError) -> str:
    if file is None:
        return ""
    from evflow.cli.program import where

    return where(file, error)
