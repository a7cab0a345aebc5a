"""Diagnosis: from what a link reports to what was tried, from where, and what to check.

A link knows only what came back to it. Where this host can try by itself, a ``Probe`` says more: a link that
gets no answer may have found a closed port, a firewall, or a door that does not know its key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evflow.errors import LinkError
from evflow.node.contact import Contact
from evflow.report import plain

if TYPE_CHECKING:
    from evflow.watch.probe import Probe
    from evflow.watch.status import LinkStatus

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a link.

    Attributes:
        kind: in a word or two: "refused connection", "no answer", "key", "name", "version", "stone", …;
            "ok" if nothing is.
        what: what was tried, from where, and what came of it.
        checks: what to check, the likeliest first.

    Example:
        >>> from evflow.watch.status import LinkStatus
        >>> report = LinkStatus("down", "no answer from tcp://127.0.0.1:7000", "tcp://127.0.0.1:7000")
        >>> print(diagnose("edge", "office", report).what)
        node edge dials office at tcp://127.0.0.1:7000: no answer
    """

    kind: str
    what: str
    checks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.what, *(f"  check: {check}" for check in self.checks)])

    def __bool__(self) -> bool:
        return self.kind != "ok"


@dataclass(frozen=True)
class _Case:
    """A link as the rules see it: who tried, whom, where, what came of it."""

    node: str
    by: str
    peer: str
    contact: str
    trouble: str
    way: str


def diagnose(
    node: str, peer: str, report: LinkStatus, *, host: str = "", probe: Probe | None = None
) -> Diagnosis:
    """What is wrong with a link of a node to a peer.

    Args:
        node: the node whose link it is; "" for who asks.
        peer: whom it leads to.
        report: what the link says of itself.
        host: the name of the node's host, "" if nobody knows.
        probe: what came of an attempt to reach the contact from the node's host, if there was one.
    """
    node, peer, host = _line(node), _line(peer), _line(host)
    report = replace(report, trouble=_line(report.trouble), contact=_line(report.contact))
    by = f"node {node}" if node else "this command"
    at = f" at {report.contact}" if report.contact and report.contact != peer else ""
    way = f"{by}{f' on {host}' if host else ''} dials {peer}{at}"
    case = _Case(node, by, peer, report.contact, report.trouble, way)
    if report.state == "up":
        return _up(case, report)
    if report.state == "down" and not report.trouble and not report.waiting and probe is None:
        return Diagnosis("ok", f"{case.by} has ended the connection to {case.peer}, as nothing needs it")
    if probe is not None and probe.outcome != "answers":
        return _probed(case, probe)
    for pattern, explain in _RULES:
        if found := re.search(pattern, report.trouble, re.DOTALL):
            if explain is _no_answer and probe is not None:
                return _no_node(case)
            return explain(case, found)
    return Diagnosis(
        "trouble", f"{way}: {report.trouble or report.state}", _reach(case) if probe is None else ()
    )


def _line(text: str) -> str:
    """A text from another host as one line that can be shown."""
    return plain(" ".join(text.split()))


def _up(case: _Case, report: LinkStatus) -> Diagnosis:
    if not report.trouble:
        return Diagnosis("ok", f"{case.by} and {case.peer} are connected")
    if found := re.search(r"node (.+) has no stone '(.+)' that others may send to", report.trouble):
        return _no_stone(case, found)
    return Diagnosis("trouble", f"{case.by}, connected to {case.peer}: {report.trouble}")


# --- what was tried from here

_PROBED = {
    "refused": "refused connection",
    "silent": "no answer",
    "unreachable": "no route",
    "unknown host": "no such host",
    "no file": "no such file",
    "forbidden": "not permitted",
    "wrong": "contact",
}


def _probed(case: _Case, probe: Probe) -> Diagnosis:
    what = f"{case.way}: {probe.detail}"
    return Diagnosis(_PROBED.get(probe.outcome, "trouble"), what, _after_probe(case, probe.outcome))


def _after_probe(case: _Case, outcome: str) -> tuple[str, ...]:
    contact = _parsed(case.contact)
    port = f"port {contact.port}" if contact is not None and contact.scheme == "tcp" else "that contact"
    name = case.peer if "://" not in case.peer else "the node"
    match outcome:
        case "refused":
            return (
                f"is the node running? On its host: evflow doctor --listen {case.contact}",
                f"does it listen at {port}, and at an address that others reach? A node that listens at "
                "127.0.0.1 is reached from its own host only",
                "is this the contact of the node, in hosts.toml or with --peer?",
            )
        case "silent":
            return (
                f"does a firewall drop {port}? On the host of {name}: sudo nft list ruleset, or ufw status",
                "is the host up, and the address right? ping it",
            )
        case "unreachable":
            return ("is the network of that address there? ip route get ADDRESS", "is a VPN down?")
        case "unknown host":
            return (
                f"is the name right? getent hosts {contact.host if contact else 'NAME'}",
                "does this host have a name server? Or use the address in the contact",
            )
        case "no file":
            return ("is the node running, on this very host, and with the same path?",)
        case "forbidden":
            return (f"may this user read and write {contact.path if contact else 'the file'}? ls -l it",)
    return ("is the contact written as tcp://HOST:PORT or ipc:///PATH?",)


# --- what the link was told


def _no_answer(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis("no answer", f"{case.way}: no answer", _reach(case))


def _no_node(case: _Case) -> Diagnosis:
    return Diagnosis(
        "key",
        f"{case.way}: something takes connections there, but does not answer as a node",
        (*_keys(case), f"is it a node of evflow that has {case.contact}? ss -ltnp, on its host"),
    )


def _keys(case: _Case) -> tuple[str, str]:
    mine = f"{case.node}.pub" if case.node else "the NAME.pub of this command's --name"
    named = "://" not in case.peer
    whom, theirs = (case.peer, f"{case.peer}.pub") if named else ("the node there", "its .pub")
    return (
        f"with keys: does {whom} have {mine}, and is {theirs} here its key of now? A node does not answer "
        "whom it does not know",
        "is one of the two with keys and the other plain? They cannot speak to each other",
    )


def _reach(case: _Case) -> tuple[str, ...]:
    """What to check where a link says no more than that nobody answered."""
    if not case.contact:
        return (
            f"nobody said where {case.peer} is: does it run, and does it dial {case.by}?",
            f"or give its contact: --peer {case.peer}=CONTACT",
        )
    where = f"on the host of {case.node}" if case.node else "here"
    return (
        f"is {case.peer} running, and does it listen at {case.contact}?",
        f"{where}: evflow doctor --peer {case.peer}={case.contact} tells whether it can be reached at all",
        *_keys(case),
    )


def _not_tried(case: _Case, found: re.Match[str]) -> Diagnosis:
    if case.contact:
        return Diagnosis("not connected", f"{case.way}: not connected yet", _reach(case))
    return Diagnosis(
        "not connected", f"{case.by} waits for {case.peer}, whose contact it does not know",
        _reach(case),
    )  # fmt: skip


def _silent(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis(
        "silence",
        f"{case.by} was connected to {case.peer}, which is {found[0]}",
        (
            f"is {case.peer} stopped, its host asleep or cut off? evflow status {case.contact or 'CONTACT'}",
            "does a handler there run long, in C code that keeps Python from anything else?",
        ),
    )


def _broken(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis(
        "lost connection",
        f"{case.by} was connected to {case.peer}: {case.trouble}",
        (f"has {case.peer} ended or been killed? See its log: evflow logs {case.contact or 'CONTACT'}",),
    )


def _ended(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis(
        "ended",
        f"{case.peer} said good-bye to {case.by}: {found[1]}",
        (f"was that meant? If not, start it again; {case.by} connects by itself",),
    )


def _own_key(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis("key", f"{case.way}: {found[0]}", ("evflow doctor --keys FOLDER lists what is there",))


def _no_name(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis(
        "key",
        f"{case.way}: with keys, a node is known by its name, and nobody said that of this one",
        (f"give NAME={case.contact}, where NAME.pub is its key in the folder of keys",),
    )


def _their_key(case: _Case, found: re.Match[str]) -> Diagnosis:
    owner = found[1]
    check = (
        f"is its .pub in the folder of keys of {case.peer}, under its own name?"
        if owner == "?"
        else f"is {owner}.pub in the keys of {case.peer} really the key of {owner}, not of {case.by}?"
    )
    return Diagnosis(
        "key",
        f"{case.way}: it finds that {case.by} has the key of {owner!r}",
        (f"is the name of {case.by} that of its key file, NAME.key?", check),
    )


def _other_name(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis(
        "name",
        f"{case.way}: the node there calls itself {found[1]}",
        (
            f"is {case.contact} the contact of {found[1]}? Then give the contact of {case.peer}",
            f"or should the node there be {case.peer}? Then start it with that name",
        ),
    )


def _same_name(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis(
        "name",
        f"{case.way}: {found[0]}",
        ("each node needs a name of its own; start one of the two with another --name",),
    )


def _version(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis(
        "version",
        f"{case.way}: {case.trouble.removeprefix('refused: ')}",
        ("evflow --version on both hosts; install the same on both",),
    )


def _crowded(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis(
        "full", f"{case.way}: {found[0]}", ("are there peers that come back under new names each time?",)
    )


def _refused(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis("refused", f"{case.way}, which refuses: {found[1]}", (f"see the log of {case.peer}",))


def _no_stone(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis(
        "stone",
        f"{case.by} is connected to {case.peer}, which has no stone {found[2]!r} to send to",
        (
            f"which stones does it have? evflow status {case.contact or 'CONTACT'}",
            f"do both run the same version of the graph? {case.peer} may take up its part in a moment",
        ),
    )


def _carried(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis("ok", f"{case.by} and {case.peer}: {case.trouble}")


def _protocol(case: _Case, found: re.Match[str]) -> Diagnosis:
    return Diagnosis(
        "protocol",
        f"{case.way}: {case.trouble}",
        ("is it a node of evflow that answers there, of the same version? evflow --version on both hosts",),
    )


_Explain = Callable[[_Case, "re.Match[str]"], Diagnosis]

_RULES: tuple[tuple[str, _Explain], ...] = (
    (r"silent for more than [\d.e+]+ s", _silent),
    (r"the connection is gone", _broken),
    (r"the peer has ended: (.*)", _ended),
    (r"node name '(tcp|ipc)://", _no_name),
    (r"no public key of .*", _own_key),
    (r"it speaks only with nodes that have keys.*|it has no keys, and this end.*", _own_key),
    (r"it does not let in the key of .*", _own_key),
    (r"expected the node .* there, found one that has another key .*", _own_key),
    (r"a node with keys needs a name.*", _own_key),
    (r"no secret key .*|secret key .* is open to others.*|folder of keys .* cannot be read.*", _own_key),
    (r"it calls itself .+, but has the key of '(.*?)'", _their_key),
    (r"the contact answered as ('.*?'), expected", _other_name),
    (r"'.*' is no name that a peer of node .* can have", _same_name),
    (r"speaks version \d+ of the protocol", _version),
    (r"node .* has \d+ peers already", _crowded),
    (r"node (.+) has no stone '(.+)' that others may send to", _no_stone),
    (r"^it is the node of .*, whose link carries the events", _carried),
    (r"refused: (.*)", _refused),
    (r"^peer .*: |^message |^a message|^the peer has no session|^the peer began anew", _protocol),
    (r"no answer|did not answer|does not answer", _no_answer),
    (r"not connected yet", _not_tried),
)


def _parsed(contact: str) -> Contact | None:
    try:
        return Contact.parse(contact)
    except LinkError:
        return None
