"""How a demo gives out what it found: as text or as one JSON object, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

__all__ = ["publish"]


def publish(
    result: Any,
    tell: Callable[[], object],
    draw: Callable[[Path], object],
    *,
    as_json: bool,
    picture: Path | None,
    default: str,
    caption: str,
) -> None:
    """Prints a result and draws its picture.

    Args:
        result: a dataclass.
        tell: prints it as text.
        draw: draws the picture to a file.
        as_json: print one JSON object and nothing else.
        picture: where to draw to; without, ``default``, or nowhere with ``as_json``.
        default: a file here.
        caption: what the picture is.
    """
    if as_json:
        click.echo(json.dumps(asdict(result)))
    else:
        tell()
        picture = picture or Path(default)
    if picture is not None:
        draw(picture)
        if not as_json:
            click.echo(f"\n{caption}: {picture.resolve()}")
