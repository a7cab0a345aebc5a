"""``evflow doctor``: what is wrong with this host, its keys, its ports, its peers."""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterator
from pathlib import Path

import click

from evflow.cli.asking import open_client
from evflow.cli.tidy import flagged, tidy
from evflow.report import plain
from evflow.watch.diagnosis import probe
from evflow.watch.doctor import Check, Finding, checked, host_checks, listen_check, verdict

__all__ = ["doctor"]

_COLOURS = {"ok": "green", "note": None, "warning": "yellow", "wrong": "red"}


@click.command()
@click.option("--listen", metavar="CONTACT", multiple=True, help="Could a node listen there?")
@click.option(
    "--peer",
    "peers",
    metavar="NAME=CONTACT",
    multiple=True,
    help="Can that node be reached, and does it let this one in?",
)
@click.option(
    "--keys", type=click.Path(file_okay=False, path_type=Path), help="Are the keys in this folder right?"
)
@click.option("--name", help="With --peer and --keys: whose key to use; no node that runs now.")
@click.option("--plain", "bare", is_flag=True, help="Let tcp go beyond this host without keys.")
@click.pass_context
def doctor(
    context: click.Context,
    listen: tuple[str, ...],
    peers: tuple[str, ...],
    keys: Path | None,
    name: str | None,
    bare: bool,
) -> None:
    """Find out what is wrong with this host, key, port or clock.

    Without options it checks the host. To try the link to a peer that wants keys, it needs a key of its own:
    evflow keygen doctor, and doctor.pub among the keys of the peer. The exit code is 1 if anything is wrong.
    """
    with tidy():
        pairs = [_pair(text) for text in peers]
        findings: list[Finding] = []
        for about, check in _checks(listen, pairs, keys, name, bare):
            found = checked(about, check)
            findings += found
            for finding in found:
                _echo(finding)
    if verdict(findings) == "wrong":
        context.exit(1)


def _pair(text: str) -> tuple[str, str]:
    name, equals, contact = text.partition("=")
    if not equals or not name or "://" in name:
        raise click.UsageError(f"--peer {text}: expected NAME=CONTACT, such as office=tcp://10.0.0.1:7000")
    return name, contact


def _checks(
    listen: tuple[str, ...], peers: list[tuple[str, str]], keys: Path | None, name: str | None, bare: bool
) -> Iterator[tuple[str, Check]]:
    yield from host_checks().items()
    if keys is not None:
        from evflow.watch.doctor_links import keys_check

        yield "keys", functools.partial(keys_check, keys, name)
    for text in listen:
        yield text, functools.partial(_listen, text, keys, bare)
    for peer, contact in peers:
        yield peer, functools.partial(_peer, peer, contact, keys, name, bare)


def _listen(text: str, keys: Path | None, bare: bool) -> list[Finding]:
    return [listen_check(text, keys is not None, bare)]


def _peer(peer: str, contact: str, keys: Path | None, name: str | None, bare: bool) -> Iterator[Finding]:
    """What there is to find of a peer, each only if what it needs is right."""
    from evflow.watch.doctor_links import clock_check, hello_check, peer_check

    here = socket.gethostname()
    reached = peer_check(peer, contact, probe, here)
    yield reached
    if reached.level != "ok":
        return
    if keys is not None and name is None:
        yield Finding(
            f"link to {peer}", "note", "not tried: with keys a node needs a name",
            "give --name NAME, where NAME.key is in the folder and no node of that name runs",
        )  # fmt: skip
        return
    greeted = hello_check(peer, contact, name=name, keys=keys, plain=bare, here=here)
    yield greeted
    if greeted.level == "ok":
        settings = {"name": name, "keys": keys, "plain": bare, "timeout": 3.0}
        yield clock_check(peer, functools.partial(open_client, f"{peer}={contact}", **settings))


def _echo(finding: Finding) -> None:
    level = click.style(finding.level.ljust(7), fg=_COLOURS.get(finding.level))
    click.echo(
        f"{level}  {plain(finding.about)}: " + "\n".join(map(plain, flagged(finding.text).split("\n")))
    )
    for line in flagged(finding.advice).split("\n") if finding.advice else ():
        click.echo(f"         → {plain(line)}")
