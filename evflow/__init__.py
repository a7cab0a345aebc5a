"""evflow: typed events through overlay graphs of stones.

Where to look: ``schema`` says what an event is, ``events`` holds events, ``stone`` is the contract of the
stones (which are in ``stones``), ``graph`` describes a graph, ``engine`` checks and runs it, ``flow`` is the
running graph, ``net`` joins the flows of several nodes, ``deploy`` runs graphs on daemons. ``codgen``
compiles stone functions, ``matching`` matches events with subscriptions.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from evflow.errors import (
    CodeError,
    DeployError,
    DeviceError,
    EvflowError,
    FlowError,
    GraphError,
    LinkError,
    RemoteError,
    SchemaError,
    SparkError,
    StagingError,
    SubscriptionError,
    UnwrittenError,
)
from evflow.events.batch import EventBatch
from evflow.events.event import Event
from evflow.graph.graph import Graph
from evflow.schema import Schema, logical
from evflow.schema.notation import (
    Array,
    Bytes,
    Str,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)

if TYPE_CHECKING:
    from evflow.deploy.daemon import Daemon
    from evflow.deploy.handle import Deployment
    from evflow.engine.letters import DeadLetter, DeadLetters
    from evflow.flow.flow import Flow
    from evflow.net.link.congestion import Congestion
    from evflow.net.node.node import Node
    from evflow.spark.sink import SparkSink
    from evflow.spark.source import SparkSource
    from evflow.stones.bridge import Bridge
    from evflow.stones.filter import Filter
    from evflow.stones.generator import Generator
    from evflow.stones.match import Match
    from evflow.stones.matching.changes import NamedSubscriptionChange, SubscriptionChange
    from evflow.stones.queue import Queue
    from evflow.stones.router import Router
    from evflow.stones.split import Split
    from evflow.stones.storage import Storage
    from evflow.stones.terminal import Terminal
    from evflow.stones.transform import Transform

__all__ = [
    "Array",
    "Bridge",
    "Bytes",
    "CodeError",
    "Congestion",
    "Daemon",
    "DeadLetter",
    "DeadLetters",
    "DeployError",
    "Deployment",
    "DeviceError",
    "Event",
    "EventBatch",
    "EvflowError",
    "Filter",
    "Flow",
    "FlowError",
    "Generator",
    "Graph",
    "GraphError",
    "LinkError",
    "Match",
    "NamedSubscriptionChange",
    "Node",
    "Queue",
    "RemoteError",
    "Router",
    "Schema",
    "SchemaError",
    "SparkError",
    "StagingError",
    "SparkSink",
    "SparkSource",
    "Split",
    "Storage",
    "Str",
    "SubscriptionChange",
    "SubscriptionError",
    "Terminal",
    "Transform",
    "UnwrittenError",
    "f32",
    "f64",
    "i16",
    "i32",
    "i64",
    "i8",
    "u16",
    "u32",
    "u64",
    "u8",
]
__all__ += logical.__all__
globals().update({name: getattr(logical, name) for name in logical.__all__})

__version__ = "0.1.0"

# Found on first use: the stones stand above this package, and the flow brings in the compiler.
_LAZY = {
    "Bridge": "evflow.stones.bridge",
    "Congestion": "evflow.net.link.congestion",
    "Daemon": "evflow.deploy.daemon",
    "Deployment": "evflow.deploy.handle",
    "NamedSubscriptionChange": "evflow.stones.matching.changes",
    "Node": "evflow.net.node.node",
    "DeadLetter": "evflow.engine.letters",
    "DeadLetters": "evflow.engine.letters",
    "Filter": "evflow.stones.filter",
    "Flow": "evflow.flow.flow",
    "Generator": "evflow.stones.generator",
    "Match": "evflow.stones.match",
    "Queue": "evflow.stones.queue",
    "Router": "evflow.stones.router",
    "SparkSink": "evflow.spark.sink",
    "SparkSource": "evflow.spark.source",
    "Split": "evflow.stones.split",
    "Storage": "evflow.stones.storage",
    "SubscriptionChange": "evflow.stones.matching.changes",
    "Terminal": "evflow.stones.terminal",
    "Transform": "evflow.stones.transform",
}


# Whoever wants to read the log says so; nothing is printed otherwise.
logging.getLogger("evflow").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        from evflow.choices import suggestion

        raise AttributeError(f"module 'evflow' has no attribute {name!r}{suggestion(name, __all__)}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
