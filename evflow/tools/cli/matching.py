"""Commands about subscriptions: ``match explain``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evflow.errors import SubscriptionError

if TYPE_CHECKING:
    from evflow.matching.matcher import Matcher

_DIGITS = 10
"""Digits that an integer among ids may have."""
_PATH = click.Path(exists=True, path_type=Path)


@click.group()
def match() -> None:
    """Look at subscriptions of a matcher."""


@match.command()
@click.argument("subscriptions", type=_PATH)
@click.argument("event")
@click.option("--id", "ids", multiple=True, help="Which subscription; may be given several times.")
@click.option(
    "--space", type=click.Choice(["plane", "globe"]), default="plane", show_default=True,
    help="Where the areas of a file of text are.",
)  # fmt: skip
@click.option(
    "--location", metavar="X Y", nargs=2, default=None,
    help="The attributes that say where an event happened, for a file of text.",
)  # fmt: skip
def explain(
    subscriptions: Path, event: str, ids: tuple[str, ...], space: str, location: tuple[str, str] | None
) -> None:
    """Say why an event satisfies subscriptions, or why not.

    SUBSCRIPTIONS is a file with one a line, as ev.Match(file=) takes it, or the folder of a saved matcher.
    EVENT is a JSON object, such as '{"carrier": "UA", "delay": 50}'. Without --id all subscriptions are
    explained that the event satisfies; the exit code is 1 if there are none, or if one that was asked for
    does not match. An ID is a text that a subscription has, or else an integer.
    """
    from evflow.outside import Malformed, from_json

    try:
        read = from_json(event)
    except Malformed as error:
        raise click.BadParameter(str(error), param_hint="EVENT") from None
    if not isinstance(read, Mapping):
        raise click.BadParameter("expected a JSON object, such as '{\"delay\": 50}'", param_hint="EVENT")
    matcher = _matcher(subscriptions, space, location)
    chosen = [int(id) if id.isdecimal() and len(id) <= _DIGITS and id not in matcher else id for id in ids]
    found: list[Any] = [matcher.explain(read, id) for id in chosen] if ids else matcher.explain(read)
    for one in found:
        click.echo(one)
    if not found:
        click.echo(f"the event satisfies none of {len(matcher)} subscriptions; --id ID says why not")
    if not found or not all(one.holds for one in found):
        raise SystemExit(1)


def _matcher(path: Path, space: str, location: tuple[str, str] | None) -> Matcher:
    from evflow.matching.matcher import Matcher
    from evflow.stones.matching.listed import Listing, columns_of_listed, numbered

    if path.is_dir():
        if location is not None:
            raise SubscriptionError(f"{path}: a saved matcher has its own location; leave out --location")
        return Matcher.load(path)
    matcher, many = Matcher("reference", space=space, location=location, lookup=True), Listing()
    many.read(path)
    ids = numbered(many, (1 << 31) - 1)
    matcher.subscribe_many(columns_of_listed(many, space), ids, texts=many.named)
    return matcher
