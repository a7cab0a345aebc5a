"""What one process knows of the others: when they were heard, and what it looks for at them."""

from __future__ import annotations

from collections.abc import Iterator, Set

_NEVER = -1e9
_LONGEST_AGE = 1 << 31


class Presence:
    """What one process knows of the others as such.

    Args:
        silence: seconds after which a process that was not heard is not waited for.

    Attributes:
        contacts: process → where it can be dialled.
    """

    def __init__(self, silence: float) -> None:
        self.contacts: dict[str, str] = {}
        self._silence = silence
        self._heard: dict[str, float] = {}
        self._incarnations: dict[str, int] = {}

    def hear(self, process: str, now: float) -> None:
        """A process has said something."""
        self._heard[process] = now

    def hear_of(self, process: str, contact: str, age: int, now: float) -> None:
        """Somebody knows a process, and heard it ``age`` milliseconds ago."""
        if contact:
            self.contacts[process] = contact
        self._heard[process] = max(self._heard.get(process, _NEVER), now - age / 1000)

    def meet(self, process: str, incarnation: int) -> None:
        """A process has said which incarnation it is."""
        self._incarnations[process] = max(incarnation, self._incarnations.get(process, 0))

    def keep(self, processes: Set[str]) -> None:
        """Forgets all other processes."""
        for known in (self.contacts, self._heard, self._incarnations):
            for name in known.keys() - processes:
                del known[name]

    def outdated(self, process: str, incarnation: int) -> bool:
        """True if a process was started again after an incarnation."""
        return incarnation < self._incarnations.get(process, 0)

    def alive(self, process: str, now: float) -> bool:
        """True if a process was heard lately."""
        return now - self._heard.get(process, _NEVER) <= self._silence

    def silent(self, process: str, now: float) -> float:
        """Seconds since a process was heard; 0.0 if it never was."""
        return max(0.0, now - self._heard.get(process, now))

    def age(self, process: str, now: float) -> int:
        """Milliseconds since it was heard."""
        return min(int(self.silent(process, now) * 1000), _LONGEST_AGE)


class Search:
    """The channels that one process looks for by name at others, until they answer.

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
        """True if a channel was found, and is to be opened."""
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
