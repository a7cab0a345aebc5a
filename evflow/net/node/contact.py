"""Contact: the address of a node, a text that people write and ZeroMQ takes.

tcp://10.0.0.1:7000     an IPv4 address
tcp://[fd00::1]:7000    an IPv6 address, in brackets
tcp://edge.local:7000   a host name; never looked up here
tcp://*:0               only to listen on: every interface, and a port that is free
ipc:///run/edge         a socket file
ipc://@edge             a name without a file (Linux)
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

from evflow.errors import LinkError
from evflow.outside import shown

_TCP = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[^:]*)")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_ZONE = re.compile(r"[A-Za-z0-9_.-]+")
_NODE_NAME = re.compile(r"[^./=][^/=]{0,254}")
_PORT = re.compile(r"[0-9]{1,5}")
_PATH_BYTES = 107
"""What a Unix socket's address holds, without its closing NUL."""

_TCP_EXAMPLE = "tcp://10.0.0.1:7000"
_LISTEN_EXAMPLE = "tcp://*:7000"
_IPC_EXAMPLE = "ipc:///run/edge"

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Contact:
    """The address of a node. Made by ``parse``; ``str`` gives the text that ZeroMQ takes.

    Attributes:
        scheme: "tcp" or "ipc".
        host: of tcp: an address, a host name, or ``*``; an IPv6 address without its brackets.
        port: of tcp: 1 to 65535, or 0 for any that is free.
        path: of ipc: an absolute path, or ``@`` and a name.

    Example:
        >>> contact = Contact.parse("tcp://127.0.0.1:7000")
        >>> contact.host, contact.port, contact.is_local
        ('127.0.0.1', 7000, True)
        >>> str(Contact.parse("tcp://[::1]:0", listening=True).with_port(7001))
        'tcp://[::1]:7001'
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str, listening: bool = False) -> Contact:
        """The contact that a text says.

        Args:
            text: such as those above.
            listening: whether it is to listen on. Then port 0 and the host ``*`` (also ``0.0.0.0`` and
                ``[::]``) have a meaning, and ``localhost`` becomes ``127.0.0.1``: one listens on addresses.

        Raises:
            LinkError: the text is not a contact, or not one that can be dialled.
        """
        if not isinstance(text, str):
            raise LinkError(f"contact {shown(text, 1000)}: expected a text such as {_TCP_EXAMPLE!r}")
        scheme, colon, rest = text.partition("://")
        if colon and scheme == "tcp":
            return _parse_tcp(text, rest, listening)
        if colon and scheme == "ipc":
            return _parse_ipc(text, rest)
        raise _wrong(text, "begins with neither tcp:// nor ipc://", f"{_TCP_EXAMPLE} or {_IPC_EXAMPLE}")

    @property
    def is_local(self) -> bool:
        """True if only this host can be at its other end: loopback, ipc, and of names only ``localhost``."""
        if self.scheme == "ipc":
            return True
        address = _address(self.host)
        return self.host.lower() == "localhost" if address is None else address.is_loopback

    @property
    def is_wildcard(self) -> bool:
        """True if it stands for every interface of its host, so that nobody can dial it."""
        address = _address(self.host)
        return self.host == "*" or (address is not None and address.is_unspecified)

    def with_port(self, port: int) -> Contact:
        """The same contact with another port, 1 to 65535.

        Raises:
            LinkError: it has no ports, being ipc, or there is no such port.
        """
        if self.scheme != "tcp":
            raise LinkError(f"contact {self}: ipc has no ports")
        if not 1 <= port <= 65535:
            raise LinkError(f"contact {self}: expected a port of 1 to 65535, found {port}")
        return replace(self, port=port)

    def __str__(self) -> str:
        if self.scheme == "ipc":
            return f"ipc://{self.path}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


def _wrong(text: str, what: str, right: str) -> LinkError:
    return LinkError(f"contact {shown(text, 1000)}: {what}; a right one is {right}")


def _parse_tcp(text: str, rest: str, listening: bool) -> Contact:
    parts = _TCP.fullmatch(rest)
    if parts is None:
        if rest.count(":") > 1:
            raise _wrong(
                text, "an IPv6 address needs brackets, and a port behind them", "tcp://[fd00::1]:7000"
            )
        raise _wrong(text, "the port is missing", _TCP_EXAMPLE)
    if not _PORT.fullmatch(parts["port"]) or int(parts["port"]) > 65535:
        raise _wrong(text, f"expected a port of 0 to 65535, found {shown(parts['port'], 1000)}", _TCP_EXAMPLE)
    host = _checked_host(text, parts)
    if listening and host.lower() == "localhost":
        host = "127.0.0.1"
    contact = Contact("tcp", host, int(parts["port"]))
    if not listening and contact.port == 0:
        raise _wrong(text, "port 0 is only to listen on", _TCP_EXAMPLE)
    if not listening and contact.is_wildcard:
        raise _wrong(text, f"{host} is only to listen on; to dial, name the host", _TCP_EXAMPLE)
    return contact


def _checked_host(text: str, parts: re.Match[str]) -> str:
    if (six := parts["six"]) is not None:
        _, percent, zone = six.partition("%")
        if ":" not in six or _address(six) is None or (percent and not _ZONE.fullmatch(zone)):
            raise _wrong(text, f"{shown(six, 1000)} is not an IPv6 address", "tcp://[fd00::1]:7000")
        return six
    host = parts["host"]
    if host == "":
        raise _wrong(text, "the host is missing", f"{_TCP_EXAMPLE}, or {_LISTEN_EXAMPLE} to listen on")
    # What ends in a number is an address: a resolver may read `127.1` or `10.0.0.256` as anything.
    if host.rpartition(".")[2].isdecimal() and _address(host) is None:
        raise _wrong(text, f"{shown(host, 1000)} is not an IPv4 address", _TCP_EXAMPLE)
    if host != "*" and (len(host) > 253 or not _HOST_NAME.fullmatch(host)):
        raise _wrong(
            text,
            f"{shown(host, 1000)} is not a host name of ASCII letters, digits, '-' and '_'",
            "tcp://edge.local:7000",
        )
    return host


def _address(host: str) -> _Address | None:
    try:
        address: _Address = ipaddress.ip_address(host)
    except ValueError:
        return None
    # ::ffff:127.0.0.1 reaches what 127.0.0.1 reaches.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _parse_ipc(text: str, path: str) -> Contact:
    right = f"{_IPC_EXAMPLE} or ipc://@edge"
    if not path.startswith(("/", "@")):
        raise _wrong(text, "expected an absolute path, or @ and a name", right)
    if path == "@" or path.endswith("/"):
        raise _wrong(text, "expected the path of a file, or a name after @", right)
    if not path.isprintable():
        raise _wrong(text, "a path with characters that cannot be printed", right)
    if (size := len(path.encode())) > _PATH_BYTES:
        raise _wrong(text, f"a path of {size} bytes, where sockets take {_PATH_BYTES}", right)
    return Contact("ipc", path=path)


def node_name(name: object) -> str:
    """A name that a daemon may have: files are called by it, and contacts are written NAME=CONTACT.

    Raises:
        LinkError: it may not.
    """
    if not isinstance(name, str) or not _NODE_NAME.fullmatch(name) or not name.isprintable():
        raise LinkError(
            f"node {shown(name, 300)}: expected a name of 1 to 255 characters without '/', '=' and line "
            "breaks, and no '.' at the beginning"
        )
    return name


def named_contact(text: str) -> tuple[str, str]:
    """The name and the contact in ``NAME=CONTACT``; where no name is given the contact stands for it, too."""
    name, equals, contact = text.partition("=")
    return (name, contact) if equals and "://" not in name else (text, text)
