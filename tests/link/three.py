"""Three nodes: one sends to another, and may send to the third instead, or through it."""

from __future__ import annotations

import evflow as ev
from evflow.engine.topology import Crossing
from tests.link.pair import Network, Peer, Ping, pings

__all__ = ["Three", "ending", "relay", "relayed"]


def ending(node: str, arrived: list[int], delivery: str = "at_least_once") -> ev.Graph:
    """pings on a → bridge → end on a node."""
    graph = ev.Graph()
    bridge = graph.source("pings", Ping, on="a") >> ev.Bridge(delivery=delivery, name="bridge", on="a")
    bridge >> ev.Terminal(lambda event: arrived.append(event.number), name="end", on=node)
    return graph


class Three:
    """Node a sends to b, and could send to c."""

    def __init__(self, delivery: str = "at_least_once") -> None:
        self.at_b: list[int] = []
        self.at_c: list[int] = []
        self.network = Network()
        self.b = Peer(self.network, "b", ending("b", self.at_b, delivery))
        self.c = Peer(self.network, "c", ending("c", self.at_c, delivery))
        self.a = Peer(self.network, "a", ending("b", [], delivery), {"b": "b", "c": "c"})
        self.outlet = self.a.hub.outlets["bridge"]
        self.network.run()

    def submit(self, *numbers: int) -> None:
        for number in numbers:
            self.a.submit("pings", pings(number))
        self.network.run()

    def readdress(self) -> None:
        self.a.hub.readdress("bridge", Crossing("c", "end", ""))
        self.network.run()


def relay(arrived: list[int], between: ev.Stone) -> ev.Graph:
    """pings on a → bridge → a stone on b → onward → end on c."""
    graph = ev.Graph()
    middle = graph.source("pings", Ping, on="a") >> ev.Bridge(name="bridge", on="a") >> between
    onward = middle >> ev.Bridge(name="onward", on="b")
    onward >> ev.Terminal(lambda event: arrived.append(event.number), name="end", on="c")
    return graph


def relayed(between: ev.Stone) -> tuple[Network, Peer, Peer, list[int]]:
    """Nodes a and b of it, which knows where c will be."""
    arrived: list[int] = []
    network = Network()
    graph = relay(arrived, between)
    b = Peer(network, "b", graph, {"c": "c"})
    a = Peer(network, "a", graph, {"b": "b"})
    return network, a, b, arrived
