"""What a controller keeps over restarts, as its store has it: all of it is written before it is acted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from evflow.deploy.messages import packed
from evflow.deploy.record import Record
from evflow.deploy.register import NOBODY, Ballot, Register
from evflow.errors import DeployError
from evflow.outside import from_msgpack, shown

if TYPE_CHECKING:
    from evflow.deploy.store import FileStore
    from evflow.disk import Growing
    from evflow.engine.snapshot import Snapshot

_MOST_PAST = 200
"""Replicas of the past that are kept."""


@dataclass(frozen=True)
class Prepared:
    """A change that a node is quiet for: until it hears what was decided, no event may pass.

    Attributes:
        ballot: that of the change's proposer.
        record: what the change would make.
        lost: nodes whose snapshots will not come.
    """

    ballot: Ballot
    record: Record
    lost: tuple[str, ...]


@dataclass(frozen=True)
class Replica:
    """What a node keeps of one deployment.

    Attributes:
        register: the newest record that it knows, and its vote on the next.
        prepared: the change that it is quiet for.
    """

    register: Register[Record] = field(default_factory=Register)
    prepared: Prepared | None = None

    @property
    def record(self) -> Record | None:
        """The newest record that it knows; None if none."""
        return self.register.value

    @property
    def version(self) -> int:
        """The version of that record; 0 if none."""
        return self.register.version


class DurableState:
    """The replicas of a node, one for each deployment by its birth; and snapshots.

    A deployment that is not on this node, and in which nothing is open, is of the past: of these the newest
    few are kept, for members who have not heard of their end.

    Args:
        store: where it is kept.
        name: the node's name.

    Attributes:
        replicas: birth → replica, in the order of their last change.
        arriving: (birth, change) → stone → snapshot, of changes that are not decided yet.
        arrived: birth → stones whose snapshots are kept until they are released.
        snapshots: these, as they were at the start.

    Raises:
        DeployError: what the store has is damaged.
    """

    def __init__(self, store: FileStore, name: str) -> None:
        self._store = store
        self._name = name
        self.replicas: dict[str, Replica] = {}
        self.arriving: dict[tuple[str, str], dict[str, Snapshot]] = {}
        self.arrived: dict[str, set[str]] = {}
        self.snapshots: dict[str, dict[str, bytes]] = {}
        for key, value in store.load().items():
            try:
                kind, where = key.split("/", 1)
                self._read(kind, where, value)
            except (TypeError, ValueError, KeyError, DeployError) as error:
                raise DeployError(
                    f"what is kept of deployments is damaged: {shown(key)}: {shown(error, 200)}; move the "
                    f"file away, and the node learns from the other nodes what is placed on it"
                ) from error

    def _read(self, kind: str, where: str, value: bytes) -> None:
        if kind == "page":
            self.replicas[where] = _replica(value)
        elif kind == "arriving":
            birth, change, stone = where.split("/", 2)
            self.arriving.setdefault((birth, change), {})[stone] = value
        elif kind == "arrived":
            birth, stone = where.split("/", 1)
            self.arrived.setdefault(birth, set()).add(stone)
            self.snapshots.setdefault(birth, {})[stone] = value
        else:
            raise ValueError(kind)

    def replica(self, birth: str) -> Replica:
        """The replica of a deployment, empty if nothing is known of it."""
        return self.replicas.get(birth) or Replica()

    @property
    def deployed(self) -> dict[str, Record]:
        """Birth → the newest record, of the deployments that are on this node now."""
        replicas = ((birth, replica) for birth, replica in self.replicas.items() if self.is_member(replica))
        return {birth: replica.record for birth, replica in replicas if replica.record is not None}

    def is_member(self, replica: Replica) -> bool:
        """True if a replica is of a deployment that is on this node now."""
        record = replica.record
        return record is not None and record.graph is not None and self._name in record.hosts

    def vote(self, birth: str, register: Register[Record]) -> None:
        """Keeps what the node says on a version."""
        self._save(birth, replace(self.replica(birth), register=register), {})

    def prepare(self, birth: str, prepared: Prepared) -> None:
        """Keeps that the node is quiet for a change."""
        self._save(birth, replace(self.replica(birth), prepared=prepared), {})

    def abort(self, birth: str, register: Register[Record]) -> None:
        """Keeps that a change will not be, and with it what the node now promises."""
        self._save(birth, Replica(register), self._arriving_keys(birth))
        self._forget_arriving(birth)

    def growing(self, total: int) -> Growing:
        """A snapshot of so many bytes that is yet to come, for ``keep``."""
        return self._store.growing(total)

    def keep(self, birth: str, change: str, stone: str, snapshot: Growing) -> None:
        """Keeps the snapshot of a stone that would come by a change under way."""
        self._store.save({f"arriving/{birth}/{change}/{stone}": snapshot})
        self.arriving.setdefault((birth, change), {})[stone] = snapshot.data

    def forget_arriving(self, birth: str) -> None:
        """Forgets the snapshots of a change that will not be."""
        keys = self._arriving_keys(birth)
        if keys:
            self._store.save(keys)
            self._forget_arriving(birth)

    def conclude(self, record: Record, change: str, arrived: set[str], here: set[str]) -> None:
        """Keeps what was decided.

        Args:
            record: the record.
            change: the change by which stones came.
            arrived: these stones, whose snapshots are kept.
            here: the stones that are on this node by it.
        """
        birth = record.birth
        stays = (self.arrived.get(birth, set()) & here) | arrived
        came = {f"arriving/{birth}/{change}/{stone}": f"arrived/{birth}/{stone}" for stone in arrived}
        changes: dict[str, bytes | None] = {
            key: None for key in self._arriving_keys(birth) if key not in came
        }
        for stone in self.arrived.get(birth, set()) - stays:
            changes[f"arrived/{birth}/{stone}"] = None
        self._save(birth, Replica(self.replica(birth).register.learn(record.version, record)), changes, came)
        self._forget_arriving(birth)
        self.arrived[birth] = stays

    def put_away(self, birth: str, snapshots: Mapping[str, bytes]) -> None:
        """Keeps snapshots of stones that are here, for the next start of the node."""
        self._store.save({f"arrived/{birth}/{stone}": data for stone, data in snapshots.items()})
        self.arrived.setdefault(birth, set()).update(snapshots)

    def release(self, birth: str, stone: str) -> None:
        """Forgets the snapshot of a stone that has come."""
        if stone in self.arrived.get(birth, ()):
            self._store.save({f"arrived/{birth}/{stone}": None})
            self.arrived[birth].discard(stone)

    def _arriving_keys(self, birth: str) -> dict[str, bytes | None]:
        return {
            f"arriving/{birth}/{change}/{stone}": None
            for (of, change), stones in self.arriving.items()
            if of == birth
            for stone in stones
        }

    def _forget_arriving(self, birth: str) -> None:
        for key in [key for key in self.arriving if key[0] == birth]:
            del self.arriving[key]

    def _save(
        self,
        birth: str,
        replica: Replica,
        changes: dict[str, bytes | None],
        renamed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        past = [
            b for b, p in self.replicas.items() if b != birth and not self.is_member(p) and not is_open(p)
        ]
        gone = past[: max(0, len(past) - _MOST_PAST)]
        changes |= {f"page/{old}": None for old in gone}
        changes[f"page/{birth}"] = _bytes(replica)
        # Should it not be possible to write, all stays as it was.
        self._store.save(changes, renamed)
        for old in (*gone, birth):
            self.replicas.pop(old, None)
        self.replicas[birth] = replica


def is_open(replica: Replica) -> bool:
    """True if something is to be decided in which the node has a part."""
    return replica.prepared is not None or replica.register.accepted is not None


def _bytes(replica: Replica) -> bytes:
    register, prepared = replica.register, replica.prepared
    # A vote on no version is one that was not given yet.
    votes_on = register.version + 1 if register.promised > NOBODY else 0
    return packed(
        [
            register.value,
            [votes_on, register.promised, register.ballot, register.accepted],
            None if prepared is None else [prepared.ballot, prepared.record, prepared.lost],
        ]
    )


def _replica(data: bytes) -> Replica:
    decided, (votes_on, promised, ballot, accepted), prepared = from_msgpack(data)
    record = _record(decided)
    register = Register(0 if record is None else record.version, record)
    if votes_on == register.version + 1:
        register = replace(
            register, promised=Ballot(*promised), ballot=Ballot(*ballot), accepted=_record(accepted)
        )
    if prepared is None:
        return Replica(register)
    ballot, wanted, lost = prepared
    return Replica(register, Prepared(Ballot(*ballot), Record.from_data(wanted), tuple(lost)))


def _record(data: object) -> Record | None:
    return None if data is None else Record.from_data(data)
