"""Hosts: the file that says where the nodes of a graph are, and how to speak to them.

name = "office"     # who speaks to them; needed with keys
keys = "keys"       # the folder of keys, beside this file
plain = true        # or: no keys, and tcp beyond this host all the same

[hosts]
edge = "tcp://10.0.0.2:7000"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evflow.errors import DeployError, LinkError
from evflow.net.node.contact import Contact, node_name
from evflow.net.node.keyfile import checked_name
from evflow.outside import shown

_KNOWN = ("hosts", "keys", "name", "plain")
_EXAMPLE = '[hosts]\nedge = "tcp://10.0.0.2:7000"'
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Hosts:
    """Where the nodes of a graph are.

    Attributes:
        contacts: node → contact, in the order of the file.
        keys: the folder of keys, or None.
        name: the name of who speaks to them, or None for one that nobody else has.
        plain: whether tcp beyond this host may go without keys.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "hosts.toml")
        ...     _ = path.write_text('[hosts]\\nedge = "tcp://127.0.0.1:7000"')
        ...     Hosts.load(path).contacts
        {'edge': 'tcp://127.0.0.1:7000'}
    """

    contacts: dict[str, str]
    keys: Path | None = None
    name: str | None = None
    plain: bool = False

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Hosts:
        """Reads such a file.

        Raises:
            DeployError: it cannot be read, or is wrong; lists everything that is.
        """
        path = Path(path)
        data = _read(path)
        problems: list[str] = []
        contacts = _contacts(data, problems)
        keys = _text(data, "keys", problems, "the path of a folder")
        name = _text(data, "name", problems, "a name")
        plain = data.get("plain", False)
        if not isinstance(plain, bool):
            problems.append(f"plain = {shown(plain)}: expected true or false")
        if unknown := sorted(data.keys() - set(_KNOWN)):
            problems.append(f"{', '.join(unknown)}: not known; expected {', '.join(_KNOWN)}")
        problems += _names(contacts, name, keys)
        if problems:
            raise DeployError("\n".join(f"{path}: {problem}" for problem in problems))
        # Beside the file, from wherever it is read.
        return cls(contacts, None if keys is None else path.parent / keys, name, plain)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise DeployError(f"{path}: expected at most {_MOST_BYTES} bytes of hosts")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise DeployError(
            f"hosts file {path} cannot be read: {error.strerror}; it looks like\n{_EXAMPLE}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DeployError(f"{path} is not TOML: {error}; it looks like\n{_EXAMPLE}") from error


def _text(data: Mapping[str, Any], key: str, problems: list[str], what: str) -> str | None:
    value = data.get(key)
    if value is None or (isinstance(value, str) and value):
        return value
    problems.append(f"{key} = {shown(value)}: expected {what}, a text")
    return None


def _contacts(data: Mapping[str, Any], problems: list[str]) -> dict[str, str]:
    table = data.get("hosts")
    if not isinstance(table, dict) or not table:
        problems.append(f"expected a table of hosts, such as\n{_EXAMPLE}")
        return {}
    contacts: dict[str, str] = {}
    for name, text in table.items():
        try:
            node_name(name)
        except LinkError as error:
            problems.append(str(error))
        try:
            contact = str(Contact.parse(text))
        except LinkError as error:
            problems.append(f"host {name}: {error}")
            continue
        for other, known in contacts.items():
            if known == contact:
                problems.append(
                    f"hosts {other} and {name} have one contact, {contact}; a contact has one node"
                )
        contacts[name] = contact
    return contacts


def _names(contacts: Mapping[str, str], name: str | None, keys: str | None) -> list[str]:
    problems = []
    if name is not None and name in contacts:
        problems.append(
            f"name = {name!r} is one of the hosts; who speaks to them is a node too, and needs another name"
        )
    if keys is not None and name is None:
        problems.append(
            "keys without a name: add name = \"…\", and make its keys with 'evflow keygen' if there are none"
        )
    for each in contacts if keys is None else (*contacts, *filter(None, [name])):
        try:
            if keys is not None:
                checked_name(each)
        except LinkError as error:
            problems.append(f"{error}; with keys a name is that of a file")
    return problems
