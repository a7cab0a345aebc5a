"""Who takes part in which channel: the bookkeeping that each process does for itself. Sans-I/O: it is told
notes and the time, and says what to send and how the stones are to be linked.

Each process says what it is in a channel (``Entry``); the greatest version holds. What it says goes to all
who take part, who link their stones by it and confirm that. Whoever has not confirmed is told again, and each
second everyone tells everyone else a digest of what it knows, and everything where the digests differ: so
what is lost is healed, and all who live agree in the end.

A process that was silent for ``silence`` seconds is not waited for; one that was for ``patience`` is
forgotten.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from evflow.echo.notes import (
    LEFT,
    OPEN,
    SUBSCRIBED,
    Absent,
    Entry,
    Find,
    Here,
    Message,
    Refused,
    State,
    Version,
    pack,
)
from evflow.echo.others import Presence, Search
from evflow.echo.record import Record
from evflow.echo.roster import NEVER, Roster
from evflow.errors import EvflowError, LinkError
from evflow.graph.morph import Morph

Marks = dict[tuple[str, str], Version]
"""(channel, process) → the version of its entry that stones are linked by."""

_AGAIN = 0.1
"""Seconds after which whoever has not confirmed is told again."""

_MOST_CHANNELS = 1_000
_ASKED_AT_ONCE = 16
_REMEMBERED = 3600.0


@dataclass(frozen=True)
class Settings:
    """Times, in seconds.

    Attributes:
        silence: after which a process is not waited for.
        patience: after which it is forgotten.
        gossip: between two digests.
    """

    silence: float = 5.0
    patience: float = 60.0
    gossip: float = 1.0


class Membership:
    """What one process is in its channels, and knows of them.

    Args:
        name: the process.
        contact: where it can be dialled; "" if it cannot.
        incarnation: greater than at each earlier start of the process.
        settings: times.
        permits: whether a contact may be dialled.

    Attributes:
        rosters: key → what is known of a channel in which the process takes part.
        version: grows with each change that the stones have to follow; see ``marks``.
        presence: what is known of other processes.
        search: what is looked for at others.
        failed: key → why a derived channel cannot be had here.
        refused: how often something was refused, by kind.
    """

    def __init__(
        self,
        name: str,
        contact: str,
        incarnation: int,
        settings: Settings | None = None,
        permits: Callable[[str], bool] = lambda contact: True,
    ) -> None:
        self.name = name
        self.contact = contact
        self.settings = Settings() if settings is None else settings
        self.rosters: dict[str, Roster] = {}
        self.version = 0
        self.presence = Presence(self.settings.silence)
        self.search = Search()
        self.failed: dict[str, str] = {}
        self.refused: Counter[str] = Counter()
        # The channels that the process has left. It goes on noting who takes part in them, and tells that
        # with each farewell: two who are about to join by it must not miss each other.
        self._left: dict[str, Roster] = {}
        self._permits = permits
        self._incarnation = incarnation
        self._number = 0
        self._outbox: dict[str, list[Message]] = {}
        self._began: float | None = None
        # Derived channels that others have: their origin here, and who was asked.
        self._pending: dict[str, tuple[str, str]] = {}
        self._gone_at: dict[tuple[str, str], float] = {}
        self._claimed_at: dict[str, float] = {}
        self._again_at: float | None = None
        self._gossip_at = 0.0
        self._rotation: deque[str] = deque()

    # --- what the process does

    def add(self, record: Record, now: float, claimed: bool = False) -> Roster:
        """The process takes part in a channel from now on.

        Args:
            record: the channel.
            now: the time.
            claimed: it subscribed before it was started again: what waits for it goes on waiting.

        Raises:
            LinkError: there are too many.
        """
        if len(self.rosters) >= _MOST_CHANNELS:
            raise LinkError(f"process {self.name}: more than {_MOST_CHANNELS} channels")
        # What is derived from the channel comes back with it.
        self._left = {
            key: left for key, left in self._left.items() if record.key not in (key, left.record.parent)
        }
        roster = Roster(record, self._entry(SUBSCRIBED if claimed else OPEN))
        roster.claimed = claimed
        if claimed:
            self._claimed_at[record.key] = now
        self.rosters[record.key] = roster
        self._pending.pop(record.key, None)
        self._changed(roster, now)
        return roster

    def subscribe(self, key: str, yes: bool, now: float) -> None:
        """The process wants the channel's events, or does so no more."""
        roster = self.rosters[key]
        roster.claimed = False
        self._claimed_at.pop(key, None)
        roster.set_own(self._entry(SUBSCRIBED if yes else OPEN))
        self._changed(roster, now)

    def leave(self, key: str, now: float) -> None:
        """The process does not take part in a channel any more."""
        roster = self.rosters.pop(key)
        self._claimed_at.pop(key, None)
        roster.waiting = {name for name in self._targets(roster) if self.presence.alive(name, now)}
        roster.until = now + self.settings.silence
        roster.set_own(self._entry(LEFT))
        self._left[key] = roster
        self.version += 1
        for name in sorted(roster.waiting):
            self._send(name, self._farewell(roster, True, now))
        self._again_at = now + _AGAIN

    def add_morph(self, key: str, morph: Morph, now: float) -> None:
        """Adds a morph to a channel.

        Raises:
            LinkError: there are too many.
        """
        roster = self.rosters[key]
        if roster.add_morph(morph):
            roster.set_own(self._entry(roster.own.state))
            self._changed(roster, now)

    def find(self, process: str, name: str, now: float) -> None:
        """Asks a process for a channel, again and again until ``search`` has its answer."""
        self.search.begin(process, name)
        self._send(process, Find(name))
        self._again_at = now + _AGAIN

    def _entry(self, state: int) -> Entry:
        self._number += 1
        return Entry(self.name, self.contact, self._incarnation, self._number, state)

    def _changed(self, roster: Roster, now: float) -> None:
        self.version += 1
        self._tell_all(roster, now)

    # --- what there is to know

    def named(self, name: str) -> Roster | None:
        """The channel of that key or name; of several of one name, that which this process has created."""
        if name in self.rosters:
            return self.rosters[name]
        found = [roster for roster in self.rosters.values() if roster.record.name == name]
        return next((r for r in found if r.record.creator == self.name), found[0] if found else None)

    def waiting_for(self, key: str, now: float) -> list[str]:
        """Which living processes have not confirmed yet what this one is in a channel, or that it left."""
        alive = self.presence.alive
        roster = self.rosters.get(key)
        if roster is None:
            left = self._left.get(key)
            return [] if left is None else sorted(name for name in left.waiting if alive(name, now))
        return sorted(
            name
            for name in self._targets(roster)
            if alive(name, now)
            and not self._outdated(roster, name)
            and roster.confirmed.get(name, NEVER) < roster.own.version
        )

    def _outdated(self, roster: Roster, process: str) -> bool:
        """True if a process was started again since, and has not said yet whether it takes part."""
        entry = roster.entries.get(process)
        return entry is not None and self.presence.outdated(process, entry.incarnation)

    def _targets(self, roster: Roster) -> list[str]:
        """The other processes that have to know what this one is in a channel: its members, and those of what
        it is derived from."""
        found: dict[str, None] = {}
        at: Roster | None = roster
        while at is not None:
            found.update((entry.process, None) for entry in at.members() if entry.process != self.name)
            at = self.rosters.get(at.record.parent)
        return [name for name in found if name not in roster.refusals]

    def unlinked(self, key: str) -> bool:
        """True if the own stones are not linked yet by all that is known of a channel."""
        roster = self.rosters.get(key)
        if roster is None:
            return False
        return any(roster.applied.get(e.process, NEVER) < e.version for e in roster.members())

    def family(self, key: str) -> Iterator[str]:
        """A channel and all derived from it, those that others have and this one not yet among them."""
        yield key
        for child in self._children(key):
            yield from self.family(child)
        yield from [child for child, (parent, _) in self._pending.items() if parent == key]

    def _children(self, key: str) -> list[str]:
        return sorted(child for child, roster in self.rosters.items() if roster.record.parent == key)

    def marks(self) -> Marks:
        """What stones that are linked by all that is known now are linked by; see ``applied``."""
        return {(key, e.process): e.version for key, r in self.rosters.items() for e in r.entries.values()}

    def applied(self, marks: Marks, now: float) -> None:
        """The stones are linked; whom that concerns is told."""
        for (key, name), version in marks.items():
            roster = self.rosters.get(key)
            if roster is None or roster.applied.get(name, NEVER) >= version:
                continue
            roster.applied[name] = version
            if name != self.name and name not in roster.forgotten:
                self._send(name, self._state(roster, name, False, now))

    # --- what comes

    def receive(self, process: str, messages: Iterable[Message], now: float) -> None:
        """Takes the messages of a note.

        Raises:
            LinkError: something in it is wrong; what is right was taken.
        """
        self._begin(now)
        self.presence.hear(process, now)
        problem: LinkError | None = None
        for message in messages:
            try:
                self._take(process, message, now)
            except EvflowError as error:
                self.refused["malformed"] += 1
                problem = LinkError(f"process {process}: {error}")
        if problem is not None:
            raise problem

    def _take(self, process: str, message: Message, now: float) -> None:
        if isinstance(message, Find):
            self._on_find(process, message, now)
        elif isinstance(message, Here):
            self.search.here(process, message.name, message.key)
        elif isinstance(message, Absent):
            self._on_absent(process, message)
        elif isinstance(message, Refused):
            if message.key in self.rosters:
                self.rosters[message.key].refusals[process] = message.reason
        else:
            self._on_state(process, message, now)

    def _on_find(self, process: str, message: Find, now: float) -> None:
        roster = self.named(message.name)
        if roster is None:
            names = sorted({r.record.name for r in self.rosters.values()})
            has = f"it has {', '.join(names)[:500]}" if names else "it has none"
            reason = f"process {self.name} has no channel {message.name!r}; {has}"
            self._send(process, Absent(message.name, reason))
            return
        self._send(process, Here(message.name, roster.key))
        self._send(process, self._state(roster, process, False, now, asked=True))

    def _on_absent(self, process: str, message: Absent) -> None:
        self.search.absent(process, message.about, message.reason)
        if self._pending.get(message.about, ("", ""))[1] == process:
            del self._pending[message.about]

    def _on_state(self, process: str, state: State, now: float) -> None:
        if state.own is not None:
            if state.own.process != process:
                raise LinkError(f"it speaks for {state.own.process[:100]!r}")
            self.presence.meet(process, state.own.incarnation)
        roster = self.rosters.get(state.key) or self._opened(process, state, now)
        if roster is None:
            return
        if state.own is not None:
            roster.refusals.pop(process, None)
        if self._merge(roster, process, state, now):
            self.version += 1
        roster.digests[process] = state.digest
        # Only who is known to know the same, or has told all it knows, has confirmed.
        if state.digest == roster.digest() or state.known is not None:
            roster.confirmed[process] = max(state.applied, roster.confirmed.get(process, NEVER))
        self.search.opened(process, roster.key, roster.record.name)
        if state.want:
            self._send(process, self._state(roster, process, False, now, asked=state.own is None))
        self._ask_for_children(process, roster, state.children)

    def _ask_for_children(self, process: str, roster: Roster, children: list[str]) -> None:
        known = self.rosters.keys() | self.failed.keys()
        new = [child for child in children if child not in known and child not in self._left]
        for child in new[:_ASKED_AT_ONCE]:
            self._pending[child] = (roster.key, process)
            self._ask_for(child, process)

    def _ask_for(self, child: str, process: str) -> None:
        self._send(process, State(child, True, None, NEVER, bytes(16), [], None, None))

    def _opened(self, process: str, state: State, now: float) -> Roster | None:
        """The roster of a channel that is new here: one that was asked for, or is derived from one there
        is."""
        if state.applied[0] > self._incarnation:
            # Somebody knows an entry of an earlier start, under a clock that was ahead.
            self._incarnation = state.applied[0] + 1
        left = self._left.get(state.key)
        told = left is not None and state.applied >= left.own.version
        if left is not None and told:
            left.waiting.discard(process)
        invited = self.search.invited(state.key)
        if state.record is not None and (invited or left is None):
            record = Record.unpacked(state.record)
            if record.key != state.key:
                raise LinkError(f"channel {state.key[:100]!r} is said to be {record.key[:100]!r}")
            parent = self.rosters.get(record.parent)
            if parent is not None or invited:
                return self._open(process, record, parent, state, now)
        takes_part = state.own is not None and state.own.state != LEFT
        if state.want and state.own is None:
            self._send(process, Absent(state.key, f"process {self.name} does not have it"))
        elif state.record is None and not told and (state.want or takes_part):
            self._say_farewell(process, state, now)
        return None

    def _say_farewell(self, process: str, state: State, now: float) -> None:
        """Tells a process that this one is not in a channel."""
        left = self._left.get(state.key)
        if left is not None:
            self._merge(left, process, state, now)
            self._send(process, self._farewell(left, False, now))
        elif self._began is not None and now - self._began > self.settings.patience:
            # Before, it may be about to open what it had until it was started again, and what waits for it
            # is not to be lost.
            entry = self._entry(LEFT)
            self._send(process, State(state.key, False, entry, NEVER, bytes(16), [], None, None))

    def _open(
        self, process: str, record: Record, parent: Roster | None, state: State, now: float
    ) -> Roster | None:
        if parent is not None:
            try:
                record.check(parent.record, list(parent.morphs.values()))
            except EvflowError as error:
                self.failed[record.key] = str(error)
                self._pending.pop(record.key, None)
                self._send(process, Refused(record.key, str(error)[:1000]))
                raise
        rows = [] if state.known is None else [row for row, _ in state.known.entries]
        claimed = any(row.process == self.name and row.state == SUBSCRIBED for row in rows)
        return self.add(record, now, claimed)

    def _merge(self, roster: Roster, process: str, state: State, now: float) -> bool:
        changed = False
        if state.own is not None:
            changed |= self._merge_entry(roster, state.own, 0, process, now)
        if state.known is None:
            return changed
        for entry, age in state.known.entries:
            changed |= self._merge_entry(roster, entry, age, process, now)
        return changed | roster.merge_morphs(state.known.morphs)

    def _merge_entry(self, roster: Roster, entry: Entry, age: int, process: str, now: float) -> bool:
        name = entry.process
        if name == self.name:
            return self._meet_oneself(roster, entry, now)
        if not roster.merge(entry, name == process):
            return False
        # A process that may not be dialled from here has to dial.
        contact = entry.contact if entry.contact and self._permits(entry.contact) else ""
        self.presence.hear_of(name, contact, age, now)
        if entry.state == LEFT:
            self._gone_at[roster.key, name] = now
        elif roster.own.state != LEFT and roster.confirmed.get(name, NEVER) < roster.own.version:
            self._send(name, self._state(roster, name, True, now))
            self._again_at = now + _AGAIN
        return True

    def _meet_oneself(self, roster: Roster, entry: Entry, now: float) -> bool:
        """Somebody knows an entry of an earlier start of this process, under a clock that was ahead."""
        if entry.version <= roster.own.version:
            return False
        self._incarnation = max(self._incarnation, entry.incarnation + 1)
        roster.set_own(self._entry(roster.own.state))
        self._tell_all(roster, now)
        return True

    # --- what goes

    def _send(self, process: str, message: Message) -> None:
        self._outbox.setdefault(process, []).append(message)

    def _state(self, roster: Roster, process: str, want: bool, now: float, asked: bool = False) -> State:
        """What this process is in a channel, with all that it knows where that is needed.

        Args:
            asked: whether the other wants to know what the channel is.
        """
        parent = self.rosters.get(roster.record.parent)
        invited = parent is not None and parent.is_member(process) and not roster.is_member(process)
        record = roster.record.packed() if asked or invited else None
        digest = roster.digest()
        known = None
        if record is not None or (not want and roster.digests.get(process) != digest):
            known = roster.known(lambda name: 0 if name == self.name else self.presence.age(name, now))
        applied = roster.applied.get(process, NEVER)
        return State(roster.key, want, roster.own, applied, digest, self._children(roster.key), record, known)

    def _farewell(self, roster: Roster, want: bool, now: float) -> State:
        known = roster.known(lambda name: 0 if name == self.name else self.presence.age(name, now))
        return State(roster.key, want, roster.own, NEVER, roster.digest(), [], None, known)

    def _tell_all(self, roster: Roster, now: float) -> None:
        for name in self._targets(roster):
            self._send(name, self._state(roster, name, True, now))
        self._again_at = now + _AGAIN

    def _gossip(self, roster: Roster, now: float) -> None:
        """Tells all a digest; only of those that may know something else, or have not confirmed, an answer is
        wanted: it costs each of many members as much as the digest."""
        digest, own = roster.digest(), roster.own.version
        for name in self._targets(roster):
            agreed = roster.digests.get(name) == digest and roster.confirmed.get(name, NEVER) >= own
            self._send(name, self._state(roster, name, not agreed, now))

    def outgoing(self) -> list[tuple[str, bytes]]:
        """Takes out what is to be sent: processes and the bodies of notes."""
        outbox, self._outbox = self._outbox, {}
        return [(name, body) for name, messages in outbox.items() for body in pack(messages)]

    def peers(self) -> dict[str, str]:
        """The processes that there is something to say to, and where they can be dialled ("" if nobody
        knows)."""
        names = {name for left in self._left.values() for name in left.waiting} | {
            process for process, _ in self.search.open()
        }
        for roster in self.rosters.values():
            names.update(e.process for e in roster.entries.values() if e.state != LEFT)
        names.discard(self.name)
        return {name: self.presence.contacts.get(name, "") for name in sorted(names)}

    # --- time

    def _begin(self, now: float) -> None:
        if self._began is None:
            self._began = now

    def _takes_part(self, key: str, process: str) -> bool:
        return key in self.rosters and self.rosters[key].is_member(process)

    def next_due(self) -> float:
        """When ``tick`` is needed next."""
        return self._gossip_at if self._again_at is None else min(self._gossip_at, self._again_at)

    def tick(self, now: float) -> None:
        """Does what is due."""
        self._begin(now)
        if now >= self._gossip_at:
            self._gossip_at = now + self.settings.gossip
            self._tidy(now)
            for roster in list(self.rosters.values()):
                self._gossip(roster, now)
            self._tell_forgotten(now)
            # One that was started again meanwhile does not have it any more, and says so.
            for child, (_, process) in self._pending.items():
                self._ask_for(child, process)
        elif self._again_at is not None and now >= self._again_at:
            self._again_at = None
            for roster in list(self.rosters.values()):
                for name in self.waiting_for(roster.key, now):
                    self._send(name, self._state(roster, name, True, now))
                    self._again_at = now + _AGAIN
        else:
            return
        for key, left in list(self._left.items()):
            if now >= left.until:
                left.waiting.clear()
            if now > left.until + _REMEMBERED:
                del self._left[key]
        finds: list[tuple[str, Message]] = [(process, Find(name)) for process, name in self.search.open()]
        late = [(name, left) for left in self._left.values() for name in sorted(left.waiting)]
        farewells = [(name, self._farewell(left, True, now)) for name, left in late]
        for name, message in [*finds, *farewells]:
            self._send(name, message)
            self._again_at = now + _AGAIN

    def _tell_forgotten(self, now: float) -> None:
        """Tells one of those who were forgotten, in turn: it may be there again, and think so of this one."""
        lost = {name for roster in self.rosters.values() for name in roster.forgotten}
        self._rotation = deque([name for name in self._rotation if name in lost])
        self._rotation.extend(sorted(lost - set(self._rotation)))
        if self._rotation:
            name = self._rotation[0]
            self._rotation.rotate(-1)
            for roster in self.rosters.values():
                if name in roster.forgotten:
                    self._send(name, self._state(roster, name, True, now))

    def _tidy(self, now: float) -> None:
        """Forgets who was silent too long, and what was remembered long enough."""
        for roster in self.rosters.values():
            for entry in roster.members():
                name = entry.process
                if name != self.name and self.presence.silent(name, now) > self.settings.patience:
                    roster.forget(name)
                    self._gone_at[roster.key, name] = now
                    self.version += 1
        for key in [k for k, since in self._claimed_at.items() if now - since > self.settings.patience]:
            self.subscribe(key, False, now)
        self._pending = {
            child: asked
            for child, asked in self._pending.items()
            if self.presence.alive(asked[1], now) and self._takes_part(*asked)
        }
        self.presence.keep(self.peers().keys() | {asked for _, asked in self._pending.values()})
        for key, name in [gone for gone, at in self._gone_at.items() if now - at > _REMEMBERED]:
            del self._gone_at[key, name]
            known = self.rosters.get(key)
            if known is not None and not known.is_member(name):
                known.drop_departed(name)
