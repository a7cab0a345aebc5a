"""The buffers that a function's outputs go to, as LLVM IR.

A record is built behind the finished ones of its buffer. Until ``commit`` the function alone knows how far it
has come, so a fault takes back what it wrote by doing nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from evflow.codgen.llvm.context import Context, grow_if_full, load, store
from evflow.codgen.llvm.emitter import Emitter, Failure, Triple
from evflow.codgen.llvm.ir import Body
from evflow.codgen.llvm.outputs import MAX_OUTPUT
from evflow.codgen.tree import Fault, Pos
from evflow.schema import Schema

__all__ = ["MAX_SUBMITS", "Notes", "OutputBuffers"]

MAX_SUBMITS = 100_000
"""Events that a function may submit for one event; beyond it is a LIMIT fault."""

MAX_RUN = 1 << 26
"""Events that it may submit for all events of a batch."""


class OutputBuffers:
    """Writes how records get into buffers.

    Args:
        body: the function.
        context: where the vectors are.
        buffers: number and schema of the buffer of each output.
    """

    def __init__(self, body: Body, context: Context, buffers: list[tuple[int, Schema]]) -> None:
        self._body = body
        self._context = context
        self._buffers = buffers
        self._images = [body.alloca("ptr") for _ in buffers]
        self._ends = [body.alloca("i64") for _ in buffers]
        self._rows = [body.alloca("i64") for _ in buffers]

    def begin(self) -> list[Failure]:
        """Makes room for each fixed part; gives the jumps to the block ``fault`` where there is none."""
        body, failures = self._body, list[Failure]()
        for slot, (_, schema) in enumerate(self._buffers):
            end = load(body, self._bytes(slot) + 1)
            room = grow_if_full(body, self._bytes(slot), body.let(f"add i64 {end}, {schema.fixed_width}"))
            failures.append(Failure(str(int(Fault.LIMIT)), body.block))
            on = body.label()
            body.branch(room, on, "fault")
            body.begin(on)
            body.do(f"store i64 {end}, ptr {self._ends[slot]}")
            body.do(f"store i64 {load(body, self._origin(slot) + 1)}, ptr {self._rows[slot]}")
            body.do(
                f"store ptr {body.at(load(body, self._bytes(slot), 'ptr'), end)}, ptr {self._images[slot]}"
            )
        return failures

    def _bytes(self, slot: int) -> int:
        return self._context.vector("bytes", self._buffers[slot][0])

    def _origin(self, slot: int) -> int:
        return self._context.vector("origin", self._buffers[slot][0])

    def image(self, slot: int) -> str:
        """A pointer to the record under construction."""
        return self._body.let(f"load ptr, ptr {self._images[slot]}")

    def row(self, slot: int) -> str:
        """The row that the record under construction will have."""
        return self._body.let(f"load i64, ptr {self._rows[slot]}")

    def reserve(self, e: Emitter, slot: int, size: str, pos: Pos) -> str:
        """Makes room for a record of ``size`` bytes; gives a pointer to it, which may have moved."""
        body, vector = self._body, self._bytes(slot)
        end = body.let(f"load i64, ptr {self._ends[slot]}")
        room = grow_if_full(body, vector, body.let(f"add i64 {end}, {size}"))
        e.fault_if(body.let(f"xor i1 {room}, true"), Fault.LIMIT, pos)
        image = body.at(load(body, vector, "ptr"), end)
        body.do(f"store ptr {image}, ptr {self._images[slot]}")
        return image

    def add(self, e: Emitter, slot: int, size: str, origin: str, pos: Pos) -> str:
        """Counts the record under construction as finished, with the position of its origin; gives its
        row."""
        body, rows, row = self._body, self._origin(slot), self.row(slot)
        next_row = body.let(f"add i64 {row}, 1")
        room = grow_if_full(body, rows, next_row)
        e.fault_if(body.let(f"xor i1 {room}, true"), Fault.LIMIT, pos)
        position = body.let(f"trunc i64 {origin} to i32")
        body.store("i32", position, load(body, rows, "ptr"), body.let(f"shl i64 {row}, 2"))
        end = body.let(f"add i64 {body.let(f'load i64, ptr {self._ends[slot]}')}, {size}")
        number, schema = self._buffers[slot]
        if schema.width is None:
            offsets = load(body, self._context.vector("offsets", number), "ptr")
            body.store("i64", end, offsets, body.let(f"shl i64 {next_row}, 3"))
        body.do(f"store i64 {end}, ptr {self._ends[slot]}")
        body.do(f"store i64 {next_row}, ptr {self._rows[slot]}")
        return row

    def start_next(self, e: Emitter, slot: int, pos: Pos) -> None:
        """Makes room for a further record, if the event has not made too much already."""
        body = self._body
        end = body.let(f"load i64, ptr {self._ends[slot]}")
        made = body.let(f"sub i64 {end}, {load(body, self._bytes(slot) + 1)}")
        e.fault_if(body.let(f"icmp ugt i64 {made}, {MAX_OUTPUT}"), Fault.LIMIT, pos)
        self.reserve(e, slot, str(self._buffers[slot][1].fixed_width), pos)

    def commit(self) -> None:
        """Makes the finished records part of their buffers."""
        body = self._body
        for slot in range(len(self._buffers)):
            store(body, self._bytes(slot) + 1, body.let(f"load i64, ptr {self._ends[slot]}"))
            store(body, self._origin(slot) + 1, self.row(slot))


class Notes:
    """Writes notes of what a function submits.

    A note is two words: the port, and the row with the buffer in the high half.
    The vector of notes is a stack: what is sent on may submit something itself, and its notes stand behind.
    """

    def __init__(self, body: Body, context: Context) -> None:
        self._body = body
        self._context = context
        self._vector = context.vector("notes")
        self._end = body.alloca("i64")

    def begin(self) -> None:
        """Starts with none."""
        self._body.do(f"store i64 {load(self._body, self._vector + 1)}, ptr {self._end}")

    def add(self, e: Emitter, port: str, buffer: str, row: str, pos: Pos, *, counted: bool = True) -> None:
        """Notes a record; a LIMIT fault where there are too many and this one is ``counted``."""
        body = self._body
        used = body.let(f"load i64, ptr {self._end}")
        if counted:
            noted = body.let(f"sub i64 {used}, {load(body, self._vector + 1)}")
            e.fault_if(body.let(f"icmp uge i64 {noted}, {2 * MAX_SUBMITS}"), Fault.LIMIT, pos)
            total = body.let(f"add i64 {load(body, self._context.at('noted'))}, {noted}")
            e.fault_if(body.let(f"icmp uge i64 {total}, {2 * MAX_RUN}"), Fault.LIMIT, pos)
        end = body.let(f"add i64 {used}, 2")
        room = grow_if_full(body, self._vector, end)
        e.fault_if(body.let(f"xor i1 {room}, true"), Fault.LIMIT, pos)
        target = body.at(load(body, self._vector, "ptr"), body.let(f"shl i64 {used}, 3"))
        body.store("i64", port, target)
        body.store("i64", body.let(f"or i64 {row}, {body.let(f'shl i64 {buffer}, 32')}"), target, 8)
        body.do(f"store i64 {end}, ptr {self._end}")

    def charge_texts(self, e: Emitter, attributes: Iterable[Triple]) -> None:
        """Pays for the texts among the attributes that each record noted takes along."""
        body = self._body
        words = body.let(f"sub i64 {body.let(f'load i64, ptr {self._end}')}, {load(body, self._vector + 1)}")
        noted = body.let(f"lshr i64 {words}, 1")
        for kind, _, size in attributes:
            length = body.let(f"select i1 {body.let(f'icmp eq i64 {kind}, 3')}, i64 {size}, i64 0")
            e.charge(body.let(f"mul i64 {length}, {noted}"), e.function.body.pos)

    def begin_following(self) -> tuple[str, str, str]:
        """Starts a loop over the notes, in the order they were made.

        Returns:
            The port and the word behind it of the current note, and the label to jump to for the next one.
            The caller writes the turn, and then calls ``end_following``.
        """
        body = self._body
        self._first, behind = load(body, self._vector + 1), body.let(f"load i64, ptr {self._end}")
        store(body, self._vector + 1, behind)
        self._count(body.let(f"sub i64 {behind}, {self._first}"))
        index = body.alloca("i64")
        body.do(f"store i64 {self._first}, ptr {index}")
        test, turn, self._done = body.label(), body.label(), body.label()
        body.begin(test)
        at = body.let(f"load i64, ptr {index}")
        body.branch(body.let(f"icmp slt i64 {at}, {behind}"), turn, self._done)
        body.begin(turn)
        body.do(f"store i64 {body.let(f'add i64 {at}, 2')}, ptr {index}")
        note = body.at(load(body, self._vector, "ptr"), body.let(f"shl i64 {at}, 3"))
        return body.load("i64", note), body.load("i64", note, 8), test

    def _count(self, words: str) -> None:
        """Counts what was noted in this run."""
        noted = self._context.at("noted")
        store(self._body, noted, self._body.let(f"add i64 {load(self._body, noted)}, {words}"))

    def end_following(self) -> None:
        """Ends the loop, and forgets the notes."""
        self._body.begin(self._done)
        store(self._body, self._vector + 1, self._first)

    def keep(self) -> str:
        """Leaves the notes in the vector for the run time to read; gives how many are new (i64)."""
        body = self._body
        end = body.let(f"load i64, ptr {self._end}")
        added = body.let(f"sub i64 {end}, {load(body, self._vector + 1)}")
        store(body, self._vector + 1, end)
        self._count(added)
        return body.let(f"lshr i64 {added}, 1")
