"""Two nodes of which one changes what it has sent through shared memory, for ``test_changed_meanwhile.py``.

python -m tests.node.flipping reader KIND              tells its contact, then, for each line, what it saw
python -m tests.node.flipping foe KIND CONTACT FRAMES  sends, changes, and ends
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

import evflow as ev


class Wave(ev.Event):
    """Large arrays."""

    number: int
    samples: ev.Array[ev.f64, None]
    flags: ev.Array[bool, None]
    text: str


class Note(ev.Event):
    """Small, but many in a frame."""

    number: int
    name: str
    raw: ev.Bytes[300]
    tags: list[str]


def wave(event: Any) -> bool:
    total = 0.0
    for i in range(len(event.samples)):
        total += event.samples[i]
    return total < 1e300 and len(event.flags) >= 0 and event.text != "none"


def note(event: Any) -> bool:
    total = 0
    for i in range(len(event.tags)):
        total += len(event.tags[i])
    return total >= 0 and event.name != "none" and len(event.raw) != 70_000


ACCEPTS = {"wave": (Wave, wave), "note": (Note, note)}

# By kind of event: bytes that stand before a length in every frame, where it stands in them, its value then.
HEADS = {
    "wave": [
        (b"\xc9\x00\x04\xe2\x05\x0a\x01", 1, 0x7F),
        (b"\xc9\x00\x04\xe2\x05\x0a\x01", 10, 0x7F),
        (b"\xc9\x00\x00\x9c\x45\x0b\x01", 1, 0x7F),
        (b"\xdb\x00\x00\x00\x04text", 1, 0x7F),
    ],
    "note": [
        (b"\xdb\x00\x00\x00\x0cname", 1, 0x7F),
        (b"\xdd\x00\x00\x00\x05", 1, 0x7F),
        (b"\xdb\x00\x00\x00\x03tag", 2, 0xFF),
        (b"\xc8\x00xxx", 1, 0xFF),
    ],
}


class Seen:
    """Counts what the terminal gets."""

    count = 0

    def __call__(self, event: Any) -> None:
        self.count += 1
        event.to_event()


def graph(kind: str, seen: Seen) -> ev.Graph:
    schema, accepts = ACCEPTS[kind]
    g = ev.Graph("flipped")
    filtered = g.source("in", schema, on="foe") >> ev.Filter(accepts, on="reader")
    _ = filtered >> ev.Terminal(seen, name="end", on="reader")
    return g


def read(kind: str) -> None:
    seen = Seen()
    with ev.Node("reader", listen="tcp://127.0.0.1:0") as node, graph(kind, seen).run(node=node):
        print(node.contact, flush=True)
        for _ in sys.stdin:
            print(json.dumps([seen.count, node.refused]), flush=True)


def flip(memory: Any, heads: list[tuple[bytes, int, int]], parent: int) -> None:
    """Makes lengths huge and right again, until the parent has ended."""
    while os.getppid() == parent:
        data = memory[: 1 << 20].tobytes()
        places, values = [], []
        for pattern, at, value in heads:
            found = data.find(pattern)
            while found >= 0:
                places.append(found + at)
                values.append(value)
                found = data.find(pattern, found + 1)
        right = memory[places]
        for _ in range(200):
            memory[places] = values
            memory[places] = right
    os._exit(0)


def send(kind: str, contact: str, frames: int) -> None:
    node = ev.Node("foe", peers={"reader": contact})
    source = graph(kind, Seen()).run(node=node)["in"]
    notes = ev.EventBatch.from_events([Note(n, "name" * 3, b"x" * 300, ["tag"] * 5) for n in range(500)])
    # What a process has mapped, so has its fork; nobody else can write there.
    arena: Any = node._sockets._arena
    foe, fork = os.getpid(), None
    for number in range(frames):
        if kind == "wave":
            source.submit(Wave(number, np.ones(40_000), np.ones(40_000, bool), "text"), timeout=20)
        else:
            source.submit_batch(notes, timeout=20)
        time.sleep(0.001)
        if arena._bytes is not None and fork is None:
            fork = os.fork()
            if not fork:
                flip(arena._bytes, HEADS[kind], foe)
    time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "reader":
        read(sys.argv[2])
    else:
        send(sys.argv[2], sys.argv[3], int(sys.argv[4]))
