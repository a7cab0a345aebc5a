"""A client's connection: publishes and subscribes by calls, and takes matches in a thread of its own."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evflow import mishaps
from evflow.closing import Closing
from evflow.errors import EvflowError, FlowError, LinkError
from evflow.flow.flow import Flow
from evflow.mishaps import CONTAINED
from evflow.net.node.node import Node
from evflow.tiles.client import Client
from evflow.tiles.matches import Batches, Matches
from evflow.tiles.messages import GONE, MOST_POLYGONS, SUBSCRIPTION, Message, Outbox, Place, Rows
from evflow.tiles.moves import ASKED, Zones, asked_of, moves_of
from evflow.tiles.store import Content, content_of, outlines_of
from evflow.tiles.wire import PART_ROWS, Gathering, parts

__all__ = ["Connection", "connect"]

_log = logging.getLogger("evflow.tiles")

_AGAIN = 0.1
"""Seconds between two tries to connect."""

_MOST_PUSHED = 4 << 20

Handler = Callable[[Rows], object]


def connect(
    contact: str, handler: Handler | None = None, *, window: int = 200_000, patience: float = 3.0, **node: Any
) -> Connection:
    """Connects to a system of tiles.

    Args:
        contact: the address of one of its daemons, the deployment and the host:
            ``tcp://10.0.0.1:7000/tiles/a``. When this one dies, others take its place.
        handler: called with each batch of matches, rows of ``MATCH``, in a thread of the connection; without
            one, iterate over the connection, by ``for`` or ``async for``.
        window: moves that may be under way; more wait in ``publish``, ``subscribe`` and ``move``.
        patience: seconds without an answer after which it tries another host.
        node: arguments of ``ev.Node``, such as ``keys`` and with them ``name``.

    Raises:
        EvflowError: the contact is none, or nobody answers there.
    """
    return Connection(contact, handler, window=window, patience=patience, **node)


class Connection(Closing):
    """A client of a system of tiles; see ``connect``. All methods may be called in any thread.

    Publications and subscriptions are known by integers of the program's choice, at least 0, unlike those of
    other clients. A zone is a circle (latitude, longitude, radius in metres) or a box (south, west, north,
    east). One call takes many: ids of (N,) and zones of (N, 3) or (N, 4). Areas of ``evflow.matching`` on the
    globe are zones, too: an object, a list of them, or ``AreaColumns``; so polygons are given, of at most
    1,000 corners.

    Args:
        contact: see ``connect``, as for the others.
        handler: takes matches.
        window: moves that may be under way.
        patience: seconds without an answer.
        node: arguments of ``ev.Node``.

    Attributes:
        refused: moves that a Frontend has refused.
    """

    def __init__(
        self, contact: str, handler: Handler | None, *, window: int, patience: float, **node: Any
    ) -> None:
        address, deployment, host = self._parsed(contact)
        self._deployment, self._handler, self._window = deployment, handler, window
        self._contacts = {host: address}
        self._at, self._patience = host, patience
        self.refused = 0
        self._number = secrets.randbits(61)
        self._client = Client(Place("client", self._number), Place("frontend", 0))
        # Versions rise over restarts of the program, too.
        self._version = time.time_ns() // 1000
        self._contents: dict[tuple[bool, int], int] = {}
        self._asked: dict[int, int] = {}
        self._gathering = Gathering()
        self._epoch = 0
        self._under_way = 0
        self._sizes: dict[int, int] = {}
        self._outbox: deque[Message] = deque()
        self._matches = Matches()
        self._lock = threading.Condition()
        self._is_closed = False
        self._flow = Flow.empty("tiles", node=Node(**{"name": f"tiles-{secrets.token_hex(6)}", **node}))
        try:
            self._reconnect(0, time.monotonic() + 2 * patience)
        except BaseException:
            self._flow.close(timeout=0)
            raise
        self._threads = [
            threading.Thread(target=call, name=f"evflow tiles {what}", daemon=True)
            for what, call in (("sends", self._push_all), ("takes", self._take_all))
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _parsed(contact: str) -> tuple[str, str, str]:
        head, _, rest = str(contact).partition("://")
        listed = rest.rsplit("/", 2)
        if len(listed) != 3 or not all(listed) or not head:
            raise EvflowError(
                f"contact {contact!r}: expected an address, a deployment and a host, such as "
                "tcp://10.0.0.1:7000/tiles/a"
            )
        return f"{head}://{listed[0]}", listed[1], listed[2]

    # --- what a program does

    def publish(self, ids: ArrayLike, zones: Zones, attributes: Mapping[str, Any] | None = None) -> int:
        """Publishes, or gives publications other zones and attributes.

        Args:
            ids: one integer, or (N,).
            zones: one zone or many, such as (N, 3) circles or (N, 4) boxes; see ``Connection``.
            attributes: text, numbers and truth values by name, of all of them.

        Returns:
            Their version.

        Raises:
            EvflowError: something is wrong with them; nothing is sent.
        """
        return self._send(0, ids, zones, attributes or {})

    def subscribe(
        self,
        ids: ArrayLike,
        zones: Zones,
        attributes: Mapping[str, Any] | None = None,
        *,
        events: Collection[str] = ("match",),
    ) -> int:
        """Subscribes, or gives subscriptions other zones and attributes.

        Args:
            ids: one integer, or (N,).
            zones: one zone or many, such as (N, 3) circles or (N, 4) boxes; see ``Connection``.
            attributes: those that a publication must have.
            events: what is told: ``match``, or some of ``enter``, ``inside`` and ``leave``.

        Returns:
            Their version.

        Raises:
            EvflowError: something is wrong with them; nothing is sent.
        """
        return self._send(SUBSCRIPTION | asked_of(events), ids, zones, attributes or {})

    def move(self, ids: ArrayLike, zones: Zones, *, subscriptions: bool = False) -> int:
        """Moves publications or subscriptions of this client; their attributes stay.

        Args:
            ids: one integer, or (N,).
            zones: one zone or many, such as (N, 3) circles or (N, 4) boxes; see ``Connection``.
            subscriptions: whether the ids are those of subscriptions.

        Returns:
            Their version.

        Raises:
            EvflowError: something is wrong with them; nothing is sent.
        """
        return self._send(SUBSCRIPTION if subscriptions else 0, ids, zones, None)

    def unsubscribe(self, ids: ArrayLike) -> int:
        """Deletes subscriptions.

        Args:
            ids: one integer, or (N,).

        Returns:
            The version of the deletion.
        """
        return self._send(SUBSCRIPTION | GONE, ids, None, None)

    def unpublish(self, ids: ArrayLike) -> int:
        """Deletes publications.

        Args:
            ids: one integer, or (N,).

        Returns:
            The version of the deletion.
        """
        return self._send(GONE, ids, None, None)

    def _send(
        self, flags: int, ids: ArrayLike, zones: Zones | None, attributes: Mapping[str, Any] | None
    ) -> int:
        rows, outlines = moves_of(flags, ids, zones)
        named: dict[int, Content] = {}
        if attributes is not None:
            number, content = content_of(attributes)
            rows["content"] = number
            named = {number: content} if content else {}
        most = MOST_POLYGONS if outlines else PART_ROWS
        with self._lock:
            self._remember(rows, attributes is not None)
            self._version += 1
            rows["version"] = self._version
            version = self._version
            for start in range(0, len(rows), most):
                part = rows[start : start + most]
                drawn: dict[int, Content] = {
                    number: outlines[number] for number in outlines_of(part).tolist()
                }
                self._lock.wait_for(lambda: self._is_closed or self._under_way < self._window)
                self._refuse_closed()
                outbox = self._client.send(part, named | drawn)
                self._under_way += len(part)
                self._sizes[outbox[0][1].number] = len(part)
                self._post(outbox)
        return version

    def _remember(self, rows: Rows, is_named: bool) -> None:
        """Which attributes entities have, and what they ask for; only if there is something."""
        which = bool(rows["flags"][0] & SUBSCRIPTION) if len(rows) else False
        if is_named and len(rows) and rows["content"][0]:
            self._contents.update(
                dict.fromkeys(((which, i) for i in rows["id"].tolist()), int(rows["content"][0]))
            )
        elif self._contents and not is_named:
            rows["content"] = [self._contents.get((which, i), 0) for i in rows["id"].tolist()]
        elif self._contents:
            for i in rows["id"].tolist():
                self._contents.pop((which, i), None)

        if which:
            self._remember_asked(rows, is_named)

    def _remember_asked(self, rows: Rows, is_named: bool) -> None:
        asked, ids = int(rows["flags"][0]) & ASKED, rows["id"].tolist()
        if asked:
            self._asked.update(dict.fromkeys(ids, asked))
        elif self._asked and (is_named or rows["flags"][0] & GONE):
            for i in ids:
                self._asked.pop(i, None)
        elif self._asked:
            rows["flags"] |= np.array([self._asked.get(i, 0) for i in ids], np.uint8)

    def _post(self, outbox: Outbox) -> None:
        self._outbox += [message for _, message in outbox]
        self._lock.notify_all()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise FlowError("this connection is closed")

    def drain(self, timeout: float | None = None) -> None:
        """Waits until the State Managers have all that was sent. Its matches may come later.

        Args:
            timeout: seconds; None for as long as it takes.

        Raises:
            FlowError: it took longer; or the connection is closed.
        """
        with self._lock:
            done = self._lock.wait_for(lambda: self._is_closed or self._client.idle, timeout)
            if not done:
                raise FlowError(f"{self._under_way} moves are not acknowledged after {timeout} s")
            self._refuse_closed()

    @property
    def host(self) -> str:
        """The host of the Frontend that it is connected to."""
        return self._at

    @property
    def copies(self) -> int:
        """Matches that came again, and were dropped."""
        return self._client.copies

    def batches(self, timeout: float | None = None) -> Batches:
        """Matches as they come, in batches: rows of ``MATCH``, by ``for`` or ``async for``.

        Args:
            timeout: seconds without any after which it ends; None for never.
        """
        return Batches(self._matches, timeout)

    def __iter__(self) -> Iterator[np.void]:
        """Matches as they come, one after the other, until the connection is closed."""
        for rows in self.batches():
            yield from rows

    async def __aiter__(self) -> AsyncIterator[np.void]:
        """The same for asyncio."""
        async for rows in self.batches():
            for row in rows:
                yield row

    def close(self) -> None:
        """Ends the connection; what it has published and subscribed to stays until it is deleted.

        What was not acknowledged may be lost: call ``drain`` before.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._lock.notify_all()
        self._matches.close()
        # So its host answers what the other thread waits for.
        with suppress(EvflowError):
            self._ask(min(self._patience, 0.5), leave=True)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(2 * self._patience)
        self._flow.close(timeout=0)

    # --- its threads

    def _ask(self, patience: float, **question: Any) -> dict[str, Any]:
        contact, stone = self._contacts[self._at], f"{self._deployment}/{self._at}"
        answer = self._flow.ask(contact, stone, {"client": self._number, **question}, patience)
        if not isinstance(answer, dict):
            raise EvflowError(f"stone {stone!r}: expected a map as answer, found {answer!r}")
        return answer

    def _reconnect(self, epoch: int, until: float | None = None) -> None:
        """Connects to the next host that answers, unless another thread has done so since ``epoch``."""
        with self._lock:
            while epoch == self._epoch and not self._is_closed:
                try:
                    answer = self._ask(self._patience, connect=True)
                    self._contacts.update({str(name): str(text) for name, text in answer["hosts"].items()})
                    frontend = Place("frontend", int(answer["frontend"]))
                except (EvflowError, KeyError, ValueError) as error:
                    if until is not None and time.monotonic() > until:
                        raise EvflowError(f"no Frontend answers: {error}") from error
                    self._at = self._next()
                    self._lock.wait(_AGAIN)
                    continue
                self._epoch += 1
                self._gathering = Gathering()
                outbox = self._client.moved_to(frontend)
                self._outbox.clear()
                self._post(outbox)

    def _push_all(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._outbox or self._is_closed)
                if self._is_closed:
                    return
                epoch, size, taken = self._epoch, 0, list[dict[str, Any]]()
                while self._outbox and (not taken or size + self._outbox[0].rows.nbytes < _MOST_PUSHED):
                    size += self._outbox[0].rows.nbytes
                    taken += parts(self._outbox.popleft())
            try:
                while taken:
                    few = _few(taken)
                    self._ask(self._patience, messages=taken[:few])
                    taken = taken[few:]
            except EvflowError as error:
                self._lost(epoch, error)

    def _take_all(self) -> None:
        while True:
            with self._lock:
                if self._is_closed:
                    return
                epoch = self._epoch
            try:
                messages = self._gathering.take(self._asked_for())
            except EvflowError as error:
                self._lost(epoch, error)
                continue
            for message in messages:
                self._take(epoch, message)

    def _asked_for(self) -> list[dict[str, Any]]:
        """What there is for this client, once there is something, or time has passed."""
        found: list[dict[str, Any]] = self._ask(self._patience, take=self._patience / 3).get("messages", [])
        return found

    def _lost(self, epoch: int, error: EvflowError) -> None:
        if not self._is_closed:
            with self._lock:
                if epoch == self._epoch and isinstance(error, LinkError):
                    _log.info("connection to %s: %s; trying %s", self._at, error, self._next())
                    self._at = self._next()
            self._reconnect(epoch)

    def _next(self) -> str:
        names = sorted(self._contacts)
        return names[(names.index(self._at) + 1) % len(names)]

    def _take(self, epoch: int, message: Message) -> None:
        with self._lock:
            if epoch != self._epoch:
                return
            matches, outbox = self._client.receive(self._client.frontend, message)
            if message.kind == "ack":
                self._under_way -= self._sizes.pop(message.number, 0)
                self._lock.notify_all()
            elif message.kind == "refused":
                self.refused += len(message.rows)
                _log.warning(
                    "%d moves were refused, the first of id %d", len(message.rows), message.rows["id"][0]
                )
            if message.kind == "matches" and len(matches) and self._handler is None:
                self._matches.put(matches)
        if message.kind == "matches" and len(matches) and self._handler is not None:
            try:
                self._handler(matches)
            except CONTAINED as error:
                mishaps.tell(_log, "tiles client", "its handler failed", error)
        # What was handled is acknowledged, not before.
        with self._lock:
            if outbox and epoch == self._epoch:
                self._post(outbox)


def _few(listed: list[dict[str, Any]]) -> int:
    """How many parts go at once."""
    size = 0
    for count, part in enumerate(listed):
        size += len(part["rows"]) + len(part.get("contents", b""))
        if count and size > _MOST_PUSHED:
            return count
    return len(listed)
