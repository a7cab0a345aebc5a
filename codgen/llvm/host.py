"""What surrounds a function while it is compiled, and the buffers that its outputs go to, as LLVM IR.

A record is built behind the finished ones of its buffer. Until ``commit`` the function alone knows how far it
has come, so a fault takes back what it wrote by doing nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from evflow.codgen.llvm.context import ContextBody, Triple
from evflow.codgen.llvm.emitter import Emitter, Failure
from evflow.codgen.llvm.ir import number
from evflow.codgen.llvm.outputs import MAX_OUTPUT
from evflow.codgen.tree import Const, Fault, Pos, Root
from evflow.schema import Schema

MAX_SUBMITS = 100_000
"""Events that a function may submit for one event; beyond it is a LIMIT fault."""

MAX_RUN = 1 << 26
"""Events that it may submit for all events of a batch."""


class Host:
    """The surroundings of a function; a stage of a kernel and a queue each have their own.

    Args:
        body: the LLVM function that the stone's function becomes.
        stone: index of the stone's state and attributes.
        buffers: number and schema of the buffer of each output.

    Attributes:
        body: as given.
        context: what the words are that it shares with the run time.
        invariant: suffix for loads from events that nothing writes to while the code runs.
    """

    invariant = ""

    def __init__(self, body: ContextBody, stone: int, buffers: list[tuple[int, Schema]]) -> None:
        self.body = body
        self.context = body.context
        self._stone = stone
        self._buffers = buffers
        self._images, self._ends, self._rows = [], [], []
        for _ in buffers:
            self._images.append(body.alloca("ptr"))
            self._ends.append(body.alloca("i64"))
            self._rows.append(body.alloca("i64"))

    def event(self, e: Emitter, root: Root, pos: Pos) -> str:
        """A pointer to the first byte of an input or queued event; a bad queue index is an INDEX fault."""
        raise NotImplementedError

    def constant(self, expr: Const) -> str:
        """A number that others are compared with."""
        return number(expr.type, expr.value)

    def queue_length(self, e: Emitter, slot: int) -> str:
        """How many events wait in a queue (i64)."""
        raise NotImplementedError("only a queue stone has queues")

    def discard(self, e: Emitter, queue: int, index: str, pos: Pos) -> None:
        """Takes an event out of a queue; a bad index is an INDEX fault."""
        raise NotImplementedError("only a queue stone has queues")

    def submit_output(self, e: Emitter, port: str, slot: int, size: str, pos: Pos) -> None:
        """Notes that the finished record of an output goes out of a port (i64), and starts the next."""
        raise NotImplementedError

    def submit_event(self, e: Emitter, port: str, event: Root, pos: Pos) -> None:
        """Notes that an input or queued event goes out of a port (i64)."""
        raise NotImplementedError

    def event_attribute(self, name: str) -> Triple:
        """An attribute of the event as it is now."""
        raise NotImplementedError

    def set_attribute(self, name: str, value: Triple) -> None:
        """Changes an attribute of what leaves the stone."""
        raise NotImplementedError

    def attribute(self, scope: str, name: str) -> Triple:
        """An attribute of the event or the stone as it is now."""
        if scope == "stone":
            return self.body.stone_attribute(self._stone, name)
        return self.event_attribute(name)

    def system(self, e: Emitter, name: str) -> str:
        """A value of the host (f64)."""
        return self.body.word(self.context.at("system", name), "double")

    def static(self, e: Emitter, offset: int) -> str:
        """A pointer into the block of statics."""
        return self.body.at(self.body.word(self.context.at("state", self._stone), "ptr"), offset)

    def scratch(self, e: Emitter, size: int) -> str:
        """A pointer to memory of the function's own, for what is too large for the stack."""
        return self.body.scratch(size)

    # The buffers of outputs.

    def begin_outputs(self) -> list[Failure]:
        """Makes room for each fixed part; gives the jumps to the block ``fault`` where there is none."""
        body, failures = self.body, list[Failure]()
        for slot, (_, schema) in enumerate(self._buffers):
            end = body.word(self._bytes(slot) + 1)
            room = body.grow_if_full(self._bytes(slot), body.let(f"add i64 {end}, {schema.fixed_width}"))
            failures.append(Failure(str(int(Fault.LIMIT)), body.block))
            on = body.label()
            body.branch(room, on, "fault")
            body.begin(on)
            body.put("i64", end, self._ends[slot])
            body.put("i64", body.word(self._origin(slot) + 1), self._rows[slot])
            body.put("ptr", body.at(body.word(self._bytes(slot), "ptr"), end), self._images[slot])
        return failures

    def _bytes(self, slot: int) -> int:
        return self.context.vector("bytes", self._buffers[slot][0])

    def _origin(self, slot: int) -> int:
        return self.context.vector("origin", self._buffers[slot][0])

    def image(self, e: Emitter, slot: int) -> str:
        """A pointer to where the record under construction of an output starts."""
        return self.body.get("ptr", self._images[slot])

    def row(self, slot: int) -> str:
        """The row that the record under construction will have."""
        return self.body.get("i64", self._rows[slot])

    def reserve(self, e: Emitter, slot: int, size: str, pos: Pos) -> str:
        """Makes room for a record of ``size`` bytes in all; gives its image, which may have moved."""
        body, vector = self.body, self._bytes(slot)
        end = body.get("i64", self._ends[slot])
        _require_room(e, vector, body.let(f"add i64 {end}, {size}"), pos)
        image = body.at(body.word(vector, "ptr"), end)
        body.put("ptr", image, self._images[slot])
        return image

    def add_record(self, e: Emitter, slot: int, size: str, origin: str, pos: Pos) -> str:
        """Counts the record under construction as finished, with the position of its origin; gives its
        row."""
        body, rows, row = self.body, self._origin(slot), self.row(slot)
        next_row = body.let(f"add i64 {row}, 1")
        _require_room(e, rows, next_row, pos)
        position = body.let(f"trunc i64 {origin} to i32")
        body.store("i32", position, body.word(rows, "ptr"), body.let(f"shl i64 {row}, 2"))
        end = body.let(f"add i64 {body.get('i64', self._ends[slot])}, {size}")
        number, schema = self._buffers[slot]
        if schema.width is None:
            offsets = body.word(self.context.vector("offsets", number), "ptr")
            body.store("i64", end, offsets, body.let(f"shl i64 {next_row}, 3"))
        body.put("i64", end, self._ends[slot])
        body.put("i64", next_row, self._rows[slot])
        return row

    def next_record(self, e: Emitter, slot: int, pos: Pos) -> None:
        """Makes room for a further record, if the event has not made too much already."""
        body = self.body
        end = body.get("i64", self._ends[slot])
        made = body.let(f"sub i64 {end}, {body.word(self._bytes(slot) + 1)}")
        e.fault_if(body.let(f"icmp ugt i64 {made}, {MAX_OUTPUT}"), Fault.LIMIT, pos)
        self.reserve(e, slot, str(self._buffers[slot][1].fixed_width), pos)

    def submit_record(self, e: Emitter, notes: Notes, port: str, slot: int, size: str, pos: Pos) -> None:
        """Notes that the record under construction, which has ``size`` bytes, goes out of a port."""
        row = self.add_record(e, slot, size, "%pos", pos)
        notes.add(e, port, str(self._buffers[slot][0]), row, pos)
        self.next_record(e, slot, pos)

    def commit(self) -> None:
        """Makes the finished records part of their buffers."""
        body = self.body
        for slot in range(len(self._buffers)):
            body.set_word(self._bytes(slot) + 1, body.get("i64", self._ends[slot]))
            body.set_word(self._origin(slot) + 1, self.row(slot))


class Notes:
    """Writes notes of what a function submits.

    A note is two words: the port, and the row with the buffer in the high half.
    The vector of notes is a stack: what is sent on may submit something itself, and its notes stand behind.
    """

    def __init__(self, body: ContextBody) -> None:
        self._body = body
        self._vector = body.context.vector("notes")
        self._end = body.alloca("i64")

    def begin(self) -> None:
        """Starts with none."""
        self._body.do(f"store i64 {self._body.word(self._vector + 1)}, ptr {self._end}")

    def add(self, e: Emitter, port: str, buffer: str, row: str, pos: Pos, *, counted: bool = True) -> None:
        """Notes a record; a LIMIT fault where there are too many and this one is ``counted``."""
        body = self._body
        used = body.get("i64", self._end)
        if counted:
            noted = body.let(f"sub i64 {used}, {body.word(self._vector + 1)}")
            e.fault_if(body.let(f"icmp uge i64 {noted}, {2 * MAX_SUBMITS}"), Fault.LIMIT, pos)
            total = body.let(f"add i64 {body.word(self._body.context.at('noted'))}, {noted}")
            e.fault_if(body.let(f"icmp uge i64 {total}, {2 * MAX_RUN}"), Fault.LIMIT, pos)
        end = body.let(f"add i64 {used}, 2")
        _require_room(e, self._vector, end, pos)
        target = body.at(body.word(self._vector, "ptr"), body.let(f"shl i64 {used}, 3"))
        body.store("i64", port, target)
        body.store("i64", body.let(f"or i64 {row}, {body.let(f'shl i64 {buffer}, 32')}"), target, 8)
        body.put("i64", end, self._end)

    def charge_texts(self, e: Emitter, attributes: Iterable[Triple]) -> None:
        """Pays for the texts among the attributes that each record noted takes along."""
        body = self._body
        words = body.let(f"sub i64 {body.let(f'load i64, ptr {self._end}')}, {body.word(self._vector + 1)}")
        noted = body.let(f"lshr i64 {words}, 1")
        for kind, _, size in attributes:
            length = body.let(f"select i1 {body.let(f'icmp eq i64 {kind}, 3')}, i64 {size}, i64 0")
            e.charge(body.let(f"mul i64 {length}, {noted}"), e.function.body.pos)

    @contextmanager
    def following(self) -> Iterator[tuple[str, str, str]]:
        """A loop over the notes, in the order they were made; the notes are forgotten.

        Gives the port of the current note, the word behind it, and the label to jump to for the next one.
        """
        body = self._body
        first, behind = body.word(self._vector + 1), body.get("i64", self._end)
        body.set_word(self._vector + 1, behind)
        self._count(body.let(f"sub i64 {behind}, {first}"))
        with body.counted(behind, first, 2) as (at, test):
            note = body.at(body.word(self._vector, "ptr"), body.let(f"shl i64 {at}, 3"))
            yield body.load("i64", note), body.load("i64", note, 8), test
        body.set_word(self._vector + 1, first)

    def _count(self, words: str) -> None:
        """Counts what was noted in this run."""
        noted = self._body.context.at("noted")
        self._body.set_word(noted, self._body.let(f"add i64 {self._body.word(noted)}, {words}"))

    def keep(self) -> str:
        """Leaves the notes in the vector for the run time to read; gives how many are new (i64)."""
        body = self._body
        end = body.get("i64", self._end)
        added = body.let(f"sub i64 {end}, {body.word(self._vector + 1)}")
        body.set_word(self._vector + 1, end)
        self._count(added)
        return body.let(f"lshr i64 {added}, 1")


def _require_room(e: Emitter, vector: int, need: str, pos: Pos) -> None:
    """Makes sure that a vector can hold ``need`` elements; a LIMIT fault where it cannot."""
    room = e.host.body.grow_if_full(vector, need)
    e.fault_if(e.body.let(f"xor i1 {room}, true"), Fault.LIMIT, pos)
