"""Diagnosis: from what a link reports to what was tried, from where, and what to check.

A link knows only what came back to it. Where this host can try by itself, a ``Probe`` says more: a link that
gets no answer may have found a closed port, a firewall, or a node that does not know its key.
"""

from __future__ import annotations

import errno
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from evflow.errors import LinkError
from evflow.net.node.contact import Contact
from evflow.tools.report import plain
from evflow.tools.watch.status import LinkStatus

_MOST_ADDRESSES = 8


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a link.

    Attributes:
        kind: in a word or two: "refused connection", "no answer", "key", "name", "version", "stone", …;
            "ok" if nothing is.
        what: what was tried, from where, and what came of it.
        checks: what to check, the likeliest first.

    Example:
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


class _Rule(NamedTuple):
    """A diagnosis as templates; see ``_RULES``."""

    kind: str
    what: str
    checks: tuple[str, ...] = ()


def _read(text: str) -> dict[str, _Rule]:
    """Rules by what stands before them, which may be on several lines."""
    rules = {}
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        key = "|".join(line for line in lines if not line.startswith(" "))
        said, *checks = " ".join(["", *(line.strip() for line in lines if line.startswith(" "))]).split(" - ")
        kind, _, what = said.strip().partition(": ")
        rules[key] = _Rule(kind, what, tuple(checks))
    return rules


_RULES = _read(r"""
silent for more than [\d.e+]+ s
    silence: {by} was connected to {peer}, which is {found}
    - is {peer} stopped, its host asleep or cut off? evflow status {at}
    - does a handler there run long, in C code that keeps Python from anything else?

the connection is gone
    lost connection: {by} was connected to {peer}: {trouble}
    - has {peer} ended or been killed? See its log: evflow logs {at}

the peer has ended: (.*)
    ended: {peer} said good-bye to {by}: {one}
    - was that meant? If not, start it again; {by} connects by itself

node name '(?:tcp|ipc)://
    key: {way}: with keys, a node is known by its name, and nobody said that of this one
    - give NAME={contact}, where NAME.pub is its key in the folder of keys

no public key of .*
it speaks only with nodes that have keys.*
it has no keys, and this end.*
it does not let in the key of .*
expected the node .* there, found one that has another key .*
a node with keys needs a name.*
no secret key .*
secret key .* is open to others.*
folder of keys .* cannot be read.*
    key: {way}: {found}
    - evflow doctor --keys FOLDER lists what is there

it calls itself .+, but has the key of '(\?)'
    key: {way}: it finds that {by} has the key of '{one}'
    - is the name of {by} that of its key file, NAME.key?
    - is its .pub in the folder of keys of {peer}, under its own name?

it calls itself .+, but has the key of '(.*?)'
    key: {way}: it finds that {by} has the key of '{one}'
    - is the name of {by} that of its key file, NAME.key?
    - is {one}.pub in the keys of {peer} really the key of {one}, not of {by}?

the contact answered as ('.*?'), expected
    name: {way}: the node there calls itself {one}
    - is {contact} the contact of {one}? Then give the contact of {peer}
    - or should the node there be {peer}? Then start it with that name

'.*' is not a name that a peer of node .* can have
    name: {way}: {found}
    - each node needs a name of its own; start one of the two with another --name

speaks version \d+ of the protocol
    version: {way}: {reason}
    - evflow --version on both hosts; install the same on both

node .* has \d+ peers already
    full: {way}: {found}
    - are there peers that come back under new names each time?

node (.+) has no stone '(.+)' that others may send to
    stone: {by} is connected to {peer}, which has no stone '{two}' to send to
    - which stones does it have? evflow status {at}
    - do both run the same version of the graph? {peer} may take up its part in a moment

^it is the node of .*, whose link carries the events
    ok: {by} and {peer}: {trouble}

refused: (.*)
    refused: {way}, which refuses: {one}
    - see the log of {peer}

^peer .*: |^message |^a message|^the peer has no session|^the peer began anew
    protocol: {way}: {trouble}
    - is it a node of evflow that answers there, of the same version? evflow --version on both hosts

no answer|did not answer|does not answer
    no answer: {way}: no answer
    - REACH

not connected yet
    not connected: {pending}
    - REACH
""")
"""Pattern of what a link says → kind, what is told, and what to check; the first that matches.

The templates name what ``_words`` gives, {found}, which the pattern matched, and {one} and {two}, its groups.
"""

_OTHERS = _read("""
refused
    refused connection: {way}: {detail}
    - is the node running? On its host: evflow doctor --listen {contact}
    - does it listen at {port}, and at an address that others reach? A node that listens at 127.0.0.1 is
      reached from its own host only
    - is this the contact of the node, in hosts.toml or with --peer?

silent
    no answer: {way}: {detail}
    - does a firewall drop {port}? On the host of {named}: sudo nft list ruleset, or ufw status
    - is the host up, and the address right? ping it

unreachable
    no route: {way}: {detail}
    - is the network of that address there? ip route get ADDRESS
    - is a VPN down?

unknown host
    no such host: {way}: {detail}
    - is the name right? getent hosts {host}
    - does this host have a name server? Or use the address in the contact

no file
    no such file: {way}: {detail}
    - is the node running, on this very host, and with the same path?

forbidden
    not permitted: {way}: {detail}
    - may this user read and write {path}? ls -l it

wrong
    contact: {way}: {detail}
    - is the contact written as tcp://HOST:PORT or ipc:///PATH?

up
    ok: {by} and {peer} are connected

up, trouble
    trouble: {by}, connected to {peer}: {trouble}

ended
    ok: {by} has ended the connection to {peer}, as nothing needs it

taken, no node
    key: {way}: something takes connections there, but does not answer as a node
    - KEYS
    - is it a node of evflow that has {contact}? ss -ltnp, on its host

down
    trouble: {way}: {trouble}
    - REACH

down, probed
    trouble: {way}: {trouble}

not running
    not running: deployment {deployment} does not run on node {node}: {trouble}
    - see the log of {node}: evflow logs
    - what it lacks may be put right, and the node started again

not written
    not written: node {node}: {trouble}
    - nothing is lost: what is not written waits, and goes on by itself once it can be written

dead
    dead: deployment {deployment}: node {node} is {state}
    - is its process there? On its host: evflow doctor --listen {at}
    - start it again with the same name and storage folder: it takes up its stones again

KEYS
    - with keys: does {whom} have {mine}, and is {theirs} here its key of now? A node does not answer whom it
      does not know
    - is one of the two with keys and the other plain? They cannot speak to each other

REACH
    - is {peer} running, and does it listen at {contact}?
    - {here}: evflow doctor --peer {peer}={contact} tells whether it can be reached at all
    - KEYS

REACH, no contact
    - nobody said where {peer} is: does it run, and does it dial {by}?
    - or give its contact: --peer {peer}=CONTACT
""")
"""Outcome of a probe, or what else is known → the same. KEYS and REACH stand for their checks."""


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
    rule, found = _chosen(report, probe)
    words = _words(node, peer, report, host)
    words["detail"] = _line(probe.detail) if probe is not None else ""
    if found is not None:
        words["found"] = _line(found[0])
        words |= zip(("one", "two"), map(_line, found.groups()), strict=False)
    return _filled(rule, words)


def told(kind: str, **words: str) -> Diagnosis:
    """A diagnosis of what no link says: "not running", "not written" or "dead".

    Args:
        kind: which.
        words: what its template names; texts from other hosts, too.
    """
    return _filled(_OTHERS[kind], {name: _line(text) for name, text in words.items()})


def _filled(rule: _Rule, words: dict[str, str]) -> Diagnosis:
    checks = tuple(check.format_map(words) for check in _listed(rule.checks, words.get("contact", "")))
    return Diagnosis(rule.kind, rule.what.format_map(words), checks)


def _chosen(report: LinkStatus, probe: Probe | None) -> tuple[_Rule, re.Match[str] | None]:
    """The rule for a report, and where its pattern matches."""
    trouble = " ".join(report.trouble.split())
    matches = ((rule, found) for pattern, rule in _RULES.items() if (found := re.search(pattern, trouble)))
    rule, found = next(matches, (None, None))
    if report.state == "up":
        if rule is not None and rule.kind == "stone":
            return rule, found
        return _OTHERS["up, trouble" if trouble else "up"], None
    if report.state == "down" and not trouble and not report.waiting and probe is None:
        return _OTHERS["ended"], None
    if probe is not None and probe.outcome != "answers":
        return _OTHERS[probe.outcome], None
    if rule is None:
        return _OTHERS["down" if probe is None else "down, probed"], None
    return (rule if probe is None or rule.kind != "no answer" else _OTHERS["taken, no node"]), found


def _listed(checks: tuple[str, ...], contact: str) -> Iterator[str]:
    """Checks in the place of KEYS and REACH."""
    for check in checks:
        name = f"{check}, no contact" if check == "REACH" and not contact else check
        if name in _OTHERS:
            yield from _listed(_OTHERS[name].checks, contact)
        else:
            yield check


def _words(node: str, peer: str, report: LinkStatus, host: str) -> dict[str, str]:
    """What the templates of rules name."""
    node, peer, host = _line(node), _line(peer), _line(host)
    trouble, contact = _line(report.trouble), _line(report.contact)
    by, named = f"node {node}" if node else "this command", "://" not in peer
    at = f" at {contact}" if contact and contact != peer else ""
    try:
        parsed = Contact.parse(report.contact)
    except LinkError:
        parsed = None
    way = f"{by}{f' on {host}' if host else ''} dials {peer}{at}"
    unknown = f"{by} waits for {peer}, whose contact it does not know"
    return {
        "by": by,
        "peer": peer,
        "contact": contact,
        "at": contact or "CONTACT",
        "way": way,
        "pending": f"{way}: not connected yet" if contact else unknown,
        "trouble": trouble or report.state,
        "reason": trouble.removeprefix("refused: "),
        "here": f"on the host of {node}" if node else "here",
        "mine": f"{node}.pub" if node else "the NAME.pub of this command's --name",
        "whom": peer if named else "the node there",
        "theirs": f"{peer}.pub" if named else "its .pub",
        "named": peer if named else "the node",
        "port": f"port {parsed.port}" if parsed and parsed.scheme == "tcp" else "that contact",
        "host": parsed.host if parsed else "NAME",
        "path": parsed.path if parsed else "the file",
    }


def _line(text: str) -> str:
    """A text from another host as one line that can be shown."""
    return plain(" ".join(text.split()))


# --- what this host finds out by itself


@dataclass(frozen=True)
class Probe:
    """What came of an attempt to connect.

    Attributes:
        outcome: "answers", "refused", "silent", "unreachable", "unknown host", "no file", "forbidden" or
            "wrong" (it is not a contact).
        detail: the same as a text, with the address that was tried.
        seconds: how long it took.
    """

    outcome: str
    detail: str
    seconds: float = 0.0


def probe(contact: str, timeout: float = 3.0) -> Probe:
    """Looks up the host of a contact, if it is a name, and connects to it; nothing is said to who listens.

    Args:
        contact: such as ``tcp://10.0.0.1:7000`` or ``ipc:///run/edge``.
        timeout: seconds to wait for each of its addresses.
    """
    began = time.monotonic()
    try:
        parsed = Contact.parse(contact)
    except LinkError as error:
        return Probe("wrong", str(error))
    if parsed.scheme == "tcp":
        outcome, detail = _tcp(parsed, timeout)
    else:
        # A name without a file begins with NUL for the kernel, with @ for people.
        address = "\0" + parsed.path[1:] if parsed.path.startswith("@") else parsed.path
        outcome, detail = _connect(socket.AF_UNIX, address, f"the socket {parsed.path}", timeout)
    return Probe(outcome, detail, time.monotonic() - began)


def _tcp(contact: Contact, timeout: float) -> tuple[str, str]:
    try:
        found = socket.getaddrinfo(contact.host, contact.port, type=socket.SOCK_STREAM)
    except OSError as error:
        return "unknown host", f"the name {contact.host} is not known here ({error.strerror or error})"
    # The first that fails is told: it is the one that is preferred.
    first: tuple[str, str] | None = None
    for family, _, _, _, address in found[:_MOST_ADDRESSES]:
        outcome, detail = _connect(family, address, " port ".join(map(str, address[:2])), timeout)
        if outcome == "answers":
            return outcome, detail
        first = first or (outcome, detail)
    return first or ("unknown host", f"the name {contact.host} has no address here")


def _connect(family: int, address: object, shown: str, timeout: float) -> tuple[str, str]:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.settimeout(timeout)
            tried.connect(address)  # type: ignore[arg-type]
    except ConnectionRefusedError:
        return "refused", f"{shown} refuses connections: nobody listens there"
    except FileNotFoundError:
        return "no file", f"{shown} is not there"
    except PermissionError as error:
        return "forbidden", f"{shown} may not be connected to ({error.strerror})"
    except OSError as error:
        if isinstance(error, TimeoutError) or error.errno in (errno.ETIMEDOUT, errno.EAGAIN):
            return "silent", f"{shown} did not answer within {timeout:g} s"
        return "unreachable", f"{shown} cannot be reached ({error.strerror or error})"
    return "answers", f"{shown} takes connections"
