"""Looking for channels by name at other processes, until they answer."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Search"]


class Search:
    """What one process is looking for.

    Attributes:
        answers: (process, name) → the key of the channel it has of that name, or "" and why there is none.
    """

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[str, str]] = {}
        self._asked: set[tuple[str, str]] = set()
        self._invited: set[str] = set()

    def begin(self, process: str, name: str) -> None:
        """Asks a process for a channel."""
        self.answers.pop((process, name), None)
        self._asked.add((process, name))

    def end(self, process: str, name: str) -> None:
        """Asks no more."""
        self._asked.discard((process, name))

    def open(self) -> Iterator[tuple[str, str]]:
        """What has no answer yet: processes and names."""
        return iter(sorted(self._asked))

    def invited(self, key: str) -> bool:
        """Whether a channel was found, and is to be opened."""
        return key in self._invited

    def here(self, process: str, name: str, key: str) -> None:
        """A process has the channel; all that is known of it follows."""
        if (process, name) in self._asked:
            self._invited.add(key)

    def absent(self, process: str, name: str, reason: str) -> None:
        """A process has no such channel."""
        if (process, name) in self._asked:
            self._asked.discard((process, name))
            self.answers[process, name] = ("", reason)

    def opened(self, process: str, key: str, name: str) -> None:
        """This process takes part in a channel of which another has told it."""
        if key in self._invited:
            self._invited.discard(key)
            for asked in [(process, key), (process, name)]:
                if asked in self._asked:
                    self._asked.discard(asked)
                    self.answers[asked] = (key, "")
