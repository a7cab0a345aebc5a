"""``evflow keygen``: a node's pair of keys, and what to do with them."""

from __future__ import annotations

from pathlib import Path

import click

from evflow.node.keyfile import generate

__all__ = ["make_keys"]


def make_keys(folder: Path, name: str) -> None:
    """Makes a pair of keys for a node and prints what each is for.

    Raises:
        LinkError: the name is not one, the node has a key already, or the files cannot be written.
    """
    secret, public = generate(folder, name)
    click.echo(f"{secret}  the secret key of {name}: it stays on the host of {name}")
    click.echo(
        f"{public}  its public key: copy it into the folder of keys of every node that {name} talks to"
    )
    click.echo(f"The .pub of each of those nodes goes into {folder} on the host of {name}.")
