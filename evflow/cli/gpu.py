"""``evflow gpu``: what a CUDA device does with subscriptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from evflow.cli.tidy import tidy

__all__ = ["gpu"]


@click.group()
def gpu() -> None:
    """Check and time matching on a CUDA device."""


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
    with tidy():
        for line in run(full=full, events=events, device=device):
            click.echo(line)
    if line != "0 wrong":
        raise SystemExit(1)


@gpu.command()
@click.option(
    "--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures here."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=540,
    show_default=True,
    help="Begin nothing more after so many.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the papers' sizes, 250,000 and 2,500,000 filters.",
)
@click.option("--events", type=click.IntRange(1), default=4096, show_default=True, help="Events a scenario.")
@click.option("--device", type=click.IntRange(0), default=0, show_default=True, help="Which device.")
def bench(file: Path | None, seconds: float, scale: float, events: int, device: int) -> None:  # fmt: skip
    """Time the engines on a device beside the CPU, and check each answer.

    Needs a card from Turing on, NVIDIA's driver and PyCUDA, and numba for the CPU's side: docs/gpu.md tells
    how to get them, also without internet. The exit code is 1 if an answer is wrong.
    """
    from evflow.gpu.bench import Bench

    run = Bench(device=device, scale=scale, events=events, seconds=seconds)
    with tidy():
        for line in run.run():
            click.echo(line)
            if file is not None:
                # After each step, so that a run that breaks off leaves what it has found.
                _write(file, run.report)
    if run.report["wrong"]:
        raise SystemExit(1)


def _write(file: Path, report: dict[str, Any]) -> None:
    try:
        file.write_text(json.dumps(report, indent=1) + "\n")
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from error
