"""The stones of a staging area over several processes or hosts, and the graph of them."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from evflow.errors import EvflowError, StagingError
from evflow.events.batch import EventBatch
from evflow.graph.graph import Graph
from evflow.schema import Schema
from evflow.staging.above import Far, told
from evflow.staging.area import Incomplete, Root, StagingNode
from evflow.staging.committing import Committing
from evflow.staging.linking import BEAT, TOLD, Downlinks, Sent, Uplink
from evflow.staging.model import MOST_WRITERS, Variable, check_path, expect
from evflow.staging.schedulers import Scheduler
from evflow.staging.serving import Serving
from evflow.staging.stage import Area, Storing
from evflow.stone import Acting, Actor, Context, titled

__all__ = ["LeafStage", "RootFates", "RootStage", "tree"]

_log = logging.getLogger("evflow.staging")

Ranks = Sequence[int]


def _ranks(what: str, found: Any, writers: int) -> range:
    """Consecutive ranks, given as a range or as its first and the one behind its last."""
    given = [found.start, found.stop] if isinstance(found, range) and found.step == 1 else found
    fits = isinstance(given, list | tuple) and len(given) == 2 and all(isinstance(one, int) for one in given)
    fits = fits and 0 <= given[0] < given[1] <= writers
    expect(fits, f"{what}: ranks", found, f"a range of ranks below {writers}")
    return range(*given)


class LeafStage(Area):
    """A staging node of a ``tree``: pulls from writers of its host, and hands parts of steps to the root.

    Args:
        variables: as of ``Stage``.
        writers: how many there are in all.
        listen: as of ``Stage``.
        node: what the root calls it.
        ranks: of its writers: a range, or its first and the one behind its last.
        name: the stone's name.
        on: the node it is placed on.
        settings: as of ``Stage``: ``scheduler``; ``piece``, also the bytes of blocks in one event;
            ``memory``; ``patience``; ``live``, which the root hands on.

    Raises:
        StagingError: a setting is wrong.

    Example:
        >>> from evflow import staging
        >>> heat = staging.Variable("heat", "f8", (4, 3))
        >>> staging.LeafStage([heat], 4, "socket", "left", range(2)).settings()["ranks"]
        [0, 2]
    """

    kind = "leaf stage"
    has = ("scheduler", "piece", "memory", "patience", "live")

    def __init__(
        self,
        variables: Iterable[Variable],
        writers: int,
        listen: str | Path,
        node: str,
        ranks: Ranks,
        *,
        name: str | None = None,
        on: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(variables, writers, settings, name, on)
        what = titled(self.kind, name)
        check_path(f"{what}: listen", listen)
        expect(isinstance(node, str) and node, f"{what}: node", node, "a name")
        self.listen, self.node, self.ranks = Path(listen), node, _ranks(what, ranks, writers)

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return (TOLD,)

    def settings(self) -> dict[str, Any]:
        own = {"listen": str(self.listen), "node": self.node, "ranks": [self.ranks.start, self.ranks.stop]}
        return super().settings() | own

    def open(self, context: Context) -> Actor:
        settings = self._fresh()
        node = StagingNode(settings, self.ranks)
        uplink = Uplink(node, settings, self.ranks)
        try:
            return Serving(context, self.listen, node, partial(Far, context, self.listen, self.node, uplink))
        except OSError as error:
            raise StagingError(f"stage cannot listen at {self.listen}: {error}") from None


class RootFates(Acting):
    """Hands to a ``LeafStage`` of its process what the root says.

    Args:
        listen: where the ``LeafStage`` listens.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        StagingError: nobody can listen there.

    Example:
        >>> from evflow import staging
        >>> staging.RootFates("socket").settings()
        {'listen': 'socket'}
    """

    kind = "root fates"
    linked_ports = "none"

    def __init__(self, listen: str | Path, *, name: str | None = None, on: str | None = None) -> None:
        super().__init__(name=name, on=on)
        check_path(f"root fates {name or ''}: listen", listen)
        self.listen = Path(listen)

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return {"input": TOLD}

    def settings(self) -> dict[str, Any]:
        return {"listen": str(self.listen)}

    def open(self, context: Context) -> Actor:
        return _Fates(context, self.listen)


class _Fates(Actor):
    def __init__(self, context: Context, listen: Path) -> None:
        super().__init__(context)
        self._listen = listen.absolute()

    def receive(self, batch: EventBatch, input: str) -> None:
        found = Far.there.get(self._listen)
        if found is None:
            # It begins a new session when it is there.
            self.context.drop(len(batch))
            return
        for view in batch:
            found.hear(_sent(view))


def _sent(view: Any) -> Sent:
    return Sent(int(view.session), int(view.number), bytes(view.head), view.values)


class RootStage(Storing):
    """The root of a ``tree``: puts together what its staging nodes hand on, and commits it.

    Port 0 emits an event ``Committed`` for each step that is in the store. The blocks of the variables in
    ``live`` leave by the ports 1, 2, …; behind these is a port for each staging node.

    Args:
        variables: as of ``Stage``.
        nodes: name of a staging node → the ranks of its writers, as of ``LeafStage``; in the order of ranks,
            and all there are.
        store: as of ``Stage``.
        name: the stone's name.
        on: the node it is placed on.
        settings: as of ``Stage``: ``memory``, for parts of steps; ``incomplete``; ``patience``, for a staging
            node that is not connected; ``live``; ``compression``.

    Raises:
        StagingError: a setting is wrong.

    Example:
        >>> from evflow import staging
        >>> heat = staging.Variable("heat", "f8", (4, 3))
        >>> staging.RootStage([heat], {"left": range(2), "right": range(2, 4)}, "heat.h5").writers
        4
    """

    kind = "root stage"
    has = ("memory", "incomplete", "patience", "live", "compression")
    # What comes to it is taken, whatever is full behind it.
    buffers = True

    def __init__(
        self,
        variables: Iterable[Variable],
        nodes: Mapping[str, Ranks],
        store: str | Path,
        *,
        name: str | None = None,
        on: str | None = None,
        **settings: Any,
    ) -> None:
        what = titled(self.kind, name)
        expect(isinstance(nodes, Mapping) and nodes, f"{what}: nodes", nodes, "ranks by name")
        self.nodes = {
            node: _ranks(f"{what}: node {node}", ranks, MOST_WRITERS) for node, ranks in nodes.items()
        }
        behind = 0
        for node, ranks in self.nodes.items():
            expect(ranks.start == behind, f"{what}: node {node}: ranks", ranks, f"a range from {behind} on")
            behind = ranks.stop
        super().__init__(store, variables, behind, settings, name, on)
        self.writers = behind

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return {"input": TOLD}

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return (*super().emits(schema), *[TOLD] * len(self.nodes))

    def port(self, node: str) -> int:
        """The port by which the root speaks to a staging node.

        Args:
            node: the staging node, as it is called in ``nodes``.
        """
        return 1 + len(self._events) + list(self.nodes).index(node)

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        del settings["writers"]
        return settings | {"nodes": {node: [own.start, own.stop] for node, own in self.nodes.items()}}

    def open(self, context: Context) -> Actor:
        store = self._opened()
        root = Root(self._settings, self.nodes, store.done)
        committing = Committing(context, root, store, self._events, context.wake)
        return _Root(context, self, committing, Downlinks(root, self._settings, self.nodes))


class _Root(Actor):
    def __init__(self, context: Context, stone: RootStage, committing: Committing, links: Downlinks) -> None:
        super().__init__(context)
        self._stone, self._committing, self._links = stone, committing, links

    def receive(self, batch: EventBatch, input: str) -> None:
        now = time.monotonic()
        view: Any
        for position, view in enumerate(batch):
            try:
                self._links.receive(str(view.node), _sent(view), now)
            except EvflowError as error:
                self.context.fault(batch.slice(position, position + 1), error)
        self._turn(now)

    def wake(self, now: float) -> float | None:
        self._turn(time.monotonic())
        self._committing.emit()
        return now + BEAT

    def _turn(self, now: float) -> None:
        """Also while what is behind the root is full: staging nodes hear of it."""
        sent = defaultdict(list)
        for node, message in self._links.turn(self._committing.turn(now), now):
            sent[node].append(message)
        self.context.attributes["why"] = self._links.why
        for node, messages in sent.items():
            self.context.take(len(messages))
            self.context.emit(told(node, messages), self._stone.port(node))

    @property
    def busy(self) -> str:
        return self._committing.busy or ("" if self.failure else self._links.why)

    @property
    def failure(self) -> EvflowError | None:
        return self._committing.failure

    def close(self) -> None:
        self._committing.close()


def tree(
    variables: Iterable[Variable],
    nodes: Mapping[str, tuple[str | Path, Ranks]],
    store: str | Path,
    *,
    root: str,
    scheduler: Scheduler | None = None,
    piece: int = 1 << 20,
    memory: int = 1 << 30,
    root_memory: int = 1 << 30,
    incomplete: Incomplete = "drop",
    patience: float = 60.0,
    live: Mapping[str, Sequence[int]] | None = None,
    compression: int = 0,
    name: str = "output",
) -> Graph:
    """The graph of a staging area on several nodes: a ``LeafStage`` on each node near the writers, and the
    ``RootStage``, which is called "root". A stone is called as the node it is on.

    Args:
        variables: what the writers write, as they declare it.
        nodes: name of a node → the path at which its staging node listens, and the ranks of its writers.
            The ranges are in order, and have all ranks.
        store: as of ``Stage``; where the root is.
        root: name of the node that commits; it may be one of ``nodes``.
        scheduler: as of ``Stage``; each staging node has its own.
        piece: as of ``Stage``.
        memory: bytes of steps that each staging node may hold.
        root_memory: bytes of steps that the root may hold.
        incomplete: as of ``Stage``.
        patience: as of ``Stage``.
        live: as of ``Stage``: ``graph["root"][1]`` and so on have the blocks.
        compression: as of ``Stage``.
        name: the graph's name.

    Raises:
        StagingError: a setting is wrong.

    Example:
        >>> from evflow import staging
        >>> heat = staging.Variable("heat", "f8", (4, 3))
        >>> near = {"left": ("left.sock", range(2)), "right": ("right.sock", range(2, 4))}
        >>> graph = staging.tree([heat], near, "heat.h5", root="disk")
        >>> sorted(graph.stones)
        ['fates of left', 'fates of right', 'leaf of left', 'leaf of right', 'root']
    """
    fits = isinstance(nodes, Mapping) and all(
        isinstance(near, tuple | list) and len(near) == 2 for near in nodes.values()
    )
    expect(isinstance(variables, Iterable), "tree: variables", variables, "a list of Variable")
    expect(fits, "tree: nodes", nodes, "name of a node → the path at which it listens, and its ranks")
    expect(isinstance(root, str) and root, "tree: root", root, "the name of a node")
    variables = list(variables)
    ranks = {node: own for node, (_, own) in nodes.items()}
    common: dict[str, Any] = {"patience": patience, "live": live}
    made = RootStage(
        variables, ranks, store, memory=root_memory, incomplete=incomplete, compression=compression,
        name="root", on=root, **common,
    )  # fmt: skip
    graph = Graph(name)
    graph.add(made)
    for node, (listen, own) in nodes.items():
        leaf = LeafStage(
            variables, made.writers, listen, node, own, scheduler=scheduler, piece=piece, memory=memory,
            name=f"leaf of {node}", on=node, **common,
        )  # fmt: skip
        graph.add(leaf) >> graph["root"]
        graph["root"][made.port(node)] >> RootFates(listen, name=f"fates of {node}", on=node)
    return graph


# Daemons allow them by these names.
LeafStage.__module__ = RootStage.__module__ = RootFates.__module__ = "evflow.staging"
