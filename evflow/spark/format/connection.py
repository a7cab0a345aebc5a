"""The connection of a process of Spark to a node: rows, commits and reads are all questions on it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from evflow.errors import EvflowError, LinkError, SparkError
from evflow.flow.flow import Flow
from evflow.net.node.node import Node
from evflow.spark.format.options import Options
from evflow.spark.questions import Question, answered, packed

_POLL = 0.05

Answer = TypeVar("Answer")

_shared: dict[tuple[int, Options], Connection] = {}
_lock = threading.Lock()


class Connection(ExitStack):
    """A connection to a node, to ask its stones; ``close`` ends it.

    Args:
        options: where it is, and how this end is called.

    Raises:
        EvflowError: the keys are wrong, or the contact needs some.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        node = self.enter_context(_node(options))
        try:
            self.flow = Flow.empty("spark", node=node)
        except BaseException:
            self.close()
            raise
        self.callback(self.flow.close, 0.0)

    def ask(self, question: Question, kind: type[Answer], timeout: float | None = None) -> Answer:
        """Asks the stone.

        Args:
            question: the question.
            kind: the class of its answer.
            timeout: seconds to wait; by default the option's.

        Raises:
            EvflowError: what the stone raised.
            SparkError: it did not answer in time, or with something else; says why.
        """
        options = self.options
        seconds = options.timeout if timeout is None else timeout
        try:
            answer = self.flow.ask(options.there, options.stone, packed(question), seconds)
        except LinkError as error:
            raise SparkError(
                f"option 'contact' {options.contact!r}: no answer from stone {options.stone!r} within "
                f"{seconds:g} s ({error}); is the overlay running, and can this host reach it?"
            ) from None
        return answered(answer, kind)


@contextmanager
def shared(options: Options) -> Iterator[Connection]:
    """The connection of this process, which the next tasks use too; one that failed is not used again."""
    if options.keys is not None:
        # Other tasks need the key when this one ends.
        with Connection(options) as connection:
            yield connection
        return
    key = os.getpid(), options
    with _lock:
        if key not in _shared:
            _shared[key] = Connection(options)
        connection = _shared[key]
    try:
        yield connection
    except EvflowError:
        with _lock:
            if _shared.get(key) is connection:
                del _shared[key]
        connection.close()
        raise


@contextmanager
def _node(options: Options) -> Iterator[Node]:
    """A node that does not listen, under a name that no other has now."""
    peers = {options.peer: options.contact} if options.peer else None
    with ExitStack() as stack:
        if options.keys is None:
            name = f"{options.name}-{uuid.uuid4().hex[:12]}"
        else:
            name = stack.enter_context(_own_key(Path(options.keys), options))
        node = Node(name, peers=peers, keys=options.keys, plain=options.plain)
        stack.callback(node.close)
        yield node


@contextmanager
def _own_key(folder: Path, options: Options) -> Iterator[str]:
    """The name of a key that no other process of this host uses: ``NAME.key`` or ``NAME-….key``.

    A peer is known by its key, so what runs at the same time needs one each.
    """
    until = time.monotonic() + options.timeout
    while True:
        paths = sorted([*folder.glob(f"{options.name}.key"), *folder.glob(f"{options.name}-*.key")])
        if not paths:
            raise SparkError(
                f"option 'keys' {str(folder)!r}: this host has no {options.name}.key there; tasks and driver "
                "need keys whose names begin with option 'name', one for each task that runs at a time: "
                "see `evflow keygen`"
            )
        for path in paths:
            with path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield path.stem
                return
        if time.monotonic() > until:
            raise SparkError(
                f"option 'keys' {str(folder)!r}: all {len(paths)} keys of {options.name!r} are in use on "
                "this host; make one for each task that runs at the same time, and one for the driver"
            )
        time.sleep(_POLL)
