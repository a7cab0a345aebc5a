"""Records within records: lists, optional ones, and a tree that holds itself."""

from __future__ import annotations

from typing import Any

import evflow as ev


class Node(ev.Event):
    name: str
    size: int
    children: list[Node]


class Snapshot(ev.Event):
    host: ev.Str[16]
    root: Node
    previous: Snapshot | None = None


def total(node: Any) -> int:
    return int(node.size) + sum(total(child) for child in node.children)


def show(snapshot: Snapshot) -> None:
    before = "first" if snapshot.previous is None else f"before: {total(snapshot.previous.root)} bytes"
    print(f"{snapshot.host}: {total(snapshot.root)} bytes, {before}")


g = ev.Graph("disks")
full = g.source("disks", Snapshot) >> ev.Filter(
    "return input.root.size > 0 && length(input.root.children) > 0;"
)
full >> ev.Terminal(show)

logs = Node("log", 1, [Node("a.log", 700, []), Node("b.log", 300, [])])
first = Snapshot("alpha", Node("", 1, [logs]))
second = Snapshot("alpha", Node("", 1, [logs, Node("new", 5000, [])]), previous=first)

with g.run() as flow:
    flow["disks"].submit(first)
    flow["disks"].submit(second)
    flow["disks"].submit(Snapshot("beta", Node("", 1, [])))
    flow.drain()
    print(f"{len(flow.dead_letters())} dead letters, {flow.stats()['filter']['dropped']} without files")
