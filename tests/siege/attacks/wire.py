"""Attacks by a peer that speaks ZeroMQ and has a valid key."""

from __future__ import annotations

import itertools
import json
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgpack

from tests.siege.attacks.line import ACCEPT, ACK, REJECT, Line, packed
from tests.siege.hostile import Foe

_DEEP = (1_000, 10_000, 100_000)
_SCHEMA = '{"name":"Rec","fields":[["way","i64"],["seq","i64"],["sent","f64"],["nap","f64"]]}'
_TOPICS = ("ask", "answer", "deploy", "ask stone", "stone answers", "nothing", "x" * 300)


def nested(foe: Foe) -> None:
    """Lists in lists: as a header, as a field of one, and as a note, with a session and without."""
    while foe.left:
        line = Line(foe, session=foe.random.random() < 0.7)
        for _ in range(20):
            deep = foe.random.choice(_DEEP)
            for parts in _nested(foe, deep):
                line.say(*parts)
        time.sleep(0.05)
        line.close()


def _nested(foe: Foe, deep: int) -> list[tuple[bytes, ...]]:
    lists, maps = b"\x91" * deep + b"\xc0", b"\x81\xa0" * deep + b"\xc0"
    data = b"\x99\x0b\x00\x01\x00\x01\xc4\x00"
    return [
        (lists,),
        (maps,),
        (b"\x92\x0f" + lists,),
        (data + lists + b"\xc0\xc0",),
        (data + b"\x90" + lists + b"\xc0",),
        (data + b"\x90\xc0" + lists,),
        (packed(19, foe.random.choice(_TOPICS)), lists),
        (packed(19, foe.random.choice(_TOPICS)), maps),
        (packed(10, foe.random.randrange(100), "[" * min(deep, 1 << 20)),),
    ]


def header(foe: Foe) -> None:
    """Headers of megabytes: lists, texts, and bytes where there is no place for them; the costliest first."""
    line = Line(foe)
    kinds = itertools.cycle(_headers(60 << 20) + _headers(1 << 20))
    while foe.left:
        line.say(next(kinds)())
        # The session has ended then, as a rule.
        if not any(message[0] == 2 for message in line.hear(2000, 1)):
            line.close()
            line = Line(foe)


def _headers(size: int) -> list[Callable[[], bytes]]:
    count, half = size.to_bytes(4, "big"), (size // 2).to_bytes(4, "big")
    data = b"\x99\x0b\x00\x01\x00\x01\xc4\x00"
    return [
        lambda: data + b"\x90\xdd" + half + b"\x91\xc0" * (size // 2) + b"\xc0",
        lambda: b"\xdd" + count + b"\xc0" * size,
        lambda: b"\x92\x0f\xdd" + count + b"\x05" * size,
        lambda: b"\x92\x05\xc6" + count + bytes(size),
        lambda: b"\x92\x11\xdb" + count + b"x" * size,
        lambda: data + b"\xdd" + count + b"\x05" * size + b"\xc0\xc0",
    ]


def body(foe: Foe) -> None:
    """Bodies for which there is no channel, and messages of hundreds of parts."""
    line = Line(foe)
    bodies = [bytes(size) for size in (1 << 20, 50 << 20, 200 << 20)]
    while foe.left:
        if foe.random.random() < 0.5:
            told = foe.random.choice((packed(5, 1), packed(19, "deploy"), packed(19, "ask")))
            line.say(told, foe.random.choice(bodies))
        else:
            line.say(*[packed(5, 1)] * foe.random.choice((3, 100, 1000)))
        line.hear()


def pings(foe: Foe) -> None:
    """Pings as fast as they go; nobody reads the answers."""
    line = Line(foe)
    while foe.left:
        for number in range(1000):
            if not line.say(packed(5, number)):
                break


def states(foe: Foe) -> None:
    """Random messages, with a session and without."""
    while foe.left:
        line = Line(foe, session=foe.random.random() < 0.5)
        for _ in range(50):
            line.say(packed(foe.random.randrange(26), *[_value(foe) for _ in range(foe.random.randrange(9))]))
            line.say(foe.random.randbytes(foe.random.choice((0, 1, 10, 1000))))
            line.say(_plausible(foe))
        line.hear()
        line.close()


def _value(foe: Foe) -> Any:
    return foe.random.choice((
        0, 1, 7, -1, 1 << 62, (1 << 64) - 1, "", "x", "x" * 5000, b"", bytes(16), None, True, 1.5, [],
        [0, 1, 2], [[]], "in0", "good/in0", foe.target,
    ))  # fmt: skip


def _plausible(foe: Foe) -> bytes:
    """A message that a peer may say, but not this one, or not at this time."""
    number = foe.random.choice((0, 1, 2, 1 << 40, (1 << 63) - 1))
    stone = foe.random.choice(("good/in0", "good/end0", "good/in10", "nothing"))
    return foe.random.choice((
        packed(1, 1, foe.random.choice(("a", "desk", "", "x" * 300)), bytes(16), "tcp://10.83.0.99:1"),
        packed(2, 1, "wolf", bytes(16), ""), packed(3, "no"), packed(4, "again"), packed(6, number),
        packed(7, number, "b", stone, "none", bytes(16), 1, number), packed(8, number, number, number),
        packed(9, number, "no"), packed(11, number, number, number, number, b"", [], None, bytes(100)),
        packed(11, 0, 1, 0, 1, bytes(16), [1] * 64, [["x", "i", None, bytes(8)]], None),
        packed(12, number, number, number, number), packed(16, number), packed(17, "bye"),
        packed(18, number, number), packed(20, number), packed(21, number, number),
    ))  # fmt: skip


def schemas(foe: Foe) -> None:
    """Schemas that nobody has, of hundreds of fields; those with an evil text last."""
    number = 0
    while foe.left:
        line = Line(foe)
        for _ in range(100):
            number += 1
            fields = [
                [f"field {one} {foe.random.random()}", "f64"]
                for one in range(foe.random.choice((1, 50, 500)))
            ]
            line.say(packed(10, number, json.dumps({"name": f"S{number}", "fields": fields})))
        evil = (
            '{"name":"S","fields":[["x","array(f64,4294967295)"]]}', "[" * 100_000, "{" * 1000, "",
            '{"name":"S","fields":[["x","array(array(array(f64,9),9),9)"]]}', '"' + "x" * (1 << 20),
        )  # fmt: skip
        line.say(packed(10, number, foe.random.choice(evil)))
        line.hear()
        line.close()


def channels(foe: Foe) -> None:
    """Opens thousands of channels to a stone that does nothing, and sends there without regard to credit."""
    line, accepted = _opened(foe, 6000)
    _pour(foe, line, accepted[:100])
    time.sleep(foe.left)


def hoard(foe: Foe) -> None:
    """Has a handler sleep, and sends meanwhile as much as the credit of many channels allows; where a channel
    is refused, it is opened again."""
    line = Line(foe)
    line.say(packed(10, 0, _SCHEMA))
    _open(foe, line, range(200))
    credit, sent, sequence = dict.fromkeys(range(200), 0), Counter[int](), Counter[int]()
    events, asleep = _rec(0.0) * 10_000, False
    while foe.left:
        for message in line.hear(5, 1000):
            if message[0] in (ACCEPT, ACK):
                credit[message[1]] = message[-1 if message[0] == ACCEPT else 4]
                if message[0] == ACCEPT:
                    sent[message[1]], sequence[message[1]] = 0, message[2]
            elif message[0] == REJECT:
                credit[message[1]] = 0
                _open(foe, line, [message[1]])
        if credit[0] and not asleep:
            asleep = line.say(packed(11, 0, 1, 0, 1, b"", [], None, _rec(foe.left)))
        for channel in range(1, 200):
            for _ in range(32):
                if sent[channel] >= credit[channel] or not foe.left:
                    break
                header = packed(11, channel, sequence[channel] + 1, 0, 10_000, b"", [], None, None)
                if not line.say(header, events):
                    break
                sent[channel] += len(events)
                sequence[channel] += 1
                foe.done["bytes within credit"] += len(events)


def _opened(foe: Foe, most: int) -> tuple[Line, list[int]]:
    line = Line(foe)
    line.say(packed(10, 0, _SCHEMA))
    _open(foe, line, range(most))
    accepted = [message[1] for message in line.hear(300, 10_000) if message[0] == ACCEPT]
    foe.done["channels"] += len(accepted)
    return line, accepted


def _open(foe: Foe, line: Line, numbers: Iterable[int]) -> None:
    for number in numbers:
        stone = f"good/{foe.target}"
        line.say(packed(7, number, f"bridge {number}", stone, "", number.to_bytes(16, "big"), 1, 0))
        if number % 100 == 0 and not foe.left:
            break


def _pour(foe: Foe, line: Line, channels: list[int]) -> None:
    events, sequence = _rec(0.0) * 10_000, 0
    while foe.left and channels:
        sequence += 1
        for channel in channels:
            if not line.say(packed(11, channel, sequence, 0, 10_000, b"", [], None, None), events):
                break
            if not foe.left:
                return


def _rec(nap: float) -> bytes:
    """An event of the healthy traffic that is on no way."""
    zero, none = b"\xd3" + bytes(8), b"\xcb" + bytes(8)
    return b"\x94" + zero + zero + none + b"\xcb" + struct.pack(">d", nap)


def questions(foe: Foe) -> None:
    """Asks for what is long, and says notes of all sorts; reads nothing."""
    line = Line(foe)
    number = 0
    while foe.left:
        number += 1
        verb = foe.random.choice(("status", "letters", "record", "propose", "tap", "seal", "logs", "nothing"))
        given: dict[str, Any] = {"deployment": "good", "known": 0, "limit": 10_000, "since": 0}
        line.say(packed(19, "ask"), msgpack.packb([b"12345678", number, verb, given]))
        if number % 10 == 0:
            line.say(
                packed(19, foe.random.choice(_TOPICS)),
                foe.random.randbytes(foe.random.choice((0, 100, 1 << 20))),
            )
        if number % 100 == 0:
            line.say(packed(19, "deploy"), bytes(9 << 20))


def churn(foe: Foe) -> None:
    """Connects, says hello, perhaps under a name that is another's, and is gone."""
    while foe.left:
        lines = [Line(foe, session=False) for _ in range(20)]
        for line in lines:
            line.greet(foe.random.choice((None, None, "a", "desk", "wolf2", "")))
        for line in lines:
            line.close()
        foe.done["sessions"] += len(lines)


def claims(foe: Foe) -> None:
    """Offers shared memory and sockets that are not there, and frames in them."""
    names = (
        "evflow-1-1-1-" + "0" * 32,
        "../../etc/passwd",
        "/etc/passwd",
        "",
        "x" * 4096,
        "a\0b",
        "evflow-" + "0" * 32,
    )
    while foe.left:
        line = Line(foe)
        for _ in range(30):
            name = foe.random.choice(names)
            line.say(packed(13, name, foe.random.choice((0, 1, 1 << 20, (1 << 63) - 1)), bytes(16)))
            line.say(packed(22, name, bytes(16)))
            line.say(packed(14, True))
            line.say(packed(23, True))
            line.say(packed(15, [0, 1, (1 << 63) - 1]))
            line.say(packed(11, 0, 1, 0, 1, b"", [], None, [0, foe.random.randrange(1 << 62), 1 << 40]))
        line.hear()
        line.close()
