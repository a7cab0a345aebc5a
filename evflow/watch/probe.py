"""Probe: whether anybody listens at a contact, as seen from this host; nothing is said to who does."""

from __future__ import annotations

import errno
import socket
import time
from dataclasses import dataclass

from evflow.errors import LinkError
from evflow.node.contact import Contact

__all__ = ["Probe", "probe"]

_MOST_ADDRESSES = 8


@dataclass(frozen=True)
class Probe:
    """What came of an attempt to connect.

    Attributes:
        outcome: "answers", "refused", "silent", "unreachable", "unknown host", "no file", "forbidden" or
            "wrong" (it is no contact).
        detail: the same as a text, with the address that was tried.
        seconds: how long it took.
    """

    outcome: str
    detail: str
    seconds: float = 0.0


def probe(contact: str, timeout: float = 3.0) -> Probe:
    """Looks up the host of a contact, if it is a name, and connects to it.

    Args:
        contact: such as ``tcp://10.0.0.1:7000`` or ``ipc:///run/edge``.
        timeout: seconds to wait for each of its addresses.
    """
    began = time.monotonic()
    try:
        parsed = Contact.parse(contact)
    except LinkError as error:
        return Probe("wrong", str(error))
    outcome, detail = _ipc(parsed, timeout) if parsed.scheme == "ipc" else _tcp(parsed, timeout)
    return Probe(outcome, detail, time.monotonic() - began)


def _ipc(contact: Contact, timeout: float) -> tuple[str, str]:
    # A name without a file begins with NUL for the kernel, with @ for people.
    address = "\0" + contact.path[1:] if contact.path.startswith("@") else contact.path
    return _connect(socket.AF_UNIX, address, f"the socket {contact.path}", timeout)


def _tcp(contact: Contact, timeout: float) -> tuple[str, str]:
    try:
        found = socket.getaddrinfo(contact.host, contact.port, type=socket.SOCK_STREAM)
    except OSError as error:
        return "unknown host", f"the name {contact.host} is not known here ({error.strerror or error})"
    # The first that fails is told: it is the one that is preferred.
    first: tuple[str, str] | None = None
    for family, _, _, _, address in found[:_MOST_ADDRESSES]:
        shown = " port ".join(map(str, address[:2]))
        outcome, detail = _connect(family, address, shown, timeout)
        if outcome == "answers":
            return outcome, detail
        first = first or (outcome, detail)
    return first or ("unknown host", f"the name {contact.host} has no address here")


def _connect(family: int, address: object, shown: str, timeout: float) -> tuple[str, str]:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.settimeout(timeout)
            tried.connect(address)  # type: ignore[arg-type]
    except OSError as error:
        return _failed(error, shown, timeout)
    return "answers", f"{shown} takes connections"


def _failed(error: OSError, shown: str, timeout: float) -> tuple[str, str]:
    if isinstance(error, TimeoutError) or error.errno in (errno.ETIMEDOUT, errno.EAGAIN):
        return "silent", f"{shown} did not answer within {timeout:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "refused", f"{shown} refuses connections: nobody listens there"
    if isinstance(error, FileNotFoundError):
        return "no file", f"{shown} is not there"
    if isinstance(error, PermissionError):
        return "forbidden", f"{shown} may not be connected to ({error.strerror})"
    return "unreachable", f"{shown} cannot be reached ({error.strerror or error})"
