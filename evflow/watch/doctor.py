"""Doctor: checks of this host, each a function that returns what it found and what to do about it."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from evflow.errors import LinkError
from evflow.node.contact import Contact
from evflow.outside import shown
from evflow.report import duration, size

__all__ = ["Finding", "checked", "host_checks", "listen_check", "verdict"]

_PYTHON = (3, 11)
_PACKAGES = {
    "numpy": (2, 0),
    "llvmlite": (0, 45),
    "msgpack": (1, 0),
    "msgspec": (0, 19),
    "pycparser": (3, 0),
    "pyzmq": (26, 0),
    "rich": (13, 0),
}
_OPTIONAL = ("pygraphviz", "prometheus-client")
_LITTLE_MEMORY = 256 << 20
_FEW_FILES = 1024


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


Check = Callable[[], Iterable[Finding]]


def checked(about: str, check: Check) -> list[Finding]:
    """What a check found; that it failed, where it should have found something.

    Args:
        about: what is checked.
        check: the check.
    """
    try:
        return list(check())
    except Exception as error:  # noqa: BLE001  whoever asks what is wrong needs an answer, not a traceback
        return [
            Finding(about, "wrong", f"it cannot be checked: {shown(error, 300)}", "tell the makers of evflow")
        ]


def verdict(findings: Iterable[Finding]) -> str:
    """The worst level among findings."""
    found = {finding.level for finding in findings}
    return next((level for level in ("wrong", "warning") if level in found), "ok")


def host_checks() -> dict[str, Check]:
    """The checks that need to know nothing: what is checked → check."""
    return {
        "python": lambda: [python(sys.version_info[:3], sys.implementation.name)],
        "packages": lambda: packages(_installed),
        "system": lambda: [system(platform.system(), platform.release())],
        "eventfd, memfd": lambda: kernel(("eventfd", "memfd_create")),
        "memory": lambda: [memory(Path("/proc/meminfo").read_text())],
        "open files": _open_files,
        "clock": lambda: [ticks(Path("/proc/uptime").read_text())],
        "java, cuda": lambda: others(shutil.which),
    }


def python(version: tuple[int, ...], implementation: str) -> Finding:
    """Whether this Python is one that evflow runs on."""
    shown = f"{implementation} {'.'.join(map(str, version))}"
    if version < _PYTHON or implementation != "cpython":
        wanted = ".".join(map(str, _PYTHON))
        return Finding("python", "wrong", shown, f"use CPython {wanted} or newer")
    return Finding("python", "ok", shown)


def _installed(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def packages(installed: Callable[[str], str | None]) -> Iterator[Finding]:
    """Whether the packages that evflow needs are there, and which of those that it may use.

    Args:
        installed: package → version, or None.
    """
    for package, least in _PACKAGES.items():
        found = installed(package)
        needed = f"{package}>={'.'.join(map(str, least))}"
        if found is None:
            yield Finding(package, "wrong", "not installed", f"pip install '{needed}'")
        elif _numbers(found) < least:
            yield Finding(package, "wrong", f"version {found}", f"pip install '{needed}'")
        else:
            yield Finding(package, "ok", f"version {found}")
    for package in _OPTIONAL:
        found = installed(package)
        yield Finding(package, "note", f"version {found}" if found else "not installed; it is optional")


def _numbers(version: str) -> tuple[int, ...]:
    parts = []
    for part in version.split(".")[:2]:
        digits = "".join(c for c in part if c.isdecimal())
        parts.append(int(digits) if digits else 0)
    return tuple(parts)


def system(name: str, release: str) -> Finding:
    """Whether nodes can run on this system."""
    if name != "Linux":
        return Finding(
            "system", "wrong", f"{name} {release}", "nodes need Linux; elsewhere a graph runs in one process"
        )
    return Finding("system", "ok", f"{name} {release}")


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
            yield Finding(
                call, "wrong", f"not permitted: {error.strerror}",
                "in a container: does its seccomp profile allow it?",
            )  # fmt: skip
        else:
            yield Finding(call, "ok", "there")


def memory(meminfo: str) -> Finding:
    """Whether there is memory left, from the text of /proc/meminfo."""
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            left = int(value.split()[0]) * 1024
            if left < _LITTLE_MEMORY:
                advice = "a node needs about 100 MB, and what its queues may hold; end something"
                return Finding("memory", "warning", f"{size(left)} available", advice)
            return Finding("memory", "ok", f"{size(left)} available")
    return Finding("memory", "note", "the system does not say how much is available")


def _open_files() -> Iterator[Finding]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield open_files(soft, hard)


def open_files(soft: int, hard: int) -> Finding:
    """Whether a process may have enough files open, from its limits (-1 for none)."""
    shown = "no limit" if soft == -1 else f"at most {soft:,}"
    if 0 <= soft < _FEW_FILES:
        return Finding(
            "open files", "warning", shown,
            f"each link takes about three: ulimit -n {_FEW_FILES if hard < 0 else min(hard, _FEW_FILES)}",
        )  # fmt: skip
    return Finding("open files", "ok", shown)


def ticks(uptime: str) -> Finding:
    """How long the host runs, from the text of /proc/uptime."""
    return Finding("clock", "ok", f"the host is up for {duration(float(uptime.split()[0]))}")


def others(which: Callable[[str], str | None]) -> Iterator[Finding]:
    """Which programs are there that some parts of evflow can use.

    Args:
        which: program → its path, or None.
    """
    for about, program, use in (
        ("java", "java", "Spark needs it"),
        ("cuda", "nvidia-smi", "stones on a GPU need its driver"),
    ):
        path = which(program)
        yield Finding(about, "note", path if path else f"no {program}; only {use}")


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
    if contact.scheme == "tcp" and not contact.is_local and not keys and not plain:
        return Finding(
            about, "wrong", "it is beyond this host, and there are no keys",
            "make keys with evflow keygen and give --keys, or say --plain",
        )  # fmt: skip
    found = _bound_ipc(contact) if contact.scheme == "ipc" else _bound_tcp(contact)
    level, said, advice = found
    if level == "ok" and contact.is_local and contact.scheme == "tcp":
        said += "; only from this host"
    return Finding(about, level, said, advice)


_Said = tuple[str, str, str]


def _bound_tcp(contact: Contact) -> _Said:
    host = "" if contact.host == "*" else contact.host
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            # As ZeroMQ does: a port whose last connections linger can be had.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, contact.port))
            tried.listen(1)
    except OSError as error:
        return _not_bound(contact, error)
    return "ok", "a node can listen there", ""


def _not_bound(contact: Contact, error: OSError) -> _Said:
    port = contact.port
    if error.errno == errno.EADDRINUSE:
        return "wrong", f"port {port} is taken", f"who has it: ss -ltnp 'sport = :{port}'; or take another"
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            "wrong", f"{contact.host} is no address of this host",
            f"its addresses: ip -brief address; or tcp://*:{port} for all of them",
        )  # fmt: skip
    if error.errno == errno.EACCES:
        return "wrong", f"this user may not listen at port {port}", "take a port from 1024 on"
    return "wrong", f"it cannot be listened at: {error.strerror or error}", "is it right?"


def _bound_ipc(contact: Contact) -> _Said:
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
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried, suppress(OSError):
            tried.connect(contact.path)
            return "wrong", "another process listens there", "end it, or take another path"
    elif path.exists():
        return "wrong", f"{path} is there and is no socket", "remove it, or take another path"
    return "ok", "a node can listen there", ""
