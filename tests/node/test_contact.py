from __future__ import annotations

import dataclasses
import ipaddress
from pathlib import Path

import pytest
import zmq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evflow.errors import LinkError
from evflow.net.node.contact import Contact

PORTS = st.integers(1, 65535)
LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
HOSTS = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
    st.lists(LABELS, min_size=1, max_size=4).map(".".join),
)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("tcp://10.0.0.1:7000", ("tcp", "10.0.0.1", 7000, "")),
        ("tcp://[fd00::1]:7000", ("tcp", "fd00::1", 7000, "")),
        ("tcp://[fe80::1%eth0]:1", ("tcp", "fe80::1%eth0", 1, "")),
        ("tcp://edge:65535", ("tcp", "edge", 65535, "")),
        ("tcp://edge-2.lab_1.example.org:7000", ("tcp", "edge-2.lab_1.example.org", 7000, "")),
        ("ipc:///run/evflow/edge.sock", ("ipc", "", 0, "/run/evflow/edge.sock")),
        ("ipc:///run/with space", ("ipc", "", 0, "/run/with space")),
        ("ipc://@edge", ("ipc", "", 0, "@edge")),
    ],
)
def test_contact_is_parsed_and_written_again(text: str, fields: tuple[str, str, int, str]) -> None:
    contact = Contact.parse(text)
    assert dataclasses.astuple(contact) == fields
    assert str(contact) == text


@settings(deadline=None)
@given(HOSTS, PORTS)
def test_every_host_and_port_come_back(host: str, port: int) -> None:
    text = f"tcp://{host}:{port}"
    contact = Contact.parse(text, listening=True)
    assert contact.port == port
    assert Contact.parse(str(contact), listening=True) == contact
    assert str(contact) == text or host == "localhost"


@settings(deadline=None)
@given(st.ip_addresses())
@example(ipaddress.ip_address("::ffff:127.0.0.1"))
@example(ipaddress.ip_address("::ffff:10.0.0.1"))
@example(ipaddress.ip_address("127.255.255.254"))
@example(ipaddress.ip_address("::1"))
def test_address_is_local_if_it_is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    mapped = getattr(address, "ipv4_mapped", None) or address
    loopback = any(
        mapped in ipaddress.ip_network(n)
        for n in ("127.0.0.0/8", "::1/128")
        if ":" in n or mapped.version == 4
    )
    text = f"tcp://[{address}]:1" if address.version == 6 else f"tcp://{address}:1"
    assert Contact.parse(text, listening=True).is_local == loopback


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("tcp://localhost:1", True),
        ("tcp://LOCALHOST:1", True),
        ("tcp://localhost.example.org:1", False),
        ("tcp://ip6-localhost:1", False),
        ("tcp://edge:1", False),
        ("ipc:///run/edge", True),
        ("ipc://@edge", True),
    ],
)
def test_of_names_only_localhost_is_local(text: str, local: bool) -> None:
    assert Contact.parse(text).is_local == local


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "[::]", "[::ffff:0.0.0.0]"])
def test_wildcard_is_only_to_listen_on(host: str) -> None:
    contact = Contact.parse(f"tcp://{host}:7000", listening=True)
    assert contact.is_wildcard
    assert not contact.is_local
    with pytest.raises(LinkError, match=r"only to listen on.*tcp://10\.0\.0\.1:7000"):
        Contact.parse(f"tcp://{host}:7000")


def test_port_zero_is_only_to_listen_on() -> None:
    contact = Contact.parse("tcp://10.0.0.1:0", listening=True)
    assert contact.port == 0
    assert not contact.is_wildcard
    assert str(contact.with_port(7001)) == "tcp://10.0.0.1:7001"
    with pytest.raises(LinkError, match="port 0 is only to listen on"):
        Contact.parse("tcp://10.0.0.1:0")


def test_localhost_becomes_an_address_to_listen_on() -> None:
    assert str(Contact.parse("tcp://localhost:7000", listening=True)) == "tcp://127.0.0.1:7000"
    assert str(Contact.parse("tcp://localhost:7000")) == "tcp://localhost:7000"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "neither tcp:// nor ipc://"),
        ("10.0.0.1:7000", "neither tcp:// nor ipc://"),
        ("udp://10.0.0.1:7000", "neither tcp:// nor ipc://"),
        (" tcp://10.0.0.1:7000", "neither tcp:// nor ipc://"),
        ("inproc://x", "neither tcp:// nor ipc://"),
        ("tcp:10.0.0.1:7000", "neither tcp:// nor ipc://"),
        ("tcp://10.0.0.1", "the port is missing"),
        ("tcp://", "the port is missing"),
        ("tcp://:7000", "the host is missing"),
        ("tcp://10.0.0.1:", "expected a port of 0 to 65535, found ''"),
        ("tcp://10.0.0.1:65536", "expected a port of 0 to 65535, found '65536'"),
        ("tcp://10.0.0.1:-1", "expected a port"),
        ("tcp://10.0.0.1:*", "expected a port"),
        ("tcp://10.0.0.1:7000\n", "expected a port"),
        ("tcp://10.0.0.1:٧٠٠٠", "expected a port"),
        ("tcp://10.0.0.1:7000/x", "expected a port"),
        ("tcp://10.0.0.256:7000", "not an IPv4 address"),
        ("tcp://127.1:7000", "not an IPv4 address"),
        ("tcp://2130706433:7000", "not an IPv4 address"),
        ("tcp://fd00::1:7000", "an IPv6 address needs brackets"),
        ("tcp://[fd00::1]", "brackets"),
        ("tcp://[fd00::g]:7000", "'fd00::g' is not an IPv6 address"),
        ("tcp://[10.0.0.1]:7000", "'10.0.0.1' is not an IPv6 address"),
        ("tcp://[]:7000", "'' is not an IPv6 address"),
        ("tcp://[fe80::1%]:7000", "not an IPv6 address"),
        ("tcp://[fe80::1%e;x]:7000", "not an IPv6 address"),
        ("tcp://10.0.0.2;10.0.0.1:7000", "not an IPv4 address"),
        ("tcp://bücher.example:7000", "not a host name"),
        ("tcp://-edge:7000", "not a host name"),
        ("tcp://edge..org:7000", "not a host name"),
        ("tcp://ed ge:7000", "not a host name"),
        ("tcp://" + ".".join(["a" * 60] * 5) + ":7000", "not a host name"),
        ("ipc://run/edge", "expected an absolute path"),
        ("ipc://*", "expected an absolute path"),
        ("ipc://", "expected an absolute path"),
        ("ipc:///", "expected the path of a file"),
        ("ipc:///run/", "expected the path of a file"),
        ("ipc://@", "a name after @"),
        ("ipc:///run/e\0", "cannot be printed"),
        ("ipc:///run/e\n", "cannot be printed"),
        ("ipc:///run/\ud800", "cannot be printed"),
        ("ipc:///" + "é" * 60, "121 bytes, where sockets take 107"),
    ],
)
@pytest.mark.parametrize("listening", [False, True])
def test_wrong_contact_is_refused_and_a_right_one_shown(text: str, wrong: str, listening: bool) -> None:
    with pytest.raises(LinkError) as caught:
        Contact.parse(text, listening=listening)
    message = str(caught.value)
    assert repr(text) in message
    assert wrong in message
    right = message.rpartition("a right one is ")[2].split(" or ")[0].split(",")[0]
    Contact.parse(right)


def test_what_is_no_text_is_refused() -> None:
    for value in (None, 7000, b"tcp://10.0.0.1:7000"):
        with pytest.raises(LinkError, match="expected a text such as"):
            Contact.parse(value)  # type: ignore[arg-type]


@settings(deadline=None)
@given(
    st.one_of(st.text(), st.text(alphabet="tcpi:/[]%@*.0123456789ab").map("tcp://".__add__)), st.booleans()
)
def test_any_text_is_a_contact_or_a_link_error(text: str, listening: bool) -> None:
    try:
        contact = Contact.parse(text, listening)
    except LinkError:
        return
    assert Contact.parse(str(contact), listening) == contact


@pytest.mark.parametrize("port", [0, 65536, -1])
def test_with_port_refuses_what_is_no_port(port: int) -> None:
    with pytest.raises(LinkError, match="expected a port of 1 to 65535"):
        Contact.parse("tcp://edge:1").with_port(port)


def test_with_port_refuses_ipc() -> None:
    with pytest.raises(LinkError, match="ipc has no ports"):
        Contact.parse("ipc://@edge").with_port(1)


def test_contact_is_a_value() -> None:
    contact = Contact.parse("tcp://edge:1")
    assert contact == Contact.parse("tcp://edge:1")
    assert len({contact, contact.with_port(1), contact.with_port(2)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        contact.port = 2  # type: ignore[misc]


def test_zeromq_takes_every_form(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.ipv6 = True
        for text in (
            "tcp://127.0.0.1:0",
            "tcp://localhost:0",
            "tcp://*:0",
            "tcp://[::1]:0",
            f"ipc://{tmp_path}/{'n' * (106 - len(str(tmp_path)))}",
            f"ipc://@{tmp_path.name}-evflow",
        ):
            contact = Contact.parse(text, listening=True)
            socket.bind(str(contact))
            bound = socket.last_endpoint.decode()
            assert Contact.parse(bound, listening=True).scheme == contact.scheme
            socket.unbind(bound)
