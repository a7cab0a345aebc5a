"""``evflow gpu``: what a CUDA device does with subscriptions."""

from __future__ import annotations

import click

from evflow.cli.tidy import tidy

__all__ = ["gpu"]


@click.group()
def gpu() -> None:
    """Check matching on a CUDA device."""


@gpu.command()
@click.option("--full", is_flag=True, help="At the papers' size: 250,000 and 2,500,000 filters.")
@click.option("--events", type=click.IntRange(1), default=50, show_default=True, help="Events a scenario.")
@click.option("--device", type=click.IntRange(0), default=0, show_default=True, help="Which device.")
def selftest(full: bool, events: int, device: int) -> None:
    """Compare the engines on a device with the CPU, and time each step there."""
    from evflow.gpu.selftest import selftest as run

    line = ""
    with tidy():
        for line in run(full=full, events=events, device=device):
            click.echo(line)
    if line != "0 wrong":
        raise SystemExit(1)
