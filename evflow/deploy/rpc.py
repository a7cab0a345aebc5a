"""The RPC handlers of a daemon: a function for each verb, all run by the control thread."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import evflow
from evflow.choices import listed, nearest
from evflow.deploy.part import checked_graph, qualified
from evflow.deploy.proposal import Outcome
from evflow.deploy.record import Record
from evflow.deploy.taps import MOST_TAPS, Tapped
from evflow.deploy.telling import MOST_AGAIN, MOST_LETTERS, resubmitted, told
from evflow.engine.placement import bridged
from evflow.engine.topology import Slot
from evflow.errors import DeployError
from evflow.net.link.control import Question, Reply
from evflow.outside import shown

if TYPE_CHECKING:
    from evflow.deploy.daemon import Daemon
    from evflow.engine.letters import DeadLetters

_log = logging.getLogger("evflow.deploy")

_MOST_PATIENCE = 600.0
_MOST_COMPARED = 200
"""Names that a wrong one is compared with: who asks may be a stranger."""

Arguments = dict[str, Any]


class RpcHandlers:
    """The RPC handlers of a daemon.

    Attributes:
        table: verb → what is done; more may be added.
    """

    HARMLESS = frozenset({"name", "record", "status", "logs", "letters", "letter_counts", "quiet"})
    """Verbs that change nothing."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._began = time.monotonic()
        self._tapped = 0
        # Opens the files that a status reads.
        _load()
        _resident_bytes()
        at_once = {
            "name": lambda peer, given: daemon.node.name,
            "record": self._record,
            "status": lambda peer, given: self.status(),
            "letters": self._letters,
            "letter_counts": self._letter_counts,
            "resubmit": self._resubmit,
            "send_stored": self._send_stored,
            "transfer": self._transfer,
            "attributes": self._attributes,
            "tap": self._tap,
            "untap": self._untap,
            "seal": lambda peer, given: daemon.site.seal(str(given["deployment"])),
            "unseal": lambda peer, given: daemon.site.unseal(str(given["deployment"])),
            "quiet": lambda peer, given: daemon.site.busy(str(given["deployment"])),
        }
        self.table: dict[str, Question] = {verb: _answering(call) for verb, call in at_once.items()}
        self.table["propose"] = self._propose
        self.table["drain"] = lambda peer, given, reply: daemon.drain(reply)

    # --- deployments

    def _record(self, peer: str, given: Arguments) -> Any:
        record, birth = self._daemon.controller.records.get(given["deployment"]), given.get("birth")
        if birth and (record is None or record.birth != birth):
            # Not None, which nodes of earlier versions answer where there is nothing newer.
            return {"gone": True}
        if record is None:
            return None
        return record.data() if record.version > given["known"] else {"version": record.version}

    def _propose(self, peer: str, given: Arguments, reply: Reply) -> None:
        patience = min(max(float(given["patience"]), 0.1), _MOST_PATIENCE)
        wanted = Record.from_data(given["record"])
        self._daemon.know(wanted.hosts)
        self._daemon.controller.propose(
            wanted,
            lost=given.get("lost", ()),
            patience=patience,
            done=lambda outcome: reply(self._told(peer, outcome, wanted)),
        )

    def _told(self, peer: str, outcome: Outcome, wanted: Record) -> Any:
        """What became of a proposal, as an answer; of nodes that cannot be reached what was tried."""
        what = f"deployment {wanted.deployment}: version {wanted.version}, which {peer} has asked for,"
        if outcome.record is not None and outcome.error is None:
            _log.info("%s is decided", what)
            return {"version": outcome.record.version, "missing": list(outcome.missing)}
        links, told = self._daemon.node.links(), str(outcome.error or "the change was not made")
        _log.info("%s is not made: %s", what, told)
        for node, contact in wanted.hosts.items():
            link = links.get(node, {})
            if node != self._daemon.node.name and link.get("state") != "up":
                trouble = link.get("trouble") or "no connection yet"
                told += f"\n  link from {self._daemon.node.name} to {node} at {contact}: {trouble}"
        return DeployError(told)

    # --- seeing

    def status(self) -> dict[str, Any]:
        """All that there is to know of the node, as plain data."""
        daemon, node = self._daemon, self._daemon.node
        return {
            "node": node.name,
            "version": evflow.__version__,
            "contact": node.contact,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "uptime": time.monotonic() - self._began,
            "load": _load(),
            "memory": _resident_bytes(),
            "budget": node.memory,
            "wall": time.time(),
            "deployments": {
                name: self._deployment(record) for name, record in daemon.controller.records.items()
            },
            "stones": self._stones(),
            "links": node.links(),
            "refused": node.refused,
            "dead_letters": daemon.flow.dead_letters().total,
            "unwritten": daemon.unwritten(),
            "handlers": [*daemon.site.admission.own, *daemon.site.admission.listed],
        }

    def _deployment(self, record: Record) -> dict[str, Any]:
        daemon = self._daemon
        return {
            "version": record.version,
            "change": record.change,
            "hosts": record.hosts,
            "members": daemon.controller.health(record.deployment),
            "frozen": record.frozen,
            "requests": daemon.requests.listed(record.deployment),
            "changing": daemon.controller.changing(record.deployment),
            "trouble": daemon.site.troubles.get(record.deployment, ""),
            "graph": record.graph,
        }

    def _stones(self) -> dict[str, dict[str, Any]]:
        slots = self._daemon.flow.engine.topology.slots
        return {
            name: {
                **counts,
                "kind": slots[name].stone.kind,
                "frozen": slots[name].frozen,
                "attributes": dict(slots[name].attributes),
            }
            for name, counts in self._daemon.flow.stats().items()
            if name in slots
        }

    def _letters(self, peer: str, given: Arguments) -> Any:
        before = given.get("before")
        letters = [one for one in self._all_letters(given) if before is None or one.number < int(before)]
        return told(letters, min(max(int(given["limit"]), 0), MOST_LETTERS))

    def _letter_counts(self, peer: str, given: Arguments) -> Any:
        letters = self._all_letters(given)
        return {"kept": len(letters), "lost": letters.lost, "total": letters.total}

    def _all_letters(self, given: Arguments) -> DeadLetters:
        deployment = given.get("deployment")
        return self._daemon.flow.dead_letters(f"{deployment}/" if deployment else "")

    def _resubmit(self, peer: str, given: Arguments) -> Any:
        numbers = given["numbers"]
        if (
            type(numbers) is not list
            or len(numbers) > MOST_AGAIN
            or any(type(number) is not int for number in numbers)
        ):
            raise DeployError(
                f"expected at most {MOST_AGAIN:,} numbers of dead letters, found {shown(numbers)}"
            )
        return resubmitted(self._daemon.flow.dead_letters(), numbers)

    # --- stones

    def _slot(self, name: object) -> Slot:
        slots = self._daemon.flow.engine.topology.slots
        slot = slots.get(str(name))
        if slot is None:
            hint = self._meant(str(name)[:300], list(slots)) + listed(list(slots))
            raise DeployError(f"node {self._daemon.node.name} has no stone {shown(name)}{hint}")
        return slot

    def _meant(self, name: str, here: list[str]) -> str:
        """Where a stone is that is not here, or which one may be meant."""
        placed = {
            qualified(record.deployment, stone["name"]): f", which is on node {stone['on']}"
            for record in self._daemon.controller.records.values()
            for stone in (record.graph or {}).get("stones", ())
        }
        if name in placed:
            return placed[name]
        meant = nearest(name, [*here, *placed][:_MOST_COMPARED])
        where = "" if meant is None or meant in here else placed[meant]
        return "" if meant is None else f" (did you mean {meant!r}{where}?)"

    def _send_stored(self, peer: str, given: Arguments) -> Any:
        return self._daemon.flow.send_stored(self._slot(given["stone"]).name, given["count"])

    def _transfer(self, peer: str, given: Arguments) -> Any:
        self._daemon.flow.transfer(self._slot(given["source"]).name, self._slot(given["target"]).name)
        return None

    def _attributes(self, peer: str, given: Arguments) -> Any:
        slot = self._slot(given["stone"])
        for key, value in given["values"].items():
            if type(key) is not str or type(value) not in (int, float, str):
                raise DeployError(
                    f"attribute {shown(key)} cannot be {shown(value)}; expected an int, float or str"
                )
        slot.attributes.update(given["values"])
        return dict(slot.attributes)

    def _tap(self, peer: str, given: Arguments) -> Any:
        site = self._daemon.site
        if len(site.taps) >= MOST_TAPS:
            raise DeployError(f"node {self._daemon.node.name} has {MOST_TAPS} taps already")
        slot = self._slot(given["stone"])
        self._tapped += 1
        site.taps[self._tapped] = Tapped.of(self._tapped, slot.name, peer, str(given["to"]))
        site.refresh()
        return {"number": self._tapped, "elsewhere": [] if slot.ports else self._before(slot.name)}

    def _before(self, name: str) -> list[list[str]]:
        """What of other nodes leads to a stone here: node, contact, and the bridge to tap there."""
        record = self._daemon.controller.records.get(name.partition("/")[0])
        if record is None:
            return []
        graph = bridged(checked_graph(record))
        before = [link.source for link in graph.links if link.target == name]
        placed = [(str(graph.stones[source].on), source) for source in before]
        return [
            [node, record.hosts[node], source] for node, source in placed if node != self._daemon.node.name
        ]

    def _untap(self, peer: str, given: Arguments) -> Any:
        tap = self._daemon.site.taps.get(given["number"])
        if tap is not None and tap.peer == peer:
            del self._daemon.site.taps[given["number"]]
            self._daemon.site.refresh()
        return None


def _answering(call: Callable[[str, Arguments], Any]) -> Question:
    """A question that is answered at once, by what a function returns."""
    return lambda peer, given, reply: reply(call(peer, given))


@cache
def _opened(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _words(path: str) -> list[bytes]:
    """What a file of /proc says. It stays open: a status is also asked for where no more files can be."""
    return os.pread(_opened(path), 200, 0).split()


def _load() -> float:
    return float(_words("/proc/loadavg")[0])


def _resident_bytes() -> int:
    return int(_words("/proc/self/statm")[1]) * os.sysconf("SC_PAGE_SIZE")
