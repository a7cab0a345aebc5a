"""The options of Spark's format ``evflow``: texts, as Spark hands them on, checked once and read by name."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from evflow.errors import EvflowError, LinkError, SparkError
from evflow.node.contact import Contact, named_contact
from evflow.node.keyfile import checked_name
from evflow.outside import shown

__all__ = ["Options"]

_OWN = ("contact", "stone", "jobid", "timeout", "keys", "name", "plain")
# Spark gives its own along.
_SPARKS = {"checkpointlocation", "queryname"}
_TRUTHS = {"true": True, "false": False}
_TIMEOUT = 60.0
_MOST_NAME = 100


@dataclass(frozen=True)
class Options:
    """What ``.option(…)`` said.

    Attributes:
        contact: where the node listens to which rows are sent, or from which events are read.
        peer: that node's name, where the contact gives it (``center=tcp://10.0.0.1:7000``), which keys need.
        stone: the stone there; on a daemon ``deployment/stone``.
        jobid: what the job is called by those who run it: a job that is run again sends nothing.
        timeout: seconds without progress after which a task, or the job, fails.
        keys: the folder of keys on each executor; None for plain connections.
        name: what the nodes of the tasks are called; with keys, what the names of their keys begin with.
        plain: whether contacts beyond the host may be used without keys.
    """

    contact: str
    stone: str
    peer: str = ""
    jobid: str = ""
    timeout: float = _TIMEOUT
    keys: str | None = None
    name: str = "spark"
    plain: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], also: Collection[str] = ()) -> Options:
        """The options as values; upper and lower case in their names are one.

        Args:
            options: as Spark hands them on.
            also: names of further options, that somebody else reads.

        Raises:
            SparkError: one is missing, not known, or has a value that it cannot have; names it.
        """
        given = {name.lower(): value for name, value in options.items()}
        _check_names(given, also)
        peer, contact = _contact(_needed(given, "contact", "tcp://10.0.0.1:7000"))
        keys = given.get("keys")
        if keys is not None and not peer:
            raise SparkError(
                f"option 'contact' {contact!r}: with keys expected NAME=CONTACT, where NAME.pub is the key "
                "of that node"
            )
        name = _name(given.get("name", "spark"), keys)
        plain = given.get("plain", "false").lower()
        if plain not in _TRUTHS:
            raise SparkError(f"option 'plain' {given['plain']!r}: expected true or false")
        return cls(
            contact=contact,
            stone=_needed(given, "stone", "flights"),
            peer=peer,
            jobid=given.get("jobid", ""),
            timeout=_seconds(given.get("timeout", str(_TIMEOUT))),
            keys=keys,
            name=name,
            plain=_TRUTHS[plain],
        )

    @property
    def there(self) -> str:
        """The node as bridges and questions name it: a peer's name, or its contact."""
        return self.peer or self.contact


def _check_names(given: Mapping[str, str], also: Collection[str]) -> None:
    known = [*_OWN, *also]
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


def _needed(given: Mapping[str, str], name: str, example: str) -> str:
    if not given.get(name):
        raise SparkError(f"option {name!r} is missing; add .option({name!r}, …), for instance {example!r}")
    return given[name]


def _contact(text: str) -> tuple[str, str]:
    """(name or "", contact) of CONTACT or NAME=CONTACT."""
    name, contact = named_contact(text)
    try:
        return ("" if name == contact else name), str(Contact.parse(contact))
    except LinkError as error:
        raise SparkError(f"option 'contact': {error}") from None


def _name(text: str, keys: str | None) -> str:
    """What nodes are called; with keys it is the beginning of the names of files."""
    if keys is not None and "\0" in keys:
        raise SparkError(f"option 'keys' {shown(keys)}: expected a folder's name")
    try:
        found = text if keys is None else checked_name(text)
    except EvflowError as error:
        raise SparkError(f"option 'name': {error}") from None
    if len(found) > _MOST_NAME or "://" in found:
        raise SparkError(
            f"option 'name' {shown(text)}: expected a name, a text of up to {_MOST_NAME} characters without "
            "'://'"
        )
    return found


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise SparkError(f"option 'timeout' {text!r}: expected seconds, more than 0 and up to 86400")
    return seconds
