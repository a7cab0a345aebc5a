"""Commands about tiles: ``map`` and ``balance``."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from evflow.tools.cli.deploying import handle_of
from evflow.tools.cli.options import Asked, keys_option, plain_option, speaking


@click.group()
def tiles() -> None:
    """Look at location publish/subscribe systems, and balance them."""


@tiles.command("map")
@click.argument("contact")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Its port.")
@click.option(
    "--origin", "origins", metavar="URL", multiple=True,
    help="Another address that browsers use, as of a proxy: https://map.example.",
)  # fmt: skip
@click.option(
    "--where", metavar="NAME=VALUE", multiple=True,
    help="Show only publications with this attribute; VALUE is JSON, or text.",
)  # fmt: skip
@click.option(
    "--view", type=(float, float, float), default=(25.0, 0.0, 2.0), metavar="LATITUDE LONGITUDE ZOOM",
    help="What the page shows first; zoom is that of web maps.",
)  # fmt: skip
@click.option("--name", help="The name of this end; with keys, that of its key.")
@keys_option
@plain_option
def map_(
    contact: str,
    host: str,
    port: int,
    origins: tuple[str, ...],
    where: tuple[str, ...],
    view: tuple[float, float, float],
    name: str | None,
    keys: Path | None,
    plain: bool,
) -> None:
    """Serve a live map to browsers, until Ctrl-C or SIGTERM.

    CONTACT is that of a client: tcp://10.0.0.1:7000/tiles/a. Whoever reaches the address that it listens at
    sees the map, and may add areas.
    """
    from evflow.tiles import Map

    node: dict[str, Any] = {"keys": keys, "plain": plain} | ({"name": name} if name else {})
    attributes = dict(_attribute(text) for text in where)
    with Map(contact, attributes, host=host, port=port, origins=origins, view=view, **node) as served:
        click.echo(f"The map is at {served.url}; Ctrl-C ends it.")
        # So that its subscriptions are deleted then, too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # In short waits, since a signal that comes just before a wait does not end it.
        while not threading.Event().wait(0.5):
            pass


@tiles.command()
@click.argument("deployment", default="tiles")
@click.option(
    "--most", type=float, default=300.0, show_default=True,
    help="With how many zones a move may be compared, on average.",
)  # fmt: skip
@click.option(
    "--within", type=click.FloatRange(1), default=120.0, show_default=True,
    help="Seconds that all of it may take.",
)  # fmt: skip
@speaking
def balance(deployment: str, most: float, within: float, asked: Asked) -> None:
    """Split tiles with many zones and join those with few, while events flow.

    Prints how many tiles are split now. Call it from time to time: where nothing has to change it changes
    nothing.
    """
    from evflow.tiles import balance

    with handle_of(deployment, asked) as handle:
        click.echo(f"{balance(handle, most=most, timeout=within)} tiles are split")


def _attribute(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--where {text}: expected NAME=VALUE, such as kind=taxi")
    with suppress(ValueError):
        return name, json.loads(value)
    return name, value
