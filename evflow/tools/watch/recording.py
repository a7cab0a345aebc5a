"""Recordings: files of events with the times they came at, and how they are submitted again.

A recording is a log of one file. Whoever opens it to record begins a session, and a session describes each
schema before the first batch of it, so that a file needs nothing else to be read:

    ["session", wall, stone, node, evflow]   seconds since 1970; of what and where; the version of evflow
    ["schema", number, description]          JSON
    ["events", seconds, schema, count, attributes]   since the session began; the body holds the events

Attributes are as a frame between nodes carries them (``evflow.net.link.attributes``).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.msgpack import encode

import evflow
from evflow.closing import Closing
from evflow.disk import Log
from evflow.errors import EvflowError, FlowError, LinkError, UnwrittenError
from evflow.events.batch import EventBatch
from evflow.events.joining import pieces
from evflow.net.link.attributes import pack, unpack
from evflow.outside import from_json, shown
from evflow.schema import Schema

_WHAT, _KIND = "recording", "recording 2"

_LARGE = 16 << 20
"""Bytes of events from which a batch becomes several pieces."""


class Session(NamedTuple):
    """What a session says of itself: when it began (seconds since 1970), of which stone of which node."""

    wall: float
    stone: str
    node: str
    version: str


class Recorded(NamedTuple):
    """Events of a recording.

    Attributes:
        seconds: since the recording began; a session begins when the one before has ended.
        batch: the events.
    """

    seconds: float
    batch: EventBatch


class Recorder(Closing):
    """Writes batches to a file with the times they come at; a file that is there is continued.

    What is written is with the system at once, so a kill costs at most the batch that is being written.

    Args:
        path: the file.
        stone: the name of the stone whose events these are.
        node: the node it is on.
        clock: seconds, only forward.
        wall: seconds since 1970.

    Raises:
        FlowError: the file cannot be written, is not a recording, or another recorder writes it.

    Attributes:
        events: written so far, by this recorder.

    Example:
        >>> import evflow as ev
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> class Ping(ev.Event):
        ...     number: int
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "pings.evrec")
        ...     with Recorder(path, stone="pings") as recorder:
        ...         recorder.write(ev.EventBatch.from_events([Ping(1), Ping(2)]))
        ...     [event.number for recorded in Recording(path) for event in recorded.batch]
        [1, 2]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        stone: str = "",
        node: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.events = 0
        self._path = Path(path)
        self._clock = clock
        self._schemas: dict[str, int] = {}
        self._log = Log(self._path, _WHAT, _KIND)
        session = ["session", wall(), stone, node, evflow.__version__]
        try:
            if self._log.begun:
                for _ in self._log.pieces():
                    pass
                self._log.append(session)
            else:
                self._log.begin([[(session, b"")]])
        except BaseException:
            self._log.close()
            raise
        self._began = clock()

    def write(self, batch: EventBatch, seconds: float | None = None) -> None:
        """Writes a batch.

        Args:
            batch: the events; none does nothing.
            seconds: when they came, since the recorder was made; by default now.

        Raises:
            FlowError: the recorder is closed.
            UnwrittenError: the file cannot be written now; it says how many of the events it has, and the
                others may be written again.
        """
        before = self.events
        try:
            self._write(batch, seconds)
        except UnwrittenError as error:
            raise UnwrittenError(str(error), self.events - before) from error

    def _write(self, batch: EventBatch, seconds: float | None) -> None:
        at = self._clock() - self._began if seconds is None else seconds
        for whole in pieces(batch, _LARGE):
            number = self._number(whole.schema)
            try:
                attributes = pack(whole.attributes)
            except LinkError as error:
                raise FlowError(f"{self._path}: {error}") from error
            self._log.append(["events", at, number, len(whole), attributes], whole.data.data)
            self.events += len(whole)

    def _number(self, schema: Schema) -> int:
        number = self._schemas.get(schema.fingerprint)
        if number is None:
            number = len(self._schemas)
            self._log.append(["schema", number, json.dumps(schema.description, separators=(",", ":"))])
            self._schemas[schema.fingerprint] = number
        return number

    def close(self) -> None:
        """Ends it. Closing twice does nothing."""
        self._log.close()


class Recording:
    """The events of a file that a ``Recorder`` wrote; each iteration reads it from the beginning.

    Bytes are validated as if a stranger had sent them. One batch is in memory at a time.

    Args:
        path: the file.

    Attributes:
        sessions: what the sessions read so far say of themselves.
        torn: the bytes at the end that were left out, known when an iteration has come there: a recorder was
            killed while it wrote them, or writes them now.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.sessions: list[Session] = []
        self.torn = 0
        self._path = Path(path)

    def __iter__(self) -> Iterator[Recorded]:
        """The batches, in the order recorded.

        Raises:
            FlowError: the file cannot be read, is not a recording, or is damaged; names the byte.
        """
        log = Log(self._path, _WHAT, _KIND, write=False)
        try:
            yield from self._read(log)
            self.torn = self._path.stat().st_size - log.end
        finally:
            log.close()

    def _read(self, log: Log) -> Iterator[Recorded]:
        self.sessions = []
        schemas: dict[int, Schema] = {}
        began = last = 0.0
        for piece in log.pieces():
            try:
                match piece.meta:
                    case ["session", *_]:
                        self.sessions.append(_session(piece.meta))
                        schemas, began = {}, last
                    case ["schema", int(number), str(text)] if self.sessions:
                        schemas[number] = Schema.from_description(from_json(text))
                    case ["events", float() | int() as seconds, int(number), int(count), attributes]:
                        # Never back, whatever the file says.
                        last = max(last, began + _checked_seconds(seconds))
                        batch = _batch(log.body(piece), schemas.get(number), count, attributes)
                        yield Recorded(last, batch)
                    case _:
                        raise FlowError(f"found {shown(piece.meta)}, expected a session, schema or events")
            except (EvflowError, ValueError, RecursionError) as error:
                raise FlowError(f"{self._path}: the piece at byte {piece.at:,}: {error}") from error


def _session(meta: list[Any]) -> Session:
    match meta:
        case [_, float() | int() as wall, str(stone), str(node), str(version)]:
            return Session(float(wall), stone, node, version)
    raise FlowError(f"expected ['session', seconds, stone, node, version], found {shown(meta)}")


def _checked_seconds(seconds: float) -> float:
    if not 0 <= seconds < 1e12:
        raise FlowError(f"expected seconds since the session began, found {shown(seconds)}")
    return float(seconds)


def _batch(body: bytes, schema: Schema | None, count: int, attributes: object) -> EventBatch:
    if schema is None:
        raise FlowError("its schema was not described before")
    batch = EventBatch.from_bytes(schema, body, count)
    told = unpack(encode(attributes), count)
    return batch if told is None else batch.with_attributes(told)


@dataclass
class Replayed:
    """What was replayed so far.

    Attributes:
        events: submitted.
    """

    events: int = 0


def replay(
    recording: Recording,
    submit: Callable[[EventBatch], object],
    *,
    speed: float | None = 1.0,
    loop: bool = False,
    done: Replayed | None = None,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> Replayed:
    """Submits the events of a recording, each batch when its time has come.

    Args:
        recording: the events.
        submit: takes each batch; it may block, then what follows is late, and not lost.
        speed: 2.0 for twice as fast; None for as fast as they are taken.
        loop: begin again at the end, until there is an exception.
        done: is brought up to date meanwhile, for whoever has to tell after an interruption.
        clock: seconds, only forward.
        wait: waits for so many seconds.

    Raises:
        FlowError: the speed is none, or the recording cannot be read.
    """
    if speed is not None and not 0 < speed < 1e9:
        raise FlowError(f"speed {speed!r}: expected a number above 0, or None for as fast as possible")
    done = Replayed() if done is None else done
    while True:
        before = done.events
        began = clock()
        for seconds, batch in recording:
            if speed is not None:
                left = began + seconds / speed - clock()
                if left > 0:
                    wait(left)
            submit(batch)
            done.events += len(batch)
        # A recording of nothing would be gone through without an end.
        if not loop or done.events == before:
            return done
