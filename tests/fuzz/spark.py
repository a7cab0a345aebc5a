"""What comes to Spark's stones and to Spark from outside, and is wrong: it harms only who has said it.

Questions, rows that say of what task they are, answers, files on the disk, snapshots, options.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import numpy as np

import evflow as ev
from evflow.errors import EvflowError, SparkError
from evflow.spark.format.options import Options
from evflow.spark.landing import store
from evflow.stone import Checkpoint
from tests.fuzz.foreign import mutated
from tests.quiet import quiet
from tests.spark import landing
from tests.spark.landing import Desk, Note, Notes, Row

__all__ = ["QUESTIONS", "check", "refused"]

Tell = Callable[[str], None]

QUESTIONS = 40
"""Hostile questions in a case."""

TASK, SPOOL, SCHEMA = "<task>", "<spool>", "<schema>"
"""What is only known when it is asked, or is long."""

_COUNTS = (0, 1, 2, -1, 7, 100, (1 << 31), (1 << 53) + 1, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63)
_ODD: tuple[Any, ...] = (
    None,
    True,
    1.5,
    float("nan"),
    "",
    "x",
    "é\0\n",
    b"",
    b"\xff",
    [],
    {},
    [[]],
    {"a": 1},
)
_KEYS = "ask job epoch partition attempt schema run task tasks query at spool from to most first data".split()
_ASKS = "look begin begin begin append append end drop commit commit abort range rows rows nothing".split()


# What they log of such things is another matter, and slow.
@quiet("evflow.spark")
def check(random: Random, tell: Tell) -> int:
    """Tries one of all that can come; gives how much of it."""
    return random.choice([_source, _source, _sink, _sink, _disk, _disk, _snapshot, _answers, _options])(
        random, tell
    )


def refused(call: Callable[[], Any]) -> Any:
    """What a call returns; None if it refuses with an error that has a text, as it should."""
    try:
        return call()
    except EvflowError as error:
        text = str(error)
        assert text and len(text) < 5000, text[:1000]
        return None


def nested(depth: int) -> Any:
    """A list in a list, and so on."""
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


def value(random: Random) -> Any:
    """Anything that msgpack can say."""
    choice = random.randrange(12)
    if choice < 4:
        return random.choice(_COUNTS)
    if choice == 4:
        return random.choice(["x" * 1001, "x" * 100_000, nested(1000), nested(50), {"a": nested(900)}])
    if choice == 5:
        return [value(random) for _ in range(random.randrange(4))]
    if choice == 6:
        return [[value(random) for _ in range(3)] for _ in range(random.randrange(3))]
    return random.choice([*_ODD, TASK, SPOOL, SCHEMA, "job", "other"])


def question(random: Random) -> dict[str, Any]:
    """A question as Spark asks it, or one that is changed in some places."""
    found: dict[str, Any] = {
        "ask": random.choice(_ASKS), "job": random.choice(["job", "other"]), "epoch": random.randrange(3),
        "partition": random.randrange(3), "attempt": 0, "schema": SCHEMA, "run": "run", "task": TASK,
        "tasks": [[random.randrange(2), TASK, random.randrange(3)]], "query": f"q{random.randrange(5)}",
        "at": random.randrange(12), "spool": SPOOL, "from": random.randrange(12), "to": random.randrange(12),
        "most": random.choice([0, 1, 1 << 20]), "first": random.randrange(3), "rows": 2,
        "data": landing.rows(0, 2).to_bytes(),
    }  # fmt: skip
    for _ in range(random.choice([0, 1, 1, 2, 4])):
        key = random.choice(_KEYS)
        found[key] = value(random)
        if random.randrange(5) == 0:
            del found[key]
    return found


def filled(node: Any, known: dict[str, Any], depth: int = 5) -> Any:
    """A question with what is only known now."""
    if isinstance(node, dict) and depth:
        return {key: filled(held, known, depth - 1) for key, held in node.items()}
    if isinstance(node, list) and depth:
        return [filled(held, known, depth - 1) for held in node]
    return known.get(node, node) if isinstance(node, str) else node


def _said(asked: dict[str, Any]) -> str:
    return ", ".join(f"{key}: {_short(held)}" for key, held in asked.items())


def _short(held: Any) -> str:
    try:
        return f"{held!r:.60}"
    except RecursionError:
        return "deep"


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="fuzz-spark-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


# A source, and whoever asks and sends.


def _source(random: Random, tell: Tell) -> int:
    with _folder() as path:
        desk = Desk(path / "rows", limit=random.choice([1 << 20, 1 << 30]))
        most, store.MOST_TASKS = store.MOST_TASKS, 30
        try:
            _ask_source(random, tell, desk)
        finally:
            store.MOST_TASKS = most
            desk.actor.close()
    return QUESTIONS


def _ask_source(random: Random, tell: Tell, desk: Desk) -> None:
    first, second = desk.begin("healthy", 0, 0), desk.begin("healthy", 0, 1)
    desk.send(first, 0, 5)
    known = {TASK: 0, SPOOL: "", SCHEMA: Row.schema.description}
    own = []
    for _ in range(QUESTIONS):
        asked = question(random)
        tell(_said(asked))
        answer = refused(lambda asked=asked: desk.actor.answer(filled(asked, known)))
        msgpack.packb(answer)
        if isinstance(answer, dict) and answer.get("task"):
            own.append(known[TASK])
            known[TASK] = answer["task"]
        if random.randrange(4) == 0:
            _send(random, desk, known[TASK])
        if random.randrange(4) == 0:
            desk.actor.wake(time.monotonic())
        assert len(desk.tasks()) <= 30
    # It has sent nothing, so it may have made way; then Spark tries it again.
    if second not in desk.tasks():
        second = desk.begin("healthy", 0, 1, 1)
    desk.send(second, 0, 3, seq=5)
    before = desk.notes.seen
    desk.release()
    assert desk.commit([(0, first, 5), (1, second, 3)], "healthy") == 8
    found = desk.release()
    assert found == list(range(8)), (found, before)
    assert desk.commit([(0, first, 5), (1, second, 3)], "healthy") == 8 and desk.release() == []


def _send(random: Random, desk: Desk, task: int) -> None:
    """Rows that are not what they say; those of the healthy tasks nobody else can name."""
    batch = landing.rows(1000, random.choice([1, 2, 50]), random.choice([Row, Row, Row, Note]))
    asked = landing.appending(batch, task, random.choice([0, 1, 2, 50, (1 << 62) - 1]))
    if random.randrange(2):
        asked["data"] = mutated(random, asked["data"])
    if random.randrange(4) == 0:
        asked["rows"] = random.choice(_COUNTS)
    refused(lambda: desk.actor.answer(asked))


# A sink, and whoever asks.


class SinkNotes(Notes):
    frame = None


def _sink(random: Random, tell: Tell) -> int:
    with _folder() as path:
        stone = ev.SparkSink(Row, path=path / "log", limit=1 << 16)
        actor: Any = stone.open(SinkNotes())  # type: ignore[arg-type]
        actor.receive(landing.rows(0, 10), "rows")
        spool = actor.answer({"ask": "range"})["spool"]
        known = {TASK: 3, SPOOL: spool, SCHEMA: Row.schema.description}
        healthy = {"query": "healthy query", "spool": spool}
        at = random.randrange(10)
        actor.answer({"ask": "range", "at": at, **healthy})
        for _ in range(QUESTIONS):
            asked = question(random)
            tell(_said(asked))
            msgpack.packb(refused(lambda asked=asked: actor.answer(filled(asked, known))))
        actor.receive(landing.rows(10, 5), "rows")
        there = actor.answer({"ask": "range", "at": at, **healthy})
        assert there["first"] <= at and there["next"] == 15
        found = actor.answer({"ask": "rows", "from": at, "to": 15, "most": 1 << 20, **healthy})
        batch = ev.EventBatch.from_bytes(Row, found["data"], found["rows"])
        assert batch["seq"].tolist() == list(range(at, 15))
        actor.close()
    return QUESTIONS


# Files that are there when a stone begins.


def _disk(random: Random, tell: Tell) -> int:
    with _folder() as path:
        source = random.randrange(2) == 0
        kind = random.choice([Row, Note])
        (_leave_source if source else _leave_sink)(path, kind)
        for file in sorted(path.rglob("*")):
            if file.is_file() and random.randrange(3) == 0:
                tell(f"{'source' if source else 'sink'} of {kind.__name__}: {_damage(random, file)}")
        if source:
            refused(lambda: _read_source(path, kind))
        else:
            refused(lambda: _read_sink(path, kind))
    return 1


def _leave_source(path: Path, kind: Any) -> None:
    desk = Desk(path, kind)
    first, second = desk.begin(), desk.begin("other")
    desk.send(first, 0, 50)
    desk.send(second, 0, 20)
    desk.commit([(0, first, 50)])
    desk.actor.wake(time.monotonic())
    desk.actor.close()


def _leave_sink(path: Path, kind: Any) -> None:
    actor: Any = ev.SparkSink(kind, path=path / "log", limit=1 << 16).open(SinkNotes())  # type: ignore[arg-type]
    for first in range(0, 2000, 500):
        actor.receive(landing.rows(first, 500, kind), "rows")
    spool = actor.answer({"ask": "range"})["spool"]
    actor.answer({"ask": "range", "query": "q", "at": 3, "spool": spool})
    actor.close()


def _damage(random: Random, file: Path) -> str:
    content = file.read_bytes()
    choice = random.randrange(6)
    if choice == 0:
        content = content[: random.randrange(len(content) + 1)]
    elif choice == 1:
        at = random.randrange(len(content) + 1)
        content = content[:at] + bytes(len(content) - at)
    elif choice == 2:
        content = random.randbytes(random.choice([0, 10, 5000]))
    elif choice == 3:
        file.unlink()
        return f"{choice} of a file of {len(content)} bytes"
    else:
        for _ in range(random.choice([1, 1, 3])):
            content = mutated(random, content)
    file.write_bytes(content)
    return f"{choice} of a file of {len(content)} bytes"


def _read_source(path: Path, kind: Any) -> None:
    desk = Desk(path, kind)
    try:
        # It tries again for good what it cannot read; a few times are enough here.
        for _ in range(10):
            desk.actor.wake(time.monotonic())
        for _, seqs in desk.notes.emitted:
            assert len(seqs) <= 50
        for task in desk.tasks():
            refused(lambda task=task: desk.landed(task))
            refused(lambda task=task: desk.commit([(0, task, 20)], "other"))
        for _ in range(10):
            desk.actor.wake(time.monotonic())
        desk.actor.settled(desk.actor.mark())
        refused(lambda: desk.begin("new"))
        refused(desk.actor.checkpoint)
    finally:
        desk.actor.close()


def _read_sink(path: Path, kind: Any) -> None:
    actor: Any = ev.SparkSink(kind, path=path / "log", limit=1 << 16).open(SinkNotes())  # type: ignore[arg-type]
    try:
        there = actor.answer({"ask": "range"})
        known = {"spool": there["spool"], "most": 1000}
        for at in range(there["first"], min(there["next"], there["first"] + 2000), 100):
            found = refused(lambda at=at: actor.answer({"ask": "rows", "from": at, "to": at + 50, **known}))
            if found is not None:
                ev.EventBatch.from_bytes(kind, found["data"], found["rows"])
        refused(lambda: actor.receive(landing.rows(0, 5, kind), "rows"))
        refused(actor.checkpoint)
        refused(lambda: actor.answer({"ask": "commit", "query": "q", "to": there["next"], **known}))
    finally:
        actor.close()


# What another node says that a stone was.


def _snapshot(random: Random, tell: Tell) -> int:
    with _folder() as path:
        if random.randrange(2):
            _leave_source(path / "a", Row)
            one, other = Desk(path / "a").actor, Desk(path / "b").actor
        else:
            (path / "c").mkdir()
            _leave_sink(path / "c", Row)
            one, other = (
                ev.SparkSink(Row, path=path / "c" / name, limit=1 << 16).open(SinkNotes())  # type: ignore
                for name in ("log", "other")
            )
        given = one.checkpoint()
        assert given.state is not None
        state = msgpack.unpackb(given.state.tobytes(), strict_map_key=False)
        for _ in range(random.choice([1, 1, 2])):
            state = _changed(random, state)
        tell(f"{len(state) if isinstance(state, list) else _short(state)}")
        content = random.choice([msgpack.packb(state), mutated(random, given.state.tobytes())])
        hostile = Checkpoint(given.held, np.frombuffer(content, np.uint8), given.layout)
        refused(lambda: other.restore(hostile))
        refused(other.checkpoint)
        for actor in (one, other):
            actor.close()
    return 1


def _changed(random: Random, state: Any) -> Any:
    """Plain data with a part exchanged."""
    if not isinstance(state, list) or not state or random.randrange(4) == 0:
        return value(random)
    at = random.randrange(len(state))
    if random.randrange(6) == 0:
        return [*state, state[at]]
    return [*state[:at], _changed(random, state[at]), *state[at + 1 :]]


# What Spark is answered.


class HostileConnection:
    """A connection to a node that says what it likes."""

    def __init__(self, options: Options, random: Random, tell: Tell) -> None:
        self.options, self.rows = options, 0
        self._random, self._tell = random, tell

    def ask(self, question: Any, kind: Any, timeout: float | None = None) -> Any:
        from evflow.spark.questions import answered, packed

        random = self._random
        good: dict[str, Any] = {
            "spool": "s", "first": 0, "next": 5, "bytes": 50, "schema": Row.schema.description, "schemas": [],
            "task": 7, "done": False, "rows": 5, "data": landing.rows(0, 5).to_bytes(),
        }  # fmt: skip
        for _ in range(random.choice([0, 1, 1, 2])):
            good[random.choice(list(good))] = value(random)
        if random.randrange(10) == 0:
            good["data"] = mutated(random, good["data"]) if isinstance(good["data"], bytes) else b""
        self._tell(_said({**packed(question), **good}))
        return answered(value(random) if random.randrange(20) == 0 else good, kind)

    def close(self) -> None: ...

    def __enter__(self) -> HostileConnection:
        return self

    def __exit__(self, *error: object) -> None: ...


def _answers(random: Random, tell: Tell) -> int:
    with contextlib.suppress(ImportError):
        _answer(random, tell)
    return 1


def _answer(random: Random, tell: Tell) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from evflow.spark.columns.schemas import struct_of
    from evflow.spark.format import reading, writing
    from evflow.spark.questions import Range, There

    options = Options.parse({"contact": "tcp://127.0.0.1:1", "stone": "rows"})
    line: Any = HostileConnection(options, random, tell)
    struct = struct_of(Row.schema)
    choice = random.randrange(5)
    if choice == 0:
        part = reading.Slice("s", Row.schema.description, 0, 10, 10)
        found = refused(lambda: reading._ask(line, part.spool, Row.schema, 0, 10))
        assert found is None or sum(map(len, found)) == 10
    elif choice == 1:
        refused(lambda: reading._planned(options, line.ask(Range(), There), 0, 5, struct))
    elif choice == 2:
        stream = reading.StreamReader({"contact": options.contact, "stone": "rows"}, struct)
        stream._connection = line
        start = refused(stream.initialOffset)
        end = start and refused(lambda: stream.latestOffset(start, ReadMaxRows(3)))
        if end:
            parts = refused(lambda: stream.partitions(start, end))
            assert parts is None or len(parts) <= 1000
            refused(lambda: stream.commit(end))
    elif choice == 3:
        refused(lambda: writing.taken(line, struct, 1.0))
    else:
        messages = [random.choice([None, writing.Sent("job", 0, n, 7, 5), object()]) for n in range(3)]
        found = refused(lambda: writing._all_sent(messages))
        assert (found is not None) == all(isinstance(one, writing.Sent) for one in messages)


# Options.


def _options(random: Random, tell: Tell) -> int:
    for _ in range(8):
        given = {"contact": "tcp://10.0.0.1:7000", "stone": "rows", "timeout": "3"}
        for _ in range(random.choice([1, 2])):
            name = random.choice(
                [*given, "keys", "name", "plain", "from", "to", "partitions", "query", "x", ""]
            )
            given[name] = random.choice(
                ["", "9" * 5000, "-1", "1e999", "nan", "a=tcp://h:1", "ipc://\0", "é" * 300, "\0", "٣", "[",
                 "/x", "**", "true", "tcp://h:99999999999999999999", "=", "x" * 100_000, " 1 "]
            )  # fmt: skip
        tell(repr(given)[:2000])
        with contextlib.suppress(SparkError):
            Options.parse(given, reads=True)
    return 8
