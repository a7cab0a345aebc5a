"""Which nodes a command asks: contacts, or a file of hosts."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from evflow.deploy.hosts import Hosts
from evflow.errors import LinkError
from evflow.node.contact import named_contact
from evflow.watch.contract import Client
from evflow.watch.diagnosis import diagnose, probe
from evflow.watch.status import LinkStatus
from evflow.watch.survey import Place

__all__ = ["Asked", "asked", "hosts_option", "open_client", "speaking"]

_F = TypeVar("_F", bound=Callable[..., Any])
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIR = click.Path(file_okay=False, path_type=Path)

hosts_option = click.option("--hosts", type=_FILE, help="A TOML file that says where nodes are.")


def open_client(contact: str, **settings: Any) -> AbstractContextManager[Client]:
    """A connection to a node; see ``evflow.deploy.client.Client``."""
    from evflow.deploy.client import Client as Connection

    return Connection(contact, **settings)


@dataclass(frozen=True)
class Asked:
    """The nodes that a command was told, and how to speak to them.

    Attributes:
        contacts: texts CONTACT or NAME=CONTACT.
        hosts: the file of hosts, if one was given.
        settings: name, keys, plain, timeout; see ``evflow.deploy.client.Client``.
    """

    contacts: tuple[str, ...]
    hosts: Hosts | None
    settings: Mapping[str, Any]

    def places(self) -> list[Place]:
        """The nodes.

        Raises:
            click.UsageError: there is none.
            LinkError: there is no host of a name.
        """
        texts = [self._found(text) for text in self.contacts]
        if self.hosts is not None:
            texts += [f"{name}={contact}" for name, contact in self.hosts.contacts.items()]
        if not texts:
            raise click.UsageError("say which nodes: CONTACT…, such as tcp://10.0.0.2:7000, or --hosts FILE")
        return [self._place(text) for text in dict.fromkeys(texts)]

    def client(self, text: str) -> AbstractContextManager[Client]:
        """A connection to one node: a name in the file of hosts, CONTACT, or NAME=CONTACT.

        Raises:
            LinkError: there is no host of that name; or nothing answers there, and then it says what was
                tried, from where, and what to check.
        """
        place = self._place(self._found(text))
        try:
            return place.open()
        except LinkError as error:
            report = LinkStatus("down", str(error), place.contact)
            tried = probe(place.contact)
            raise LinkError(
                str(diagnose("", place.name, report, host=socket.gethostname(), probe=tried))
            ) from error

    def _found(self, text: str) -> str:
        """A name in the file of hosts with its contact; another text as it is."""
        if self.hosts is None or "://" in text:
            return text
        if text not in self.hosts.contacts:
            from evflow.choices import choices

            there = choices(text, list(self.hosts.contacts))
            raise LinkError(f"host {text!r} is not in the file of hosts{there}")
        return f"{text}={self.hosts.contacts[text]}"

    def _place(self, text: str) -> Place:
        name, contact = named_contact(text)
        return Place(name, contact, functools.partial(open_client, text, **self.settings))


def speaking(function: _F) -> _F:
    """The options of how to speak to nodes; the command gets ``asked``, an ``Asked``."""

    @functools.wraps(function)
    def command(
        *arguments: Any,
        contacts: tuple[str, ...] = (),
        hosts: Path | None,
        name: str | None,
        keys: Path | None,
        plain: bool,
        timeout: float,
        **options: Any,
    ) -> Any:
        from evflow.cli.tidy import tidy

        with tidy():
            file = None if hosts is None else Hosts.load(hosts)
            settings = {
                "name": name if name is not None or file is None else file.name,
                "keys": keys if keys is not None or file is None else file.keys,
                "plain": plain or (file is not None and file.plain),
                "timeout": timeout,
            }
            return function(*arguments, asked=Asked(contacts, file, settings), **options)

    for option in (
        click.option("--timeout", type=click.FloatRange(0.1), default=5.0, show_default=True,
                     help="Seconds to wait for a node."),
        click.option("--plain", is_flag=True, help="Let tcp go beyond this host without keys."),
        click.option("--keys", type=_DIR, help="The folder of keys that evflow keygen fills."),
        click.option("--name", help="The name of this end; with keys, that of its key."),
        hosts_option,
    ):  # fmt: skip
        command = option(command)
    return command  # type: ignore[return-value]


def asked(function: _F) -> _F:
    """Arguments and options of a command that asks several nodes; see ``speaking``."""
    return click.argument("contacts", metavar="[CONTACT]...", nargs=-1)(speaking(function))
