"""The bar that shows how far the demo has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import evflow as ev

__all__ = ["Progress", "progress_bar"]

Progress = Callable[[int], object]


@contextmanager
def progress_bar(total: int, quiet: bool) -> Iterator[Progress]:
    """What to call with the number of flights that are done; nothing is shown where ``quiet``.

    Raises:
        EvflowError: the package that draws it is not installed; says how to get it.
    """
    if quiet:
        yield lambda count: None
        return
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
    except ImportError:
        raise ev.EvflowError(
            "the demo needs the package rich, which is not installed: pip install 'evflow[demo]'"
        ) from None
    with Bar(TextColumn("flights"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task("flights", total=total)
        yield lambda count: bar.advance(task, count)
