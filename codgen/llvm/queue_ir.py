"""A queue's function as one LLVM module: each arriving event is put into its queue, then the function runs.

A queue is eight words that Python keeps between runs: the vector ``store`` (bytes of events), the vector
``entries`` (address within the store, size and number of each event, the oldest first), the index of the
first entry that is still waiting, and one to spare. Taking an event out moves entries, never bytes, so that
what the function has read stays where it is. Every discard is logged until the function returns, since a
fault undoes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from evflow.codgen.llvm.attribute_ir import (
    keep_attribute,
    load_triple,
    read_column,
    stone_attribute,
    store_triple,
)
from evflow.codgen.llvm.context import Context, grow, load, new_context, push, scratch_pointer, store
from evflow.codgen.llvm.emitter import Emitter, Triple, failure_words
from evflow.codgen.llvm.function import write_function
from evflow.codgen.llvm.ir import Body, Module
from evflow.codgen.llvm.layout import check_index
from evflow.codgen.llvm.output_ir import Notes, OutputBuffers
from evflow.codgen.llvm.stage_ir import write_fault
from evflow.codgen.tree import Function, Pos, Root, SetAttribute, walk

__all__ = ["ENTRY", "QUEUE", "QueueText", "write_queue"]

QUEUE = 8
"""Words of a queue: address, bytes used and capacity of the store; address, end and capacity of the entries,
in entries; the first entry that waits; one to spare."""

ENTRY = 3
"""Words of an entry: offset in the store, size, and the number that the event got when it arrived."""

_STORE, _USED, _ENTRIES, _TAIL, _HEAD = 0, 1, 3, 4, 6
_SIZE = 8 * ENTRY
_WAS_SET = 24
_LOG = 6


@dataclass(frozen=True, slots=True)
class QueueText:
    """A queue's function before it is compiled; its entry is ``void run(ptr context)``.

    Attributes:
        ir: the module.
        context: what the words of the context are.
        scratch: bytes of memory that the function needs for large arrays.
        names: what faults are about, by number.
        sets: attributes that it may set.
    """

    ir: str
    context: Context
    scratch: int
    names: tuple[str, ...]
    sets: tuple[str, ...]


def write_queue(function: Function) -> QueueText:
    """Writes the module of a queue's function."""
    module, context = Module(), new_context()
    for name in ("queues", "arriving", "width", "limit", "number"):
        context.at(name)
    writer = _QueueWriter(module, context, function)
    writer.write()
    _write_run(module, context, function)
    return QueueText(module.text(), context, writer.scratch_size, tuple(module.named), writer.sets)


class _Queue:
    """Reads and writes the words of one queue."""

    def __init__(self, body: Body, pointer: str) -> None:
        self._body = body
        self.pointer = pointer

    def load(self, word: int, kind: str = "i64") -> str:
        return self._body.let(f"load {kind}, ptr {self._body.at(self.pointer, 8 * word)}")

    def set(self, word: int, value: str) -> None:
        self._body.do(f"store i64 {value}, ptr {self._body.at(self.pointer, 8 * word)}")

    def length(self) -> str:
        return self._body.let(f"sub i64 {self.load(_TAIL)}, {self.load(_HEAD)}")

    def entry(self, index: str) -> str:
        """A pointer to the entry at an index counted from the first of the vector."""
        return self._body.at(self.load(_ENTRIES, "ptr"), self._body.let(f"mul i64 {index}, {_SIZE}"))

    def waiting(self, index: str) -> str:
        """A pointer to the entry at an index counted from the oldest event."""
        return self.entry(self._body.let(f"add i64 {self.load(_HEAD)}, {index}"))


def _queue(body: Body, context: Context, slot: int | str) -> _Queue:
    base = load(body, context.at("queues"), "ptr")
    if isinstance(slot, int):
        return _Queue(body, body.at(base, 8 * QUEUE * slot))
    return _Queue(body, body.at(base, body.let(f"mul i64 {slot}, {8 * QUEUE}")))


class _QueueWriter:
    """Writes the function; it is its host. Buffer 1 and up are outputs, behind them those of queued
    events."""

    def __init__(self, module: Module, context: Context, function: Function) -> None:
        self.invariant = ""
        self.scratch_size = 0
        self.sets = tuple(dict.fromkeys(n.name for n in walk(function.body) if isinstance(n, SetAttribute)))
        self._body = Body(module, "internal void @call(ptr %ctx, i64 %row, i64 %pos) nounwind")
        self._context = context
        self._function = function
        self._queued = 1 + len(function.outputs)
        buffers = [(1 + slot, schema) for slot, (_, schema) in enumerate(function.outputs)]
        for slot, (_, schema) in enumerate(function.inputs):
            assert schema is not None
            buffers.append((self._queued + slot, schema))
        for number, schema in buffers:
            context.vector("bytes", number)
            context.vector("origin", number)
            if schema.width is None:
                context.vector("offsets", number)
        self._outputs = OutputBuffers(self._body, context, buffers)
        self._notes = Notes(self._body, context)
        self._set = {name: self._body.alloca("[4 x i64]") for name in self.sets}

    # What the function may do (the protocol Host).

    def event(self, e: Emitter, root: Root, pos: Pos) -> str:
        assert root.index is not None
        queue = _queue(self._body, self._context, root.slot)
        entry = self._entry(e, queue, root.slot, e.value(root.index), pos)
        return self._body.at(queue.load(_STORE, "ptr"), self._body.load("i64", entry))

    def _entry(self, e: Emitter, queue: _Queue, slot: int, index: str, pos: Pos) -> str:
        check_index(e, index, queue.length(), pos, self._function.inputs[slot][0])
        return queue.waiting(index)

    def queue_length(self, e: Emitter, slot: int) -> str:
        return _queue(self._body, self._context, slot).length()

    def image(self, e: Emitter, slot: int) -> str:
        return self._outputs.image(slot)

    def reserve(self, e: Emitter, slot: int, size: str, pos: Pos) -> str:
        return self._outputs.reserve(e, slot, size, pos)

    def submit_output(self, e: Emitter, port: str, slot: int, size: str, pos: Pos) -> None:
        row = self._outputs.add(e, slot, size, "%pos", pos)
        self._notes.add(e, port, str(1 + slot), row, pos)
        self._outputs.start_next(e, slot, pos)

    def submit_event(self, e: Emitter, port: str, event: Root, pos: Pos) -> None:
        body, copies = self._body, len(self._function.outputs) + event.slot
        assert event.index is not None
        queue = _queue(body, self._context, event.slot)
        entry = self._entry(e, queue, event.slot, e.value(event.index), pos)
        size, number = body.load("i64", entry, 8), body.load("i64", entry, 16)
        source = body.at(queue.load(_STORE, "ptr"), body.load("i64", entry))
        e.charge_bytes(size, 4, pos)
        body.copy(self._outputs.reserve(e, copies, size, pos), source, size)
        row = self._outputs.add(e, copies, size, "%pos", pos)
        self._notes.add(e, port, str(self._queued + event.slot), row, pos)
        self._outputs.start_next(e, copies, pos)
        push(body, self._context.vector("numbers", event.slot), "i64", (number,))

    def discard(self, e: Emitter, queue: int, index: str, pos: Pos) -> None:
        body = self._body
        length = _queue(body, self._context, queue).length()
        check_index(e, index, length, pos, self._function.inputs[queue][0])
        e.charge_bytes(self._moved(queue, index), 4, pos)
        routine = body.module.routine("@discard", lambda _: _write_discard(body.module, self._context))
        body.do(f"call void {routine}(ptr %ctx, i64 {queue}, i64 {index})")

    def _moved(self, queue: int, index: str) -> str:
        """Bytes of entries that a discard moves: those on the shorter side."""
        body = self._body
        behind = body.let(f"sub i64 {_queue(body, self._context, queue).length()}, {index}")
        nearer = body.let(f"icmp ult i64 {index}, {behind}")
        return body.let(f"mul i64 {body.let(f'select i1 {nearer}, i64 {index}, i64 {behind}')}, {_SIZE}")

    def attribute(self, e: Emitter, scope: str, name: str) -> Triple:
        if scope == "stone":
            return stone_attribute(self._body, self._context, 0, name)
        if name in self._set:
            return load_triple(self._body, self._set[name])
        return read_column(self._body, self._context, name, "%pos")

    def set_attribute(self, e: Emitter, name: str, value: Triple) -> None:
        store_triple(self._body, value, self._set[name])
        self._body.store("i64", "1", self._set[name], _WAS_SET)

    def system(self, e: Emitter, name: str) -> str:
        return load(self._body, self._context.at("system", name), "double")

    def static(self, e: Emitter, offset: int) -> str:
        return self._body.at(load(self._body, self._context.at("state", 0), "ptr"), offset)

    def scratch(self, e: Emitter, size: int) -> str:
        start, self.scratch_size = self.scratch_size, -(-(self.scratch_size + size) // 16) * 16
        return scratch_pointer(self._body, self._context, start)

    # The call.

    def write(self) -> None:
        """Writes ``void call(context, row, position)``, which runs the function for the event that came
        last."""
        body, context = self._body, self._context
        store(body, context.vector("log") + 1, "0")
        self._notes.begin()
        failures = self._outputs.begin()
        for name, place in self._set.items():
            store_triple(body, read_column(body, context, name, "%pos"), place)
            body.store("i64", "0", place, _WAS_SET)
        e, exits = write_function(body, self._function, self)
        exits.faults.extend(failures)
        body.begin("return")
        self._notes.charge_texts(e, [load_triple(body, place) for place in self._set.values()])
        self._outputs.commit()
        sent = self._notes.keep()
        self._count("out", sent)
        if self._set:
            self._keep_attributes(sent)
        body.ret()
        body.begin("fault")
        words = failure_words(body, exits.faults)
        self._undo()
        write_fault(body, context, "0", "%pos", "0", "%row", *words)
        self._count("faults", "1")
        body.ret()
        body.finish()

    def _count(self, name: str, more: str) -> None:
        word = self._context.at(name)
        store(self._body, word, self._body.let(f"add i64 {load(self._body, word)}, {more}"))

    def _keep_attributes(self, sent: str) -> None:
        """Keeps the attributes set for each event sent; kind -1 where one was not set."""
        body = self._body
        left = body.alloca("i64")
        body.do(f"store i64 {sent}, ptr {left}")
        test, turn, done = body.label(), body.label(), body.label()
        body.begin(test)
        n = body.let(f"load i64, ptr {left}")
        body.branch(body.let(f"icmp eq i64 {n}, 0"), done, turn)
        body.begin(turn)
        body.do(f"store i64 {body.let(f'sub i64 {n}, 1')}, ptr {left}")
        for name, place in self._set.items():
            kind, bits, size = load_triple(body, place)
            was_set = body.let(f"icmp ne i64 {body.load('i64', place, _WAS_SET)}, 0")
            kind = body.let(f"select i1 {was_set}, i64 {kind}, i64 -1")
            keep_attribute(body, self._context, self._context.vector("attribute", name), (kind, bits, size))
        body.jump(test)
        body.begin(done)

    def _undo(self) -> None:
        """Puts back what was discarded, and takes the event out that the function gave up."""
        body, context = self._body, self._context
        routine = body.module.routine("@undo", lambda _: _write_undo(body.module, context))
        body.do(f"call void {routine}(ptr %ctx)")
        for slot in range(len(self._function.inputs)):
            copies = load(body, context.vector("origin", self._queued + slot) + 1)
            store(body, context.vector("numbers", slot) + 1, copies)
        queue = _queue(body, context, load(body, context.at("arriving")))
        last = body.let(f"sub i64 {queue.load(_TAIL)}, 1")
        queue.set(_TAIL, last)
        queue.set(_USED, body.load("i64", queue.entry(last)))


def _move_entries(body: Body, target: str, source: str, count: str) -> None:
    body.module.declare("void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
    size = body.let(f"mul i64 {count}, {_SIZE}")
    body.do(f"call void @llvm.memmove.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")


def _write_discard(module: Module, context: Context) -> None:
    """Logs the entry at an index, and closes the gap from the shorter side."""
    body = Body(module, "internal void @discard(ptr %ctx, i64 %slot, i64 %index) nounwind")
    queue = _queue(body, context, "%slot")
    entry = queue.waiting("%index")
    behind = body.let(f"sub i64 {body.let(f'sub i64 {queue.length()}, %index')}, 1")
    front = body.let(f"icmp ult i64 %index, {behind}")
    offset, size, number = (body.load("i64", entry, 8 * i) for i in range(3))
    side = body.let(f"zext i1 {front} to i64")
    push(body, context.vector("log"), "i64", ("%slot", "%index", side, offset, size, number))
    forward, backward, done = body.label(), body.label(), body.label()
    body.branch(front, forward, backward)
    body.begin(forward)
    head = queue.load(_HEAD)
    next_head = body.let(f"add i64 {head}, 1")
    _move_entries(body, queue.entry(next_head), queue.entry(head), "%index")
    queue.set(_HEAD, next_head)
    body.jump(done)
    body.begin(backward)
    _move_entries(body, entry, body.at(entry, _SIZE), behind)
    queue.set(_TAIL, body.let(f"sub i64 {queue.load(_TAIL)}, 1"))
    body.begin(done)
    body.ret()
    body.finish()


def _write_undo(module: Module, context: Context) -> None:
    """Puts back what the log says, the last first; each step is the exact reverse of a discard."""
    body = Body(module, "internal void @undo(ptr %ctx) noinline cold nounwind")
    log = context.vector("log")
    test, turn, forward, backward, filled = (body.label() for _ in range(5))
    done = body.label()
    body.begin(test)
    used = load(body, log + 1)
    body.branch(body.let(f"icmp eq i64 {used}, 0"), done, turn)
    body.begin(turn)
    at = body.let(f"sub i64 {used}, {_LOG}")
    store(body, log + 1, at)
    logged = body.at(load(body, log, "ptr"), body.let(f"shl i64 {at}, 3"))
    slot, index, side, *words = (body.load("i64", logged, 8 * i) for i in range(_LOG))
    queue = _queue(body, context, slot)
    body.branch(body.let(f"icmp ne i64 {side}, 0"), forward, backward)
    body.begin(forward)
    head = queue.load(_HEAD)
    before = body.let(f"sub i64 {head}, 1")
    _move_entries(body, queue.entry(before), queue.entry(head), index)
    queue.set(_HEAD, before)
    body.jump(filled)
    body.begin(backward)
    gap = queue.waiting(index)
    _move_entries(body, body.at(gap, _SIZE), gap, body.let(f"sub i64 {queue.length()}, {index}"))
    queue.set(_TAIL, body.let(f"add i64 {queue.load(_TAIL)}, 1"))
    body.begin(filled)
    entry = queue.waiting(index)
    for i, word in enumerate(words):
        body.store("i64", word, entry, 8 * i)
    body.jump(test)
    body.begin(done)
    body.ret()
    body.finish()


def _write_run(module: Module, context: Context, function: Function) -> None:
    body = Body(module, "void @run(ptr noalias %ctx) nounwind")
    position = body.alloca("i64", "0")
    test, turn, put, done = (body.label() for _ in range(4))
    body.begin(test)
    pos = body.let(f"load i64, ptr {position}")
    body.branch(body.let(f"icmp slt i64 {pos}, {load(body, context.at('count'))}"), turn, done)
    body.begin(turn)
    body.do(f"store i64 {body.let(f'add i64 {pos}, 1')}, ptr {position}")
    row, start, size = _arrival(body, context, pos)
    queue = _queue(body, context, load(body, context.at("arriving")))
    refused = body.label()
    body.branch(body.let(f"icmp uge i64 {queue.length()}, {load(body, context.at('limit'))}"), refused, put)
    body.begin(refused)
    push(body, context.vector("refused"), "i64", (pos,))
    body.jump(test)
    body.begin(put)
    _put(body, context, queue, start, size, test)
    body.do(f"call void @call(ptr %ctx, i64 {row}, i64 {pos})")
    body.jump(test)
    body.begin(done)
    body.ret()
    body.finish()


def _arrival(body: Body, context: Context, pos: str) -> tuple[str, str, str]:
    """Row, address offset and size of the event at a position."""
    chosen, found, fixed, indexed, known = (body.label() for _ in range(5))
    selection, offsets = (load(body, context.at(name), "ptr") for name in ("selection", "offsets"))
    before = body.block
    body.branch(body.let(f"icmp ne ptr {selection}, null"), chosen, found)
    body.begin(chosen)
    picked = body.let(f"zext i32 {body.load('i32', selection, body.let(f'shl i64 {pos}, 2'))} to i64")
    body.begin(found)
    row = body.phi("i64", [(pos, before), (picked, chosen)])
    body.branch(body.let(f"icmp eq ptr {offsets}, null"), fixed, indexed)
    body.begin(fixed)
    width = load(body, context.at("width"))
    even = body.let(f"mul i64 {row}, {width}")
    body.jump(known)
    body.begin(indexed)
    pair = body.at(offsets, body.let(f"shl i64 {row}, 3"))
    first = body.load("i64", pair)
    length = body.let(f"sub i64 {body.load('i64', pair, 8)}, {first}")
    body.begin(known)
    start = body.phi("i64", [(even, fixed), (first, indexed)])
    return row, start, body.phi("i64", [(width, fixed), (length, indexed)])


def _put(body: Body, context: Context, queue: _Queue, start: str, size: str, failed: str) -> None:
    """Copies an event behind the others of its queue; goes to ``failed`` where there is no memory."""
    empty, some = body.label(), body.label()
    body.branch(body.let(f"icmp eq i64 {queue.length()}, 0"), empty, some)
    body.begin(empty)
    for word in (_USED, _TAIL, _HEAD):
        queue.set(word, "0")
    body.begin(some)
    slot = load(body, context.at("arriving"))
    for word, more, name in ((_USED, size, -1), (_TAIL, "1", -2)):
        full, room = body.label(), body.label()
        need = body.let(f"add i64 {queue.load(word)}, {more}")
        body.branch(body.let(f"icmp ugt i64 {need}, {queue.load(word + 1)}"), full, room)
        body.begin(full)
        vector = body.let(f"sub i64 {name}, {body.let(f'shl i64 {slot}, 1')}")
        body.branch(grow(body, vector, need), room, failed)
        body.begin(room)
    used, tail, number_word = queue.load(_USED), queue.load(_TAIL), context.at("number")
    number = load(body, number_word)
    body.copy(
        body.at(queue.load(_STORE, "ptr"), used), body.at(load(body, context.at("data"), "ptr"), start), size
    )
    entry = queue.entry(tail)
    for i, value in enumerate((used, size, number)):
        body.store("i64", value, entry, 8 * i)
    queue.set(_USED, body.let(f"add i64 {used}, {size}"))
    queue.set(_TAIL, body.let(f"add i64 {tail}, 1"))
    store(body, number_word, body.let(f"add i64 {number}, 1"))
