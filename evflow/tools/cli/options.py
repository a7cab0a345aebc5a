"""What commands share: parameters, the nodes that a command asks, errors as a shell shows them."""

from __future__ import annotations

import errno
import functools
import re
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evflow.disk import advice
from evflow.errors import CodeError, EvflowError, GraphError, LinkError

if TYPE_CHECKING:
    from evflow.deploy.client import Client
    from evflow.deploy.hosts import Hosts
    from evflow.tools.watch.survey import Place

_F = TypeVar("_F", bound=Callable[..., Any])

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
DIR = click.Path(file_okay=False, path_type=Path)
OUT = click.Path(dir_okay=False, path_type=Path)

hosts_option = click.option("--hosts", type=FILE, help="A TOML file that says where nodes are.")
keys_option = click.option("--keys", type=DIR, help="The folder of keys that evflow keygen fills.")
plain_option = click.option("--plain", is_flag=True, help="Let tcp go beyond this host without keys.")
graph_option = click.option(
    "--graph", metavar="NAME", help="The graph's name, or its variable's; needed if FILE makes several."
)
log_format = click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="The form of the log; json is an object a line.",
)  # fmt: skip


class NamedContact(click.ParamType):  # type: ignore[type-arg]
    """NAME=CONTACT, as a pair."""

    name = "NAME=CONTACT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The name and the contact."""
        name, equals, contact = value.partition("=")
        if not equals or not name or "://" in name:
            self.fail(f"{value}: expected NAME=CONTACT, such as office=tcp://10.0.0.1:7000", param, ctx)
        return name, contact


# --- errors

_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_NAMED = {"run": "--node NAME", "node": "NAME as the first argument"}
_IN_FLAGS = (
    (r"\bkeys=([A-Z]+)\b", r"--keys \1"),
    (r"\bsay (plain|replace)=True\b", r"say --\1"),
    (r"\bgive it with peers=", "give it with --peer"),
    (r"\bgraph\.run\(node=ev\.Node\(\)\)", "--node NAME"),
    (
        r"run the graph with node=ev\.Node\(peers=\{'([^']*)': CONTACT\}\)",
        r"give --node NAME --peer \1=CONTACT",
    ),
    (r"change it with its handle, take it down with undeploy", "use evflow change or evflow undeploy"),
)
"""What errors tell a program to do, and what that is at the command line."""


class Main(click.Group):
    """A group whose commands end with an error of evflow as a text and exit code 1, without a traceback, and
    with Ctrl-C as exit code 130.

    Where the error is one of a function in the user's file, ``meta["evflow.file"]`` of the context, its line
    of that file is told.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except EvflowError as error:
            problems = error.problems if isinstance(error, GraphError) else ()
            text = str(error)
            if len(problems) > 1:
                text = "\n\n".join([f"{len(problems)} problems", *problems])
            file = ctx.meta.get("evflow.file")
            told = flagged(text, _NAMED.get(ctx.invoked_subcommand or "", "--name NAME"))
            if isinstance(error, CodeError) and file is not None:
                from evflow.tools.cli.program import where

                told = where(file, error) + told
            raise click.ClickException(told) from error
        except OSError as error:
            # What is printed goes to a file without a name; an error of any other file has one.
            if error.filename is not None or error.errno not in _UNWRITTEN:
                raise
            why = f"the output cannot be written: {error.strerror}; {advice(error)}"
            raise click.ClickException(why) from error
        except KeyboardInterrupt:
            raise SystemExit(130) from None


def flagged(text: str, named: str = "--name NAME") -> str:
    """An error's text that names flags of the command line where it has named arguments of functions.

    Args:
        text: the error's.
        named: how the command is told the name of this end.
    """
    for argument, flag in ((r"\bname=NAME\b", named), *_IN_FLAGS):
        text = re.sub(argument, flag, text)
    return text


# --- nodes


def open_client(contact: str, **settings: Any) -> AbstractContextManager[Client]:
    """A connection to a node; see ``evflow.deploy.client.Client``."""
    from evflow.deploy.client import Client

    return Client(contact, **settings)


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
        names = () if self.hosts is None else self.hosts.contacts
        if not self.contacts and not names:
            raise click.UsageError("say which nodes: CONTACT…, such as tcp://10.0.0.2:7000, or --hosts FILE")
        texts = [self._found(text) for text in (*self.contacts, *names)]
        return [self._place(text) for text in dict.fromkeys(texts)]

    def client(self, text: str) -> AbstractContextManager[Client]:
        """A connection to one node: a name in the file of hosts, CONTACT, or NAME=CONTACT.

        Raises:
            LinkError: there is no host of that name; or nothing answers there, and then it says what was
                tried, from where, and what to check.
        """
        from evflow.tools.watch.diagnosis import diagnose, probe
        from evflow.tools.watch.status import LinkStatus

        place = self._place(self._found(text))
        try:
            return place.open()
        except LinkError as error:
            report, tried = LinkStatus("down", str(error), place.contact), probe(place.contact)
            found = diagnose("", place.name, report, host=socket.gethostname(), probe=tried)
            raise LinkError(str(found)) from error

    def _found(self, text: str) -> str:
        """A name in the file of hosts with its contact; another text as it is."""
        if "://" in text:
            return text
        if self.hosts is None:
            raise LinkError(
                f"{text!r} is not a contact such as tcp://10.0.0.1:7000; to give a node by its name, add "
                "--hosts FILE with a file of hosts that has it"
            )
        if text not in self.hosts.contacts:
            from evflow.choices import choices

            there = choices(text, list(self.hosts.contacts))
            raise LinkError(f"host {text!r} is not in the file of hosts{there}")
        return f"{text}={self.hosts.contacts[text]}"

    def _place(self, text: str) -> Place:
        from evflow.net.node.contact import named_contact
        from evflow.tools.watch.survey import Place

        return Place(*named_contact(text), functools.partial(open_client, text, **self.settings))


def speaking(function: _F) -> _F:
    """The options of how to speak to nodes; the command gets ``asked``, an ``Asked``."""

    @click.option(
        "--timeout",
        type=click.FloatRange(0.1),
        default=5.0,
        show_default=True,
        help="Seconds to wait for a node.",
    )
    @plain_option
    @keys_option
    @click.option("--name", help="The name of this end; with keys, that of its key.")
    @hosts_option
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
        from evflow.deploy.hosts import Hosts

        file = None if hosts is None else Hosts.load(hosts)
        if file is not None:
            name, keys, plain = name or file.name, keys or file.keys, plain or file.plain
        settings = {"name": name, "keys": keys, "plain": plain, "timeout": timeout}
        return function(*arguments, asked=Asked(contacts, file, settings), **options)

    return command  # type: ignore[return-value]


def asked(function: _F) -> _F:
    """Arguments and options of a command that asks several nodes; see ``speaking``."""
    return click.argument("contacts", metavar="[CONTACT]...", nargs=-1)(speaking(function))
