"""Doctor: checks of keys, and of whether a peer can be reached: its name, its port, its node, its clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import zmq

from evflow.errors import EvflowError, LinkError
from evflow.node.keyfile import key_paths, read_public, read_secret, stamp_of
from evflow.node.node import Node
from evflow.watch.contract import Opener
from evflow.watch.diagnosis import Probe, diagnose
from evflow.watch.doctor import Finding
from evflow.watch.status import LinkStatus

__all__ = ["clock_check", "greet", "hello_check", "keys_check", "peer_check"]

_PATIENCE = 5.0
_FAR = 1.0
"""Seconds that clocks may differ without anybody minding."""


def keys_check(folder: Path, name: str | None = None) -> Iterator[Finding]:
    """Whether the keys in a folder can be used: readable, private, and belonging together.

    Args:
        folder: the folder.
        name: the node whose secret key has to be there; None if nobody said.
    """
    about = f"keys {folder}"
    try:
        stamp = stamp_of(folder)
        mode = folder.stat().st_mode & 0o777
    except (LinkError, OSError) as error:
        yield Finding(about, "wrong", str(error), f"make keys: evflow keygen NAME --dir {folder}")
        return
    if mode & 0o022:
        yield Finding(
            about, "warning", f"others may write to it, its mode is {mode:04o}: they could let anybody in",
            f"chmod 700 {folder}",
        )  # fmt: skip
    public, problems = read_public(folder, stamp)
    for problem in problems:
        yield Finding(about, "wrong", problem, "copy it anew from its host")
    names = sorted(path.stem for path in folder.glob("*.key"))
    for each in names:
        yield _pair(folder, each, public)
    if name is not None and name not in names:
        yield Finding(
            f"key of {name}", "wrong", f"there is no {key_paths(folder, name)[0]}",
            f"evflow keygen {name} --dir {folder}",
        )  # fmt: skip
    peers = [each for each in sorted(public) if each not in names]
    level = "ok" if peers else "warning"
    text = f"peers that may connect: {', '.join(peers) or 'none'}"
    yield Finding(about, level, text, "" if peers else "copy the .pub of each peer into it")


def _pair(folder: Path, name: str, public: Mapping[str, str]) -> Finding:
    about = f"key of {name}"
    try:
        own = zmq.curve_public(read_secret(folder, name).encode()).decode()
    except (LinkError, zmq.ZMQError, ValueError) as error:
        # Its own message, never what is in the file.
        text = str(error) if isinstance(error, LinkError) else "it is no key"
        return Finding(
            about, "wrong", text, f"remove it, and make another: evflow keygen {name} --dir {folder}"
        )
    if name not in public:
        return Finding(
            about, "warning", f"there is no {key_paths(folder, name)[1]}",
            "its peers need it; copy it back from one of them",
        )  # fmt: skip
    if public[name] != own:
        return Finding(
            about, "wrong", f"{name}.pub does not belong to {name}.key",
            f"remove both, and make new ones: evflow keygen {name} --dir {folder}",
        )  # fmt: skip
    return Finding(about, "ok", "a pair, readable by its owner only")


def peer_check(peer: str, contact: str, probe: Callable[[str], Probe], here: str = "") -> Finding:
    """Whether anything listens at a contact, as seen from this host.

    Args:
        peer: the name of who should.
        contact: where.
        probe: tries it.
        here: the name of this host.
    """
    tried = probe(contact)
    about = f"reach {peer}"
    if tried.outcome == "answers":
        return Finding(about, "ok", f"{tried.detail}, after {tried.seconds * 1e3:.1f} ms")
    found = diagnose("", peer, LinkStatus("down", "", contact), host=here, probe=tried)
    return Finding(about, "wrong", found.what, "\n".join(found.checks))


def greet(
    peer: str, contact: str, *, name: str | None, keys: Path | None, plain: bool, patience: float = _PATIENCE
) -> LinkStatus:
    """What a link to a peer says of itself after a real greeting, with a node made for that alone.

    Args:
        peer: its name.
        contact: where it is.
        name: the node's own name; None for one that nobody else has.
        keys: its folder of keys.
        plain: whether it may go without beyond this host.
        patience: seconds to wait for the answer.

    Raises:
        LinkError: there cannot be such a node: a key is missing, or a contact wrong.
    """
    node = Node(name, peers={peer: contact}, keys=keys, plain=plain)
    links = node.attach("doctor")
    end = time.monotonic() + patience
    try:
        while True:
            now = time.monotonic()
            links.receive(now)
            links.finish(now)
            report = node.links()[peer]
            # Whoever refuses says why at once.
            known = report["state"] == "up" or not _waiting(str(report["trouble"]))
            if known or now >= end:
                break
            due = links.next_due(now)
            wait = 0.1 if due is None else min(0.1, max(0.0, due - now))
            links.bell.sleep(lambda: False, wait)
    finally:
        links.close()
    return LinkStatus(str(report["state"]), str(report["trouble"]), str(report["contact"]))


def _waiting(trouble: str) -> bool:
    return trouble in ("", "not connected yet") or trouble.startswith("no answer")


def hello_check(
    peer: str, contact: str, *, name: str | None, keys: Path | None, plain: bool, here: str = "",
    patience: float = _PATIENCE,
) -> Finding:  # fmt: skip
    """Whether a node answers at a contact, is the one that is meant, and lets this one in.

    Args:
        here: the name of this host.
        peer, contact, name, keys, plain, patience: see ``greet``.
    """
    about = f"link to {peer}"
    try:
        report = greet(peer, contact, name=name, keys=keys, plain=plain, patience=patience)
    except LinkError as error:
        return Finding(about, "wrong", str(error), "put that right first")
    if report.state == "up":
        return Finding(about, "ok", f"{peer} answers and lets {name or 'this node'} in")
    # That something listens there was seen before.
    found = diagnose(name or "", peer, report, host=here, probe=Probe("answers", ""))
    return Finding(about, "wrong", found.what, "\n".join(found.checks))


def clock_check(peer: str, open: Opener, wall: Callable[[], float] = time.time) -> Finding:
    """How much the clock of a node's host differs from that of this one.

    Args:
        peer: the node's name.
        open: makes a connection to it.
        wall: this host's clock, seconds since 1970.
    """
    about = f"clock of {peer}"
    try:
        with open() as client:
            before = wall()
            theirs = float(client.ask("status")["wall"])
            after = wall()
    except (EvflowError, KeyError, TypeError, ValueError) as error:
        said = " ".join(str(error).split())
        return Finding(about, "note", f"not known, as it is no daemon or does not say: {said:.200}")
    ahead = theirs - (before + after) / 2
    way = "ahead of" if ahead > 0 else "behind"
    text = f"{abs(ahead):.3f} s {way} that of this host, give or take {(after - before) / 2:.3f} s"
    if abs(ahead) > _FAR + (after - before) / 2:
        return Finding(
            about, "warning", text, "set both by NTP: timedatectl set-ntp true; logs are hard to compare"
        )
    return Finding(about, "ok", text)
