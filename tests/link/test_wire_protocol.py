"""The document and the code say the same: vectors, read by evflow and by plain msgpack, and a whole session.

Run as a program it prints the vectors as the document has them.
"""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgpack
import pytest
from msgspec import Raw
from msgspec.structs import asdict

import evflow as ev
from evflow.errors import LinkError
from evflow.net.link import messages as m
from evflow.net.link import outlet, session
from evflow.net.link.attributes import unpack as unpack_attributes
from evflow.net.link.provenance import next_route
from tests.link.pair import Network, Peer, Port

DOCUMENT = (Path(__file__).parents[2] / "docs" / "wire-protocol.md").read_text()
BLOCKS = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)]
VECTORS, SESSION, REFUSED = BLOCKS if len(BLOCKS) == 3 else ([], [], [])

EXAMPLES: list[m.Message] = [
    m.Hello(1, "left", bytes(range(16)), "tcp://10.0.0.1:7000"),
    m.Welcome(1, "right", b"\xff" * 16, ""),
    m.Refuse("node right speaks version 1 of the protocol, not 2"),
    m.Reset("no session on this connection"),
    m.Ping(1),
    m.Pong(300),
    m.Open(0, "pings→split", "split", "", bytes(range(16, 32)), 1, 0),
    m.Open(70000, "out", "pairs", "left", bytes(16), 0, 41),
    m.Accept(0, 0, 8388608),
    m.Reject(1, "node right has no stone 'splid' that others may send to"),
    m.SchemaText(0, '{"name":"Ping","fields":[["number","i64"]]}'),
    m.Data(0, 1, 0, 2, b"", [], m.NIL, bytes.fromhex("91d3000000000000000791d30000000000000008")),
    m.Data(0, 2, 0, 100, b"", [], m.NIL, None),
    m.Data(0, 3, 0, 40000, b"", [], m.NIL, [5, 4096, 400000]),
    m.Data(3, 9, 2, 3, bytes(range(16)), [41, 0], Raw(msgpack.packb([
        ["hops", "I", None, 2],
        ["note", "s", b"\x05", ["a", "", "é"]],
        ["weight", "f", None, bytes.fromhex("000000000000f03f00000000000000c0000000000000f87f")],
    ])), None),
    m.Ack(0, 1, 3, 8388638),
    m.Share("evflow-4711-9-1-000102030405060708090a0b0c0d0e0f", 67108864, bytes(range(16))),
    m.Shared(True),
    m.Released([5, 7]),
    m.Close(0),
    m.Bye("node left has ended"),
    m.Held(0, 3),
    m.Note("change"),
    m.Retry(1),
    m.Sent(0, 17),
    m.Shortcut("evflow-000102030405060708090a0b0c0d0e0f", bytes(range(16))),
    m.Joined(False),
]  # fmt: skip

WRONG: list[tuple[str, bytes]] = [
    ("no bytes", b""),
    ("no msgpack", b"\xc1"),
    ("more than one value", m.pack(m.Ping(1)) + b"\x00"),
    ("a value that is cut off", m.pack(m.Bye("end"))[:-1]),
    ("no array", b"\x05"),
    ("an empty array", b"\x90"),
    ("no message of that number", b"\x91\x00"),
    ("no message of that number", b"\x91\x18"),
    ("a number that is true", b"\x92\xc3\xa1r"),
    ("a field too few", b"\x91\x05"),
    ("a field too many", b"\x93\x05\x01\x01"),
    ("a number below zero", b"\x92\x05\xff"),
    ("a number of 2^63", b"\x92\x05\xcf\x80" + bytes(7)),
    ("a number that is a float", b"\x92\x05\xcb\x3f\xf0" + bytes(6)),
    ("a number that is false", b"\x92\x05\xc2"),
    ("text that is bytes", b"\x92\x11\xc4\x01r"),
    ("text that is not UTF-8", b"\x92\x11\xa1\xff"),
    ("an incarnation of 15 bytes", b"\x95\x01\x01\xa1a\xc4\x0f" + bytes(15) + b"\xa0"),
    ("a route of 8 bytes", msgpack.packb([11, 0, 1, 0, 1, bytes(8), [1], None, None])),
    ("a path of 65 numbers", msgpack.packb([11, 0, 1, 0, 1, bytes(16), [0] * 65, None, None])),
    ("a place of two numbers", msgpack.packb([11, 0, 1, 0, 1, b"", [], None, [1, 64]])),
    ("attributes that are a map", msgpack.packb([11, 0, 1, 0, 1, b"", [], {"a": 1}, None])),
    ("an extension", b"\x92\x05\xd4\x01\x00"),
    ("an array that claims more than there is", b"\x92\x0f\xdd\x7f\xff\xff\xff"),
]


class Ping(ev.Event):
    number: int


def shown(value: Any) -> Any:
    """A field as the document has it."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, Raw):
        return shown(msgpack.unpackb(value))
    return [shown(item) for item in value] if isinstance(value, list) else value


def meant(noted: Any) -> Any:
    """The field that the document means."""
    if isinstance(noted, dict):
        return bytes.fromhex(noted["hex"])
    return [meant(item) for item in noted] if isinstance(noted, list) else noted


def noted(message: m.Message) -> dict[str, Any]:
    """A message as the document has it."""
    fields = {name: shown(value) for name, value in asdict(message).items()}
    return {"message": type(message).__name__, "fields": fields, "hex": m.pack(message).hex()}


def message_of(case: dict[str, Any]) -> m.Message:
    kind: Any = getattr(m, case["message"])
    fields = {name: meant(value) for name, value in case["fields"].items()}
    if "attributes" in fields:
        fields["attributes"] = Raw(msgpack.packb(fields["attributes"]))
    made: m.Message = kind(**fields)
    return made


def graph(arrived: list[int]) -> ev.Graph:
    made = ev.Graph()
    bridge = made.source("pings", Ping, on="left") >> ev.Bridge(name="out", on="left")
    bridge >> ev.Terminal(lambda event: arrived.append(event.number), name="end", on="right")
    return made


def pings(*numbers: int) -> ev.EventBatch:
    return ev.EventBatch.from_columns(Ping, {"number": list(numbers)})


def recorded() -> list[dict[str, Any]]:
    """Two nodes talk; the connection breaks, and they talk on."""
    network = Network()
    right = Peer(network, "right", graph([]))
    left = Peer(network, "left", graph([]), {"right": "right"}, listens=False)
    left.submit("pings", pings(7))
    left.submit("pings", pings(8))
    network.run(0.1)
    network.lose = lambda message: isinstance(message, m.Data)
    left.submit("pings", pings(9))
    network.run(0.1)
    before = len(network.log)
    network.lose = lambda message: False
    left.link("right").down("broken", network.now)
    network.run(0.5)
    left.hub.close("node left has ended", lambda *given: None)
    network.deliver()
    steps = []
    for place, (port, message, body) in enumerate(network.log):
        step = {"connection": 1 + (place >= before), "from": "left" if port is right.port else "right"}
        steps.append(step | noted(message) | ({} if body is None else {"body": body.hex()}))
    return steps


def written() -> str:
    """The vectors as the document has them."""
    refused = [{"why": why, "hex": wire.hex()} for why, wire in WRONG]
    blocks = [[noted(message) for message in EXAMPLES], recorded(), refused]
    return "\n".join(
        "```json\n[\n"
        + ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in block)
        + "\n]\n```\n"
        for block in blocks
    )


def title(case: dict[str, Any]) -> str:
    return str(case.get("why") or case["message"])


@pytest.mark.parametrize("case", VECTORS, ids=title)
def test_wire_protocol_vectors_are_what_evflow_writes_and_reads(case: dict[str, Any]) -> None:
    message, wire = message_of(case), bytes.fromhex(case["hex"])
    assert m.pack(message) == wire
    assert m.unpack(wire) == message
    assert type(m.unpack(wire)) is type(message)


@pytest.mark.parametrize("case", VECTORS, ids=title)
def test_wire_protocol_vectors_are_what_plain_msgpack_reads(case: dict[str, Any]) -> None:
    number, *fields = msgpack.unpackb(bytes.fromhex(case["hex"]))
    assert m.MESSAGES[number].__name__ == case["message"]
    assert fields == [meant(value) for value in case["fields"].values()]


def test_wire_protocol_has_a_vector_of_every_message() -> None:
    assert {case["message"] for case in VECTORS} == {kind.__name__ for kind in m.MESSAGES.values()}


def test_wire_protocol_table_has_every_message_with_its_fields() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| ([^|]*) \|", DOCUMENT, re.MULTILINE)
    listed = [(int(number), name, re.findall(r"`(\w+)`", fields)) for number, name, fields in rows]
    assert listed == [
        (number, kind.__name__, list(kind.__struct_fields__)) for number, kind in m.MESSAGES.items()
    ]


def test_wire_protocol_numbers_in_the_text_are_those_of_the_code() -> None:
    for text in (
        f"at most {outlet.DEPTH} frames",
        f"at most {m.MOST_PATH} numbers",
        f"{m.MOST_GREETING >> 10} KiB before",
        f"then {m.MOST_HEADER >> 10} KiB",
        f"most {m.MOST_DATA >> 20} MiB",
        f"{4 * m.MOST_TEXT >> 20} MiB more",
        f"{m.MOST_BLOCKS} numbers",
        f"{session.LARGE >> 10} KiB",
        f"most {m.MOST_NOTE >> 20} MiB",
        f"1 to {m.MOST_TOPIC} characters",
        f"while {session._MOST_UNHEARD >> 20} MiB",
        f"after {outlet._FIRST_AGAIN * 1000:.0f} ms",
        f"version {m.VERSION}",
    ):
        assert text in DOCUMENT


@pytest.mark.parametrize("case", REFUSED, ids=title)
def test_wire_protocol_bytes_to_be_refused_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(LinkError, match=r"message|attributes"):
        message = m.unpack(bytes.fromhex(case["hex"]))
        assert isinstance(message, m.Data)
        unpack_attributes(message.attributes, message.events)


def test_wire_protocol_session_is_what_two_nodes_say() -> None:
    assert recorded() == SESSION


def test_wire_protocol_session_is_answered_by_a_node_as_written() -> None:
    arrived: list[int] = []
    network = Network()
    right = Peer(network, "right", graph(arrived))
    ends = {number: Port(network).connect(right.port) for number in (1, 2)}
    for step in SESSION:
        body = None if "body" not in step else bytes.fromhex(step["body"])
        if step["from"] == "left":
            right.hub.receive(ends[step["connection"]].other, bytes.fromhex(step["hex"]), body, network.now)
            continue
        while not network.queue:
            network.now += 0.001
            right.hub.finish(network.now)
        end, header, answered = network.queue.popleft()
        assert (header.hex(), answered) == (step["hex"], body)
        assert end is ends[step["connection"]]
    assert arrived == [7, 8, 9]
    assert not right.hub.refused


def test_wire_protocol_example_of_a_route_is_what_the_code_makes() -> None:
    stream, hashed, route = re.findall(r"`([0-9a-f]{32})`", DOCUMENT.split("### Route and path")[1])[:3]
    crossed = "out\0end\0"
    assert next_route(bytes.fromhex(stream), crossed).hex() == hashed
    assert blake2b(bytes.fromhex(stream) + crossed.encode(), digest_size=16).hexdigest() == hashed
    assert route == hashed


if __name__ == "__main__":
    print(written())
