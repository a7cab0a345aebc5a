"""What a bridge does with events while its peer is away: wait, or let some go, as its policy says."""

from __future__ import annotations

import threading

import evflow as ev


class Position(ev.Event):
    ship: ev.Str[16]
    longitude: float


logged: list[float] = []
mapped: list[float] = []
on_the_map = threading.Event()


def put_on_the_map(position: Position) -> None:
    mapped.append(position.longitude)
    on_the_map.set()


g = ev.Graph("ships")
with g.on("ship"):
    positions = g.source("positions", Position)
    # The log wants every position; the map wants to know where the ship is now.
    to_log = positions >> ev.Bridge(name="to log", policy="block", limit=1 << 20)
    to_map = positions >> ev.Bridge(name="to map", policy="keep latest", delivery="at_most_once")
with g.on("port"):
    to_log >> ev.Terminal(lambda position: logged.append(position.longitude), name="log")
    to_map >> ev.Terminal(put_on_the_map, name="map")

port = ev.Node("port", listen="tcp://127.0.0.1:0")
ship = ev.Node("ship", peers={"port": port.contact})
with g.run(node=ship) as flow:
    # Nobody handles anything in the port yet: events wait.
    for longitude in range(1, 6):
        flow["positions"].submit(Position("Ada", float(longitude)))
    with g.run(node=port):
        flow.drain(timeout=10)
        # What is delivered at most once was only sent by then.
        on_the_map.wait(10)
    dropped = flow.stats()["to map"]["dropped"]

print("log:", logged)
print("map:", mapped)
print("dropped on the way to the map:", dropped)
