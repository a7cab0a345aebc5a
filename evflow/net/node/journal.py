"""A file that keeps which frames were safe, so that a node that starts again knows what it has handled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evflow.disk import Store
from evflow.errors import FlowError, LinkError
from evflow.net.link.delivery import Gone, Paths
from evflow.net.link.provenance import Provenance
from evflow.outside import shown


class FileJournal:
    """The latest safe frame of each route: of a bridge and a route the stone and the path.

    Args:
        path: the file; made when there is something to write. Until ``close`` nobody else has it.

    Raises:
        LinkError: it cannot be used, or another has it; each method raises it too.
    """

    def __init__(self, path: Path) -> None:
        with _told():
            self._store = Store(path, "journal", "journal 1")

    def load(self) -> dict[tuple[str, str], list[Provenance]]:
        """By bridge and the stone that it leads to, the latest frame of each route."""
        found: dict[tuple[str, str], list[Provenance]] = {}
        with _told():
            for key, value in self._store.load().items():
                match key, value:
                    case (str(bridge), bytes(route)), [str(stone), [*path]] if _numbers(path):
                        found.setdefault((bridge, stone), []).append(Provenance(route, tuple(path)))
                    case _:
                        raise LinkError(f"the journal has {shown([key, value])}, which is not a frame")
        return found

    def save(self, safe: Paths, gone: Sequence[Gone]) -> None:
        """Forgets what is gone, then sets the paths of the latest safe frames."""
        kept = {(bridge, route): (stone, path) for (bridge, stone, route), path in safe.items()}
        self._save(dict.fromkeys(gone) | kept)

    def forget(self, stone: str) -> None:
        """Forgets what came for a stone."""
        with _told():
            known = self._store.load()
        self._save({key: None for key, (of, _) in known.items() if of == stone})

    def _save(self, values: dict[tuple[str, bytes], tuple[str, tuple[int, ...]] | None]) -> None:
        with _told():
            self._store.save(values)

    def close(self) -> None:
        """Closes the file."""
        self._store.close()


def _numbers(path: list[object]) -> bool:
    return all(type(number) is int for number in path)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except FlowError as error:
        raise LinkError(str(error)) from error
