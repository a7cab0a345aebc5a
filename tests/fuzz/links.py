"""Messages that nobody should send, to a node with healthy peers: they harm only who sends them.

Node ``b`` has a healthy peer ``a`` that sends events to it, and a healthy peer ``c`` that it sends them on
to. Beside them are strangers that have connected to it, and ``e``, which it has dialled itself: these say
what a peer says, changed in all ways.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import msgpack

import evflow as ev
from evflow.errors import LinkError
from evflow.events.attributes import Attributes
from evflow.net.link import attributes as wire_attributes
from evflow.net.link import messages as m
from tests.codgen.programs import random_schema
from tests.fuzz import samples
from tests.link.pair import End, Network, Peer, Port
from tests.quiet import quiet

__all__ = ["MESSAGES", "World", "check"]

MESSAGES = 100
"""Hostile messages in a case; what is said rightly between them does not count."""

LARGE = 200_000
"""Bytes from which a header may take no more than a few times as much memory."""

MARK = "healthy"

_INTS = (0, 1, 2, 7, -1, 255, 1 << 31, (1 << 31) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_TEXTS = (
    "",
    "a",
    "b",
    "c",
    "e",
    "x" * 256,
    "x" * 4097,
    "tcp://h:1",
    "é\0\n",
    "end",
    "split",
    "held",
    "[]",
    "{}",
)
_STONES = (*("split", "held") * 6, "far", "nobody")


class Good(ev.Event):
    mark: ev.Str[8]
    number: int


# What it logs of strangers is another matter, and slow.
@quiet("evflow.link")
def check(random: Random, tell: Callable[[str], None]) -> int:
    """Sends hostile messages to a node; gives how many."""
    world = World(random)
    number = 0
    while number < MESSAGES:
        stranger = random.choice(world.strangers)
        header, body, hostile = stranger.message()
        number += hostile
        tell(f"message {number}: {header[:3000].hex()} {'' if body is None else body[:3000].hex()}")
        stranger.send(header, body)
        if random.randrange(20) == 0:
            world.go_on(random.choice([0.0, 0.0, 0.003, 0.05, 0.3]))
        if hostile and number % 8 == 0:
            world.submit()
    world.finish()
    return MESSAGES


class World:
    """Three healthy nodes and strangers.

    Args:
        random: where the strangers get their ideas from.
    """

    def __init__(self, random: Random) -> None:
        self.network = Network()
        self.network.logs = False
        self.random = random
        self.sent = 0
        self.arrived: dict[str, list[int]] = {"end": [], "far": []}
        self.taken_over = False
        graph = self._graph()
        self.a = Peer(self.network, "a", graph, {"b": "b"})
        self.c = Peer(self.network, "c", graph)
        self.b = Peer(self.network, "b", graph, {"c": "c", "e": "e"}, window=1 << 16)
        self.strangers = [Stranger(self, f"s{n}") for n in range(3)]
        self.strangers.append(Stranger(self, "e", listens=True))
        self.submit()
        self.go_on(0.1)
        if random.randrange(3) == 0:
            self.b.engine.freeze(self.b.slots["held"])

    def _graph(self) -> ev.Graph:
        def taker(name: str) -> Callable[[ev.EventBatch], None]:
            def take(batch: ev.EventBatch) -> None:
                self.arrived[name] += [event.number for event in batch if event.mark == MARK]

            return take

        graph = ev.Graph()
        split = graph.source("pings", Good, on="a") >> ev.Split(name="split", on="b")
        split >> ev.Terminal(taker("end"), batch=True, name="end", on="b")
        split >> ev.Terminal(taker("far"), batch=True, name="far", on="c")
        split >> ev.Terminal(lambda event: None, name="lost", on="e")
        held = graph.source("held", Good, on="b")
        held >> ev.Terminal(lambda batch: batch.to_columns(), batch=True, name="sink", on="b")
        return graph

    def submit(self) -> None:
        """An event of the healthy peer."""
        self.sent += 1
        self.a.submit("pings", ev.EventBatch.from_events([Good(MARK, self.sent)]))

    def go_on(self, seconds: float) -> None:
        """Lets everybody talk, and time pass."""
        self.network.settle()
        self.network.now += seconds
        self.network.settle()

    def finish(self) -> None:
        """Lets the healthy nodes come to an end, and checks that they had no harm."""
        self.bounded()
        for stranger in self.strangers:
            stranger.port.take = lambda *message: None
        self.b.engine.unfreeze(self.b.slots["held"])
        self.b.engine.run()
        self.submit()
        self.network.run(9.0, 0.6)
        wanted = list(range(1, self.sent + 1))
        assert self.arrived["end"] == wanted, ("end", self.arrived["end"])
        assert self.arrived["far"] == wanted, ("far", self.arrived["far"])
        assert self.b.link("c").sessions == 1, self.b.link("c").trouble
        assert self.taken_over or self.a.link("b").sessions == 1, self.a.link("b").trouble

    def bounded(self) -> None:
        """What the node keeps of its peers is in proportion to what they have sent."""
        hub = self.b.hub
        assert len(hub.links) <= 103 + len(hub.connections)
        assert len(hub.connections) <= len(hub.links)
        connected = [link for link in hub.links.values() if link.connection]
        assert all(hub.connections.get(link.connection) is link for link in connected)
        for inlet in (*hub.remote_inputs.inlets.values(), *hub.remote_inputs.former):
            assert inlet.queued_bytes == sum(arrived.size for arrived in inlet.queue)
            assert max(inlet.safe, inlet.consumed) <= max(inlet.received, inlet._gone)
        for outlet in hub.outlets.values():
            assert outlet.resolved <= outlet.head


class Stranger:
    """Says what comes to its mind, now and then what a peer would."""

    def __init__(self, world: World, name: str, *, listens: bool = False) -> None:
        self.world, self.random, self.name = world, world.random, name
        self.port = Port(world.network)
        self.port.take = self._take
        self.listens = listens
        self.past: list[tuple[list[Any], bytes | None]] = []
        self.channels: dict[int, int] = {}
        self.greeted = False
        self.plan: list[list[Any]] = []
        self.known = [0]
        self.malice = self.random.choice([0.25, 0.5, 0.75])
        self.end: End | None = None
        if listens:
            world.network.ports[name] = self.port

    def _take(self, end: End, header: bytes, body: bytes | None, now: float) -> None:
        self.end = end
        said = m.unpack(header)
        if isinstance(said, m.Accept):
            self.channels[said.channel] = max(said.received, self.channels.get(said.channel, 0))
        elif isinstance(said, m.Hello) and self.random.random() < 0.8:
            self._begin()
            self.port.send(end, m.pack(m.Welcome(m.VERSION, self.name, bytes(16), "")))
        elif isinstance(said, m.Open) and self.listens and self.random.random() < 0.8:
            self.port.send(end, m.pack(m.Accept(said.channel, said.gone, 1 << 20)))
        elif isinstance(said, m.Reset | m.Refuse):
            self.greeted = False

    def send(self, header: bytes, body: bytes | None) -> None:
        """Sends bytes; on a new connection if it has none, or feels like it."""
        if self.end is None or self.end.closed or (not self.listens and self.random.randrange(50) == 0):
            self.end = self.port.connect(self.world.b.port)
            self.greeted = False
        name = _greeting(header)
        self.world.taken_over |= name == "a"
        if name == "c":
            # Without keys anybody may take over a name, and with it what is sent there.
            return
        # Straight to the hub: what goes through the network is read there before.
        if len(header) < LARGE:
            self.world.b.hub.receive(self.end.other, header, body, self.world.network.now)
        else:
            tracemalloc.start()
            self.world.b.hub.receive(self.end.other, header, body, self.world.network.now)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 3 * len(header) + (1 << 18), (peak, len(header))
        self.world.network.deliver()

    def message(self) -> tuple[bytes, bytes | None, bool]:
        """The next thing that it says: header and body, and whether it is hostile."""
        random = self.random
        # Most often it waits until its channels are open: what is said before gets not far.
        if random.random() > self.malice or (self.plan and random.random() < 0.8):
            fields, body = self._valid()
            self.past.append((fields, body))
            return _packed(fields), body, False
        return *self._hostile(random.randrange(100)), True

    def _hostile(self, choice: int) -> tuple[bytes, bytes | None]:
        random = self.random
        if choice < 8 and self.past:
            fields, body = random.choice(self.past)
            return _packed(fields), body
        if choice < 12:
            return noise(random), random.choice([None, b"", b"\x93"])
        if choice < 14:
            return large(random), None
        if choice < 24:
            return _packed(self._wrong()), None
        fields, body = self._data() if self.channels and choice < 74 else self._valid()
        if choice < 44 and body is not None:
            return _packed(fields), changed(random, body)
        if choice < 56 and fields[0] == 11:
            fields[8] = other(random, fields[8] or random.choice(frames())[3])
            return _packed(fields), body
        if choice < 84:
            return _packed(mutated(random, fields)), body
        if choice < 88:
            return _packed(fields), random.choice([None, b"", random.randbytes(9), body])
        return changed(random, _packed(fields)), body

    def _begin(self) -> None:
        """A session begins: channels and schemas first."""
        random = self.random
        self.greeted = True
        self.channels.clear()
        self.plan = [self._open(channel) for channel in range(random.randrange(1, 4))]
        self.known = random.sample(range(len(frames())), 3)
        self.plan += [[10, number, frames()[number][0]] for number in self.known]

    def _valid(self) -> tuple[list[Any], bytes | None]:
        """What a peer might say: its number and fields, and a body."""
        random = self.random
        if not self.greeted:
            self._begin()
            return [
                1,
                m.VERSION,
                self._name(),
                random.randbytes(16),
                random.choice(["", "b", "tcp://x"]),
            ], None
        if self.plan:
            return self.plan.pop(0), None
        if not self.channels or random.randrange(20) == 0:
            return self._open(random.randrange(4)), None
        return self._data() if random.randrange(4) else ([5, random.randrange(5)], None)

    def _open(self, channel: int) -> list[Any]:
        random = self.random
        stream = random.choice([bytes(16), random.randbytes(16)])
        bridge = random.choice(["x", "y", "pings→split", f"n{random.randrange(1000)}"])
        stone, gone = random.choice(_STONES), random.choice([0, 0, 0, 3])
        return [7, channel, bridge, stone, "", stream, random.randrange(2), gone]

    def _wrong(self) -> list[Any]:
        """A message that is well made, and probably wrong now."""
        random, number = self.random, self.random.randrange(5)
        return random.choice(
            [
                [1, m.VERSION, self._name(), random.randbytes(16), "b"],
                [10, number, random.choice(frames())[0]],
                [10, 99, _retold(random, random.choice(frames())[0])],
                [5, number], [6, number], [8, 0, number, random.choice(_INTS)], [9, 0, "no"],
                [12, 0, random.randrange(3), random.randrange(9), random.choice(_INTS)],
                [12, 0, number, number, 1 << random.randrange(64)],
                [13, "evflow-" + "0" * 32, 4096, bytes(16)], [14, True], [15, [number]], [16, number],
                [18, 0, number], [19, random.choice(["", "x" * 300, "topic"])], [20, number],
                [21, 0, random.choice(_INTS[:5])], [22, "evflow-" + "0" * 32, bytes(16)], [23, number > 2],
                [4, "r"], [17, "bye"], [3, "no"], [2, m.VERSION, self.name, bytes(16), ""],
            ]
        )  # fmt: skip

    def _name(self) -> str:
        return self.random.choice([self.name] * 20 + ["a", "b", f"n{self.random.randrange(10**6)}"])

    def _data(self) -> tuple[list[Any], bytes | None]:
        random = self.random
        channel = random.choice(list(self.channels))
        self.channels[channel] += 1
        number = random.choice(self.known)
        _, body, count, attributes = frames()[number]
        route, path = b"", []
        if random.randrange(3) == 0:
            route = random.choice([bytes(16), random.randbytes(16)])
            path = [random.choice(_INTS[:5]) for _ in range(random.choice([1, 2, 15, 16, 17, 64]))]
            path = [abs(number) for number in path]
        place = [1, 64, 4096] if random.randrange(40) == 0 else None
        attributes = attributes if random.randrange(2) else None
        return [11, channel, self.channels[channel], number, count, route, path, attributes, place], body


def _greeting(header: bytes) -> str | None:
    """The name in a ``Hello``; None if it is none."""
    try:
        said = m.unpack(header)
    except LinkError:
        return None
    return said.node if isinstance(said, m.Hello) else None


@cache
def frames() -> list[tuple[str, bytes, int, list[Any] | None]]:
    """Frames of some schemas: description, events, how many, attributes."""
    found = []
    for seed in range(24):
        random = Random(f"frames {seed}")
        schema = Good.schema if seed < 6 else random_schema(random, "Good" if seed % 2 else "S")
        events = [samples.event(random, schema) for _ in range(random.choice([0, 1, 2, 5]))]
        batch = ev.EventBatch.from_events(events, schema)
        rows = Attributes.from_rows([samples.attributes(random) for _ in events])
        packed = msgpack.unpackb(wire_attributes.pack(rows)) if rows is not None and events else None
        found.append((json.dumps(schema.description), batch.to_bytes(), len(events), packed))
    return found


def _packed(fields: Any) -> bytes:
    try:
        packed: bytes = msgpack.packb(fields, use_bin_type=True, unicode_errors="surrogatepass")
    except (ValueError, OverflowError, TypeError):
        return b"\x90"
    return packed


def mutated(random: Random, fields: list[Any]) -> list[Any]:
    """A message with some fields changed to others, mostly of their type."""
    fields = list(fields)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        choice = random.randrange(12)
        at = random.randrange(len(fields))
        if choice == 0:
            fields.append(strange(random))
        elif choice == 1 and len(fields) > 1:
            del fields[at]
        elif choice == 2:
            fields[0] = random.randrange(20)
        else:
            fields[at] = other(random, fields[at])
    return fields


def other(random: Random, value: Any) -> Any:
    """Another value, mostly of the same type."""
    if random.randrange(10) == 0:
        return strange(random)
    if isinstance(value, bool):
        return random.choice([not value, 0, 1, None])
    if isinstance(value, int):
        return random.choice([*_INTS, value + 1, value - 1, value ^ 1 << random.randrange(63)])
    if isinstance(value, bytes):
        return random.choice(
            [b"", value[1:], value + b"\0", random.randbytes(len(value)), changed(random, value)]
        )
    if isinstance(value, str):
        text = list(value)
        random.shuffle(text)
        return random.choice([*_TEXTS, value[1:], value + "x", "".join(text), _retold(random, value)])
    if isinstance(value, list) and value:
        value = list(value)
        at = random.randrange(len(value))
        choice = random.randrange(6)
        if choice == 0:
            del value[at]
        elif choice == 1:
            value.insert(at, random.choice(value))
        elif choice == 2:
            value *= random.choice([2, 40])
        else:
            value[at] = other(random, value[at])
        return value
    return strange(random)


def _retold(random: Random, text: str) -> str:
    """A description of a schema, with a part replaced."""
    for old, new in (
        ("f64", "i8"),
        ("str", "bytes"),
        ("i64", "array(f64,4294967295)"),
        ("Good", "S"),
        ('"', ""),
    ):
        if random.randrange(2):
            text = text.replace(old, new)
    return text


def strange(random: Random) -> Any:
    """Any value that msgpack has."""
    value: Any = random.choice(
        [
            None, True, 1.5, float("nan"), *_INTS, *_TEXTS, b"", b"x" * 16, b"x" * 300, [], {}, {1: 2},
            {"a": []}, msgpack.ExtType(5, b"abc"), msgpack.Timestamp(1, 2), [[]], [None] * 70,
            ["n", "I", None, 1],
        ]
    )  # fmt: skip
    for _ in range(random.choice([0, 0, 0, 1, 5, 50, 400])):
        value = [value]
    return value


def noise(random: Random) -> bytes:
    """Bytes that are probably no message at all."""
    return random.choice(
        [
            lambda: random.randbytes(random.randrange(60)),
            lambda: bytes([random.choice([0x91, 0x81, 0xDC, 0xDD, 0xDF, 0xC7])]) * random.randrange(3000),
            lambda: deep(random),
            lambda: deep(random),
            lambda: b"\xdd" + (random.choice(_INTS) % (1 << 32)).to_bytes(4, "big") + b"\x05" * 40,
            lambda: b"\xdc\x01\x00" * random.randrange(700),
            lambda: b"\x92\x0f" + b"\xdb\xff\xff\xff\xff" + b"a" * 30,
            lambda: b"\x82\x90\x01\x91\x01\x02",
            lambda: b"\x99" + bytes([random.randrange(20)]) + b"\xc0" * 8,
            lambda: _packed([random.randrange(19), *(strange(random) for _ in range(random.randrange(9)))]),
            lambda: b"",
        ]
    )()


def deep(random: Random) -> bytes:
    """A whole value that is nested deeply, alone or as a field of a message."""
    before = random.choice([b"", b"\x92\x05", b"\x92\x0f", b"\x99\x0b\x00\x01\x00\x01\xc4\x00\x90"])
    behind = b"\xc0" * (2 if before[:1] == b"\x99" else 1)
    return before + b"\x91" * random.choice([3, 60, 400, 990, 1000, 1010, 1500, 5000]) + behind


def large(random: Random) -> bytes:
    """A large header of many small values that no message has."""
    many = random.choice([b"\x90", b"\x80", b"\x91\xc0", b"\x92\x90\x90", b"\x93" + b"\xa2ab" * 3])
    count = LARGE // len(many)
    held = b"\xdd" + count.to_bytes(4, "big") + many * count
    before = random.choice([b"\x91", b"\x92\x05", b"\x92\x0f", b"\x99\x0b\x00\x01\x00\x01\xc4\x00\x90"])
    return before + held + b"\xc0" * (before[:1] == b"\x99")


def changed(random: Random, content: bytes) -> bytes:
    """Bytes with some flipped, cut off, put in or taken out."""
    made = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 5])):
        at = random.randrange(len(made) + 1)
        choice = random.randrange(5)
        if choice == 0:
            del made[at:]
        elif choice == 1:
            made[at:at] = random.randbytes(random.choice([1, 1, 8]))
        elif choice == 2:
            del made[at : at + random.choice([1, 4])]
        elif at < len(made):
            made[at] = random.choice([made[at] ^ 1 << random.randrange(8), 0, 0xFF, 0x7F, 0xC0, 0xDD])
    return bytes(made)
