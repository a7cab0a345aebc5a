"""Doctor: checks of this host, of keys, ports and peers; each says what it found and what to do about it."""

from __future__ import annotations

import errno
import os
import platform
import re
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import zmq

from evflow.deploy.client import Cluster
from evflow.errors import EvflowError, LinkError
from evflow.net.node.contact import Contact
from evflow.net.node.keyfile import key_paths, read_public, read_secret, stamp_of
from evflow.outside import shown
from evflow.tools.report import duration, size
from evflow.tools.watch.diagnosis import Probe, diagnose
from evflow.tools.watch.diagnosis import probe as probe_contact
from evflow.tools.watch.status import LinkStatus

_PYTHON = (3, 11)
_OPTIONAL = ("pygraphviz", "prometheus-client")
_LITTLE_MEMORY = 256 << 20
_FEW_FILES = 1024
_POLL = 0.02
_FAR = 1.0
"""Seconds that clocks may differ without anybody minding."""


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        about: what was checked.
        level: "ok", "note" (for information), "warning" or "wrong".
        text: what was found.
        advice: what to do; "" if nothing.
    """

    about: str
    level: str
    text: str
    advice: str = ""


Check = Callable[[], "Finding | Iterable[Finding]"]


def checked(about: str, check: Check) -> list[Finding]:
    """What a check found; that it failed, where it should have found something.

    Args:
        about: what is checked.
        check: the check.
    """
    try:
        found = check()
        return [found] if isinstance(found, Finding) else list(found)
    except Exception as error:  # noqa: BLE001  whoever asks what is wrong needs an answer, not a traceback
        text = f"it cannot be checked: {shown(error, 300)}"
        return [Finding(about, "wrong", text, "tell the makers of evflow")]


def verdict(findings: Iterable[Finding]) -> str:
    """The worst level among findings."""
    found = {finding.level for finding in findings}
    return next((level for level in ("wrong", "warning") if level in found), "ok")


def examine(
    listen: Iterable[str] = (),
    peers: Iterable[tuple[str, str]] = (),
    *,
    keys: Path | None = None,
    name: str | None = None,
    plain: bool = False,
    open: Callable[..., Any],
) -> Iterator[Finding]:
    """All that there is to find.

    Args:
        listen: contacts at which a node could be to listen.
        peers: names and contacts of nodes to be reached.
        keys: a folder of keys.
        name: whose key to use.
        plain: whether tcp may go beyond this host without keys.
        open: makes a connection to "NAME=CONTACT", as ``evflow.deploy.client.Client`` does.
    """
    checks: list[tuple[str, Check]] = list(host_checks().items())
    if keys is not None:
        checks.append(("keys", partial(keys_check, keys, name)))
    checks += [(text, partial(listen_check, text, keys is not None, plain)) for text in listen]
    for peer, contact in peers:
        checks.append((peer, Greeting(peer, contact, name, keys, plain, open).checks))
    for about, check in checks:
        yield from checked(about, check)


# --- this host


def host_checks() -> dict[str, Check]:
    """The checks that need to know nothing: what is checked → check."""
    return {
        "python": lambda: python(sys.version_info[:3], sys.implementation.name),
        "packages": lambda: packages(_installed),
        "system": lambda: system(platform.system(), platform.release()),
        "eventfd, memfd": lambda: kernel(("eventfd", "memfd_create")),
        "memory": lambda: memory(Path("/proc/meminfo").read_text()),
        "open files": lambda: open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        "clock": lambda: uptime(Path("/proc/uptime").read_text()),
        "java, cuda": lambda: others(shutil.which),
    }


def python(version: tuple[int, ...], implementation: str) -> Finding:
    """Whether this Python is one that evflow runs on."""
    right = version >= _PYTHON and implementation == "cpython"
    advice = "" if right else f"use CPython {'.'.join(map(str, _PYTHON))} or newer"
    found = f"{implementation} {'.'.join(map(str, version))}"
    return Finding("python", "ok" if right else "wrong", found, advice)


def _installed(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def packages(installed: Callable[[str], str | None]) -> Iterator[Finding]:
    """Whether the packages that evflow needs are there, and which of those that it may use.

    Args:
        installed: package → version, or None.
    """
    for needed in metadata.requires("evflow") or ():
        if found := re.fullmatch(r"([\w.-]+)>=([\d.]+)", needed):
            package, least = found.groups()
            version = installed(package)
            right = version is not None and _numbers(version) >= _numbers(least)
            text = "not installed" if version is None else f"version {version}"
            yield Finding(
                package, "ok" if right else "wrong", text, "" if right else f"pip install '{needed}'"
            )
    for package in _OPTIONAL:
        version = installed(package)
        yield Finding(package, "note", f"version {version}" if version else "not installed; it is optional")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def system(name: str, release: str) -> Finding:
    """Whether nodes can run on this system."""
    advice = "" if name == "Linux" else "nodes need Linux; elsewhere a graph runs in one process"
    return Finding("system", "wrong" if advice else "ok", f"{name} {release}", advice)


def kernel(calls: Iterable[str]) -> Iterator[Finding]:
    """Whether system calls that nodes make are there and permitted.

    Args:
        calls: "eventfd", "memfd_create".
    """
    for call in calls:
        made = getattr(os, call, None)
        if made is None:
            yield Finding(call, "wrong", "this Python has none", "nodes need Linux and Python 3.11")
            continue
        try:
            os.close(made("evflow doctor") if call == "memfd_create" else made(0))
        except OSError as error:
            advice = "in a container: does its seccomp profile allow it?"
            yield Finding(call, "wrong", f"not permitted: {error.strerror}", advice)
        else:
            yield Finding(call, "ok", "there")


def memory(meminfo: str) -> Finding:
    """Whether there is memory left, from the text of /proc/meminfo."""
    found = re.search(r"^MemAvailable:\s*(\d+)", meminfo, re.MULTILINE)
    if found is None:
        return Finding("memory", "note", "the system does not say how much is available")
    left = int(found[1]) * 1024
    if left < _LITTLE_MEMORY:
        advice = "a node needs about 100 MB, and what its queues may hold; end something"
        return Finding("memory", "warning", f"{size(left)} available", advice)
    return Finding("memory", "ok", f"{size(left)} available")


def open_files(soft: int, hard: int) -> Finding:
    """Whether a process may have enough files open, from its limits (-1 for none)."""
    text = "no limit" if soft == -1 else f"at most {soft:,}"
    if not 0 <= soft < _FEW_FILES:
        return Finding("open files", "ok", text)
    wanted = _FEW_FILES if hard < 0 else min(hard, _FEW_FILES)
    return Finding("open files", "warning", text, f"each link takes about three: ulimit -n {wanted}")


def uptime(text: str) -> Finding:
    """How long the host runs, from the text of /proc/uptime."""
    return Finding("clock", "ok", f"the host is up for {duration(float(text.split()[0]))}")


def others(which: Callable[[str], str | None]) -> Iterator[Finding]:
    """Which programs are there that some parts of evflow can use.

    Args:
        which: program → its path, or None.
    """
    for about, program, use in (
        ("java", "java", "Spark needs it"),
        ("cuda", "nvidia-smi", "stones on a GPU need its driver"),
    ):
        yield Finding(about, "note", which(program) or f"no {program}; only {use}")


# --- where a node could listen

_FREE = ("ok", "a node can listen there", "")


def listen_check(text: str, keys: bool, plain: bool = False) -> Finding:
    """Whether a node could listen at a contact.

    Args:
        text: the contact.
        keys: whether the node would have keys.
        plain: whether it may go without beyond this host.
    """
    about = f"listen {text}"
    try:
        contact = Contact.parse(text, listening=True)
    except LinkError as error:
        return Finding(about, "wrong", str(error), "write it as tcp://10.0.0.1:7000 or ipc:///run/edge")
    if contact.scheme == "ipc":
        return Finding(about, *_bound_ipc(contact))
    if not contact.is_local and not keys and not plain:
        advice = "make keys with evflow keygen and give --keys, or say --plain"
        return Finding(about, "wrong", "it is beyond this host, and there are no keys", advice)
    level, said, advice = _bound_tcp(contact)
    only = "; only from this host" if level == "ok" and contact.is_local else ""
    return Finding(about, level, said + only, advice)


def _bound_tcp(contact: Contact) -> tuple[str, str, str]:
    host, port = "" if contact.host == "*" else contact.host, contact.port
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
            # As ZeroMQ does: a port whose last connections linger can be had.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, port))
            tried.listen(1)
    except OSError as error:
        said, advice = {
            errno.EADDRINUSE: (
                f"port {port} is taken",
                f"who has it: ss -ltnp 'sport = :{port}'; or take another",
            ),
            errno.EADDRNOTAVAIL: (
                f"{host} is not an address of this host",
                f"its addresses: ip -brief address; or tcp://*:{port} for all of them",
            ),
            errno.EACCES: (f"this user may not listen at port {port}", "take a port from 1024 on"),
        }.get(error.errno or 0, (f"it cannot be listened at: {error.strerror or error}", "is it right?"))
        return "wrong", said, advice
    return _FREE


def _bound_ipc(contact: Contact) -> tuple[str, str, str]:
    if contact.path.startswith("@"):
        return "ok", "a name without a file, which a node can have if no other has", ""
    path = Path(contact.path)
    if not path.parent.is_dir():
        return "wrong", f"there is no folder {path.parent}", f"make it: mkdir -p {path.parent}"
    if not os.access(path.parent, os.W_OK):
        return (
            "wrong",
            f"this user may not write to {path.parent}",
            "choose another folder, or change its mode",
        )
    if path.is_socket():
        if probe_contact(str(contact)).outcome == "answers":
            return "wrong", "another process listens there", "end it, or take another path"
    elif path.exists():
        return "wrong", f"{path} is there and is not a socket", "remove it, or take another path"
    return _FREE


# --- keys


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
        text = f"others may write to it, its mode is {mode:04o}: they could let anybody in"
        yield Finding(about, "warning", text, f"chmod 700 {folder}")
    public, problems = read_public(folder, stamp)
    for problem in problems:
        yield Finding(about, "wrong", problem, "copy it anew from its host")
    names = sorted(path.stem for path in folder.glob("*.key"))
    for each in names:
        yield Finding(f"key of {each}", *_pair(folder, each, public))
    if name is not None and name not in names:
        advice = f"evflow keygen {name} --dir {folder}"
        yield Finding(f"key of {name}", "wrong", f"there is no {key_paths(folder, name)[0]}", advice)
    peers = ", ".join(each for each in sorted(public) if each not in names)
    advice = "" if peers else "copy the .pub of each peer into it"
    yield Finding(about, "ok" if peers else "warning", f"peers that may connect: {peers or 'none'}", advice)


def _pair(folder: Path, name: str, public: Mapping[str, str]) -> tuple[str, str, str]:
    make = f"evflow keygen {name} --dir {folder}"
    try:
        own = zmq.curve_public(read_secret(folder, name).encode()).decode()
    except (LinkError, zmq.ZMQError, ValueError) as error:
        # Its own message, never what is in the file.
        text = str(error) if isinstance(error, LinkError) else "it is not a key"
        return "wrong", text, f"remove it, and make another: {make}"
    if name not in public:
        advice = "its peers need it; copy it back from one of them"
        return "warning", f"there is no {key_paths(folder, name)[1]}", advice
    if public[name] != own:
        advice = f"remove both, and make new ones: {make}"
        return "wrong", f"{name}.pub does not belong to {name}.key", advice
    return "ok", "a pair, readable by its owner only", ""


# --- peers


@dataclass(frozen=True)
class Greeting:
    """Checks of whether a node can be reached, is the one that is meant, and lets this one in.

    Attributes:
        peer: its name.
        contact: where it is.
        name: this end's own name; None for one that nobody else has.
        keys: the folder of keys.
        plain: whether tcp may go beyond this host without keys.
        open: makes a connection to "NAME=CONTACT", as ``evflow.deploy.client.Client`` does.
        patience: seconds to wait for an answer.
        probe: tries a contact.
        wall: this host's clock, seconds since 1970.
    """

    peer: str
    contact: str
    name: str | None = None
    keys: Path | None = None
    plain: bool = False
    open: Callable[..., Any] | None = None
    patience: float = 5.0
    probe: Callable[[str], Probe] = probe_contact
    wall: Callable[[], float] = time.time

    @property
    def _settings(self) -> dict[str, Any]:
        return {"name": self.name, "keys": self.keys, "plain": self.plain}

    def checks(self) -> Iterator[Finding]:
        """What there is to find, each only if what it needs is right."""
        yield (reached := self.reach())
        if reached.level != "ok":
            return
        if self.keys is not None and self.name is None:
            advice = "give --name NAME, where NAME.key is in the folder and no node of that name runs"
            yield Finding(f"link to {self.peer}", "note", "not tried: with keys a node needs a name", advice)
            return
        yield (greeted := self.hello())
        if greeted.level == "ok":
            yield self.clock()

    def _wrong(self, about: str, node: str, report: LinkStatus, probe: Probe) -> Finding:
        found = diagnose(node, self.peer, report, host=socket.gethostname(), probe=probe)
        return Finding(about, "wrong", found.what, "\n".join(found.checks))

    def reach(self) -> Finding:
        """Whether anything listens at the contact, as seen from this host."""
        about, tried = f"reach {self.peer}", self.probe(self.contact)
        if tried.outcome != "answers":
            return self._wrong(about, "", LinkStatus("down", "", self.contact), tried)
        return Finding(about, "ok", f"{tried.detail}, after {tried.seconds * 1e3:.1f} ms")

    def hello(self) -> Finding:
        """Whether a node answers there, is the one that is meant, and lets this one in."""
        about = f"link to {self.peer}"
        try:
            report = self.report()
        except LinkError as error:
            return Finding(about, "wrong", str(error), "put that right first")
        if report.state != "up":
            # That something listens there was seen before.
            return self._wrong(about, self.name or "", report, Probe("answers", ""))
        return Finding(about, "ok", f"{self.peer} answers and lets {self.name or 'this node'} in")

    def report(self) -> LinkStatus:
        """What a link to the peer says of itself after a real greeting, with a node made for that alone.

        Raises:
            LinkError: there cannot be such a node: a key is missing, or a contact wrong.
        """
        end = time.monotonic() + self.patience
        with Cluster({self.peer: self.contact}, **self._settings) as cluster:
            while True:
                report = msgspec.convert(cluster.node.links()[self.peer], LinkStatus)
                # Whoever refuses says why at once.
                waits = report.trouble in ("", "not connected yet") or report.trouble.startswith("no answer")
                if report.state == "up" or not waits or time.monotonic() >= end:
                    return report
                time.sleep(_POLL)

    def clock(self) -> Finding:
        """How much the clock of the peer's host differs from that of this one."""
        about = f"clock of {self.peer}"
        assert self.open is not None
        try:
            with self.open(f"{self.peer}={self.contact}", timeout=3.0, **self._settings) as client:
                before = self.wall()
                theirs = float(client.ask("status")["wall"])
                after = self.wall()
        except (EvflowError, KeyError, TypeError, ValueError) as error:
            said = " ".join(str(error).split())
            return Finding(about, "note", f"not known, as it is not a daemon or does not say: {said:.200}")
        ahead, doubt = theirs - (before + after) / 2, (after - before) / 2
        way = "ahead of" if ahead > 0 else "behind"
        text = f"{abs(ahead):.3f} s {way} that of this host, give or take {doubt:.3f} s"
        if abs(ahead) <= _FAR + doubt:
            return Finding(about, "ok", text)
        advice = "set both by NTP: timedatectl set-ntp true; logs are hard to compare"
        return Finding(about, "warning", text, advice)
