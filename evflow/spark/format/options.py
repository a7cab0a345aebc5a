"""The options of Spark's format ``evflow``: texts, as Spark hands them on, checked once and read by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evflow.errors import EvflowError, LinkError, SparkError
from evflow.net.node.contact import Contact, named_contact
from evflow.net.node.keyfile import checked_name
from evflow.outside import shown

EARLIEST, LATEST = "earliest", "latest"

# Spark gives its own along.
_SPARKS = {"checkpointlocation", "queryname"}
_TRUTHS = {"true": True, "false": False}
_MOST_NAME = 100
_DIGITS = 19


@dataclass(frozen=True)
class Options:
    """What ``.option(…)`` said.

    Attributes:
        contact: where the node listens to which rows are sent, or from which events are read.
        stone: the stone there; on a daemon ``deployment/stone``.
        peer: that node's name, where the contact gives it (``center=tcp://10.0.0.1:7000``), which keys need.
        jobid: what the job is called by those who run it: a job that is run again sends nothing.
        timeout: seconds without progress after which a task, or the job, fails.
        keys: the folder of keys on each executor; None for plain connections.
        name: what the nodes of the tasks are called; with keys, what the names of their keys begin with.
        plain: whether contacts beyond the host may be used without keys.
        first, last: a batch read's offsets, or ``earliest`` or ``latest``; options ``from`` and ``to``.
        start: likewise, where a query without a checkpoint begins; option ``startingOffset``.
        most_rows: rows of a micro-batch that is read, at most; option ``maxRowsPerTrigger``.
        partitions: tasks of a read; None for as many as its bytes ask for.
        query: what the sink knows a query by; "" for a random name.
    """

    contact: str
    stone: str
    peer: str = ""
    jobid: str = ""
    timeout: float = 60.0
    keys: str | None = None
    name: str = "spark"
    plain: bool = False
    first: int | str = EARLIEST
    last: int | str = LATEST
    start: int | str = EARLIEST
    most_rows: int | None = None
    partitions: int | None = None
    query: str = ""

    @classmethod
    def parse(cls, options: Mapping[str, str], reads: bool = False) -> Options:
        """The options as values; upper and lower case in their names are one.

        Args:
            options: as Spark hands them on.
            reads: whether they are those of a read, which has more of them.

        Raises:
            SparkError: one is missing, not known, or has a value that it cannot have; names it.
        """
        given = {name.lower(): value for name, value in options.items()}
        _check_names(given, [*_WRITES, *(_READS if reads else ())])
        for name, example in (("contact", "tcp://10.0.0.1:7000"), ("stone", "flights")):
            if not given.get(name):
                raise SparkError(
                    f"option {name!r} is missing; add .option({name!r}, …), for instance {example!r}"
                )
        values = {}
        for name, (field, read) in (_WRITES | _READS).items():
            if name.lower() in given:
                values[field] = read(name, given[name.lower()])
        peer, contact = values.pop("contact")
        found = cls(contact=contact, peer=peer, **values)
        found._check_keys()
        return found

    def _check_keys(self) -> None:
        if self.keys is None:
            return
        if "\0" in self.keys:
            raise SparkError(f"option 'keys' {shown(self.keys)}: expected a folder's name")
        try:
            # It is the beginning of the names of files.
            checked_name(self.name)
        except EvflowError as error:
            raise SparkError(f"option 'name': {error}") from None
        if not self.peer:
            raise SparkError(
                f"option 'contact' {self.contact!r}: with keys expected NAME=CONTACT, where NAME.pub is the "
                "key of that node"
            )

    @property
    def there(self) -> str:
        """The node as questions name it: a peer's name, or its contact."""
        return self.peer or self.contact


def _check_names(given: Mapping[str, str], known: list[str]) -> None:
    for name, value in given.items():
        if name == "path":
            raise SparkError(
                f"path {value!r}: format evflow has none; say where rows go with option('contact', …) and "
                "option('stone', …), and call save() and load() without a path"
            )
        if name not in _SPARKS and name not in {one.lower() for one in known}:
            close = difflib.get_close_matches(name, known, 1)
            meant = f"; is {close[0]!r} meant?" if close else ""
            raise SparkError(f"option {name!r} is not known: expected {', '.join(sorted(known))}{meant}")


def _text(name: str, text: str) -> str:
    return text


def _contact(name: str, text: str) -> tuple[str, str]:
    """(name or "", contact) of CONTACT or NAME=CONTACT."""
    peer, contact = named_contact(text)
    try:
        return ("" if peer == contact else peer), str(Contact.parse(contact))
    except LinkError as error:
        raise SparkError(f"option {name!r}: {error}") from None


def _name(name: str, text: str) -> str:
    if len(text) > _MOST_NAME or "://" in text:
        raise SparkError(
            f"option {name!r} {shown(text)}: expected a name, a text of up to {_MOST_NAME} characters "
            "without '://'"
        )
    return text


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise SparkError(f"option {name!r} {text!r}: expected seconds, more than 0 and up to 86400")
    return seconds


def _truth(name: str, text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise SparkError(f"option {name!r} {text!r}: expected true or false")
    return _TRUTHS[text.lower()]


def _offset(name: str, text: str) -> int | str:
    found = text.strip().lower()
    if found in (EARLIEST, LATEST):
        return found
    number = _whole(found)
    if number is None:
        raise SparkError(f"option {name!r} {shown(text)}: expected an offset, {EARLIEST!r} or {LATEST!r}")
    return number


def _number(name: str, text: str) -> int:
    found = _whole(text.strip())
    if not found:
        raise SparkError(f"option {name!r} {shown(text)}: expected a number of 1 or more")
    return found


def _whole(text: str) -> int | None:
    # Python reads no numbers of thousands of digits.
    return int(text) if text.isdecimal() and len(text) < _DIGITS else None


_Known = dict[str, tuple[str, Callable[[str, str], Any]]]

_WRITES: _Known = {
    "contact": ("contact", _contact),
    "stone": ("stone", _text),
    "jobid": ("jobid", _text),
    "timeout": ("timeout", _seconds),
    "keys": ("keys", _text),
    "name": ("name", _name),
    "plain": ("plain", _truth),
}
"""The field of each option, and what reads its text."""

_READS: _Known = {
    "from": ("first", _offset),
    "to": ("last", _offset),
    "startingOffset": ("start", _offset),
    "maxRowsPerTrigger": ("most_rows", _number),
    "partitions": ("partitions", _number),
    "query": ("query", _text),
}
"""The same for the further options of reads."""
