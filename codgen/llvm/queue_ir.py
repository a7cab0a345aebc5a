"""A queue's function as one LLVM module: each arriving event is put into its queue, then the function runs.

A queue is eight words that Python keeps between runs: the vector ``store`` (bytes of events), the vector
``entries`` (address within the store, size and number of each event, the oldest first), the index of the
first entry that is still waiting, and one to spare. Taking an event out moves entries, never bytes, so that
what the function has read stays where it is. Every discard is logged until the function returns, since a
fault undoes it.
"""

from __future__ import annotations

from evflow.codgen.llvm.context import Context, ContextBody, Triple, load_triple, new_context, store_triple
from evflow.codgen.llvm.emitter import Emitter, failure_words
from evflow.codgen.llvm.function import write_function
from evflow.codgen.llvm.host import Host, Notes
from evflow.codgen.llvm.ir import Module
from evflow.codgen.llvm.layout import check_index
from evflow.codgen.llvm.stage_ir import KernelText, selected, write_fault
from evflow.codgen.tree import Function, Pos, Root
from evflow.schema import Schema

QUEUE = 8
"""Words of a queue: address, bytes used and capacity of the store; address, end and capacity of the entries,
in entries; the first entry that waits; one to spare."""

ENTRY = 3
"""Words of an entry: offset in the store, size, and the number that the event got when it arrived."""

_STORE, _USED, _ENTRIES, _TAIL, _HEAD = 0, 1, 3, 4, 6
_SIZE = 8 * ENTRY
_WAS_SET = 24
_LOG = 6


def write_queue(function: Function) -> KernelText:
    """Writes the module of a queue's function."""
    module, context = Module(), new_context()
    for name in ("queues", "arriving", "width", "limit", "number"):
        context.at(name)
    _QueueWriter(module, context, function).write()
    _write_run(module, context)
    return KernelText(module.text(), context, tuple(module.named))


class _Queue:
    """Reads and writes the words of one queue."""

    def __init__(self, body: ContextBody, pointer: str) -> None:
        self._body = body
        self.pointer = pointer

    def load(self, word: int, kind: str = "i64") -> str:
        return self._body.get(kind, self._body.at(self.pointer, 8 * word))

    def set(self, word: int, value: str) -> None:
        self._body.put("i64", value, self._body.at(self.pointer, 8 * word))

    def move(self, word: int, by: int) -> str:
        """Adds to a word; gives what it was."""
        before = self.load(word)
        self.set(word, self._body.let(f"add i64 {before}, {by}"))
        return before

    def length(self) -> str:
        return self._body.let(f"sub i64 {self.load(_TAIL)}, {self.load(_HEAD)}")

    def entry(self, index: str) -> str:
        """A pointer to the entry at an index counted from the first of the vector."""
        return self._body.at(self.load(_ENTRIES, "ptr"), self._body.let(f"mul i64 {index}, {_SIZE}"))

    def waiting(self, index: str) -> str:
        """A pointer to the entry at an index counted from the oldest event."""
        return self.entry(self._body.let(f"add i64 {self.load(_HEAD)}, {index}"))


def _queue(body: ContextBody, slot: int | str) -> _Queue:
    base = body.word(body.context.at("queues"), "ptr")
    if isinstance(slot, int):
        return _Queue(body, body.at(base, 8 * QUEUE * slot))
    return _Queue(body, body.at(base, body.let(f"mul i64 {slot}, {8 * QUEUE}")))


class _QueueWriter(Host):
    """Writes the function; it is its host. Buffer 1 and up are outputs, behind them those of queued
    events."""

    def __init__(self, module: Module, context: Context, function: Function) -> None:
        body = ContextBody(module, context, "internal void @call(ptr %ctx, i64 %row, i64 %pos) nounwind")
        schemas = [schema for _, schema in (*function.outputs, *function.inputs)]
        buffers: list[tuple[int, Schema]] = []
        for number, schema in enumerate(schemas, 1):
            assert schema is not None
            buffers.append((number, schema))
            context.vector("bytes", number)
            context.vector("origin", number)
            if schema.width is None:
                context.vector("offsets", number)
        super().__init__(body, 0, buffers)
        self._function = function
        self._queued = 1 + len(function.outputs)
        self._notes = Notes(body)
        self._set = {name: body.alloca("[4 x i64]") for name in function.sets}

    # What the function may do (the protocol Host).

    def event(self, e: Emitter, root: Root, pos: Pos) -> str:
        assert root.index is not None
        queue = _queue(self.body, root.slot)
        entry = self._entry(e, queue, root.slot, e.value(root.index), pos)
        return self.body.at(queue.load(_STORE, "ptr"), self.body.load("i64", entry))

    def _entry(self, e: Emitter, queue: _Queue, slot: int, index: str, pos: Pos) -> str:
        check_index(e, index, queue.length(), pos, self._function.inputs[slot][0])
        return queue.waiting(index)

    def queue_length(self, e: Emitter, slot: int) -> str:
        return _queue(self.body, slot).length()

    def submit_output(self, e: Emitter, port: str, slot: int, size: str, pos: Pos) -> None:
        self.submit_record(e, self._notes, port, slot, size, pos)

    def submit_event(self, e: Emitter, port: str, event: Root, pos: Pos) -> None:
        body, copies = self.body, len(self._function.outputs) + event.slot
        assert event.index is not None
        queue = _queue(body, event.slot)
        entry = self._entry(e, queue, event.slot, e.value(event.index), pos)
        size, number = body.load("i64", entry, 8), body.load("i64", entry, 16)
        source = body.at(queue.load(_STORE, "ptr"), body.load("i64", entry))
        e.charge_bytes(size, 4, pos)
        body.copy(self.reserve(e, copies, size, pos), source, size)
        self.submit_record(e, self._notes, port, copies, size, pos)
        body.push(self.context.vector("numbers", event.slot), number)

    def discard(self, e: Emitter, queue: int, index: str, pos: Pos) -> None:
        body, context = self.body, self.context
        length = _queue(body, queue).length()
        check_index(e, index, length, pos, self._function.inputs[queue][0])
        # What is moved are the entries on the shorter side.
        behind = body.let(f"sub i64 {length}, {index}")
        nearer = body.let(f"icmp ult i64 {index}, {behind}")
        moved = body.let(f"mul i64 {body.let(f'select i1 {nearer}, i64 {index}, i64 {behind}')}, {_SIZE}")
        e.charge_bytes(moved, 4, pos)
        routine = body.module.routine("@discard", lambda _: _write_discard(body.module, context))
        body.do(f"call void {routine}(ptr %ctx, i64 {queue}, i64 {index})")

    def event_attribute(self, name: str) -> Triple:
        if name in self._set:
            return load_triple(self.body, self._set[name])
        return self.body.read_column(name, "%pos")

    def set_attribute(self, name: str, value: Triple) -> None:
        store_triple(self.body, value, self._set[name])
        self.body.store("i64", "1", self._set[name], _WAS_SET)

    # The call.

    def write(self) -> None:
        """Writes ``void call(context, row, position)``, which runs the function for the event that came
        last."""
        body, context = self.body, self.context
        body.set_word(context.vector("log") + 1, "0")
        self._notes.begin()
        failures = self.begin_outputs()
        for name, place in self._set.items():
            store_triple(body, body.read_column(name, "%pos"), place)
            body.store("i64", "0", place, _WAS_SET)
        e = write_function(body, self._function, self)
        e.faults.extend(failures)
        body.begin("return")
        self._notes.charge_texts(e, [load_triple(body, place) for place in self._set.values()])
        self.commit()
        sent = self._notes.keep()
        if self._set:
            self._keep_attributes(sent)
        body.ret()
        body.begin("fault")
        words = failure_words(body, e.faults)
        self._undo()
        write_fault(body, "0", "%pos", "0", "%row", *words)
        body.finish()

    def _keep_attributes(self, sent: str) -> None:
        """Keeps the attributes set for each event sent; kind -1 where one was not set."""
        body = self.body
        with body.counted(sent):
            for name, place in self._set.items():
                kind, bits, size = load_triple(body, place)
                was_set = body.let(f"icmp ne i64 {body.load('i64', place, _WAS_SET)}, 0")
                kind = body.let(f"select i1 {was_set}, i64 {kind}, i64 -1")
                vector = self.context.vector("attribute", name)
                body.keep_attribute(vector, (kind, bits, size))

    def _undo(self) -> None:
        """Puts back what was discarded, and takes the event out that the function gave up."""
        body, context = self.body, self.context
        routine = body.module.routine("@undo", lambda _: _write_undo(body.module, context))
        body.do(f"call void {routine}(ptr %ctx)")
        for slot in range(len(self._function.inputs)):
            copies = body.word(context.vector("origin", self._queued + slot) + 1)
            body.set_word(context.vector("numbers", slot) + 1, copies)
        queue = _queue(body, body.word(context.at("arriving")))
        last = body.let(f"sub i64 {queue.load(_TAIL)}, 1")
        queue.set(_TAIL, last)
        queue.set(_USED, body.load("i64", queue.entry(last)))


def _move_entries(body: ContextBody, target: str, source: str, count: str) -> None:
    body.module.declare("void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
    size = body.let(f"mul i64 {count}, {_SIZE}")
    body.do(f"call void @llvm.memmove.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")


def _write_discard(module: Module, context: Context) -> None:
    """Logs the entry at an index, and closes the gap from the shorter side."""
    body = ContextBody(module, context, "internal void @discard(ptr %ctx, i64 %slot, i64 %index) nounwind")
    queue = _queue(body, "%slot")
    entry = queue.waiting("%index")
    behind = body.let(f"sub i64 {body.let(f'sub i64 {queue.length()}, %index')}, 1")
    front = body.let(f"icmp ult i64 %index, {behind}")
    offset, size, number = (body.load("i64", entry, 8 * i) for i in range(3))
    side = body.let(f"zext i1 {front} to i64")
    body.push(context.vector("log"), "%slot", "%index", side, offset, size, number)

    def forward() -> list[str]:
        head = queue.move(_HEAD, 1)
        first = queue.entry(head)
        _move_entries(body, body.at(first, _SIZE), first, "%index")
        return []

    def backward() -> list[str]:
        _move_entries(body, entry, body.at(entry, _SIZE), behind)
        queue.move(_TAIL, -1)
        return []

    body.choose(front, (), forward, backward)
    body.finish()


def _write_undo(module: Module, context: Context) -> None:
    """Puts back what the log says, the last first; each step is the exact reverse of a discard."""
    body = ContextBody(module, context, "internal void @undo(ptr %ctx) noinline cold nounwind")
    log = context.vector("log")
    with body.repeat(lambda: body.let(f"icmp ne i64 {body.word(log + 1)}, 0")):
        at = body.let(f"sub i64 {body.word(log + 1)}, {_LOG}")
        body.set_word(log + 1, at)
        logged = body.at(body.word(log, "ptr"), body.let(f"shl i64 {at}, 3"))
        slot, index, side, *words = (body.load("i64", logged, 8 * i) for i in range(_LOG))
        queue = _queue(body, slot)

        def forward() -> list[str]:
            queue.move(_HEAD, -1)
            first = queue.waiting("0")
            _move_entries(body, first, body.at(first, _SIZE), index)
            return []

        def backward() -> list[str]:
            gap = queue.waiting(index)
            _move_entries(body, body.at(gap, _SIZE), gap, body.let(f"sub i64 {queue.length()}, {index}"))
            queue.move(_TAIL, 1)
            return []

        body.choose(body.let(f"icmp ne i64 {side}, 0"), (), forward, backward)
        entry = queue.waiting(index)
        for i, word in enumerate(words):
            body.store("i64", word, entry, 8 * i)
    body.finish()


def _write_run(module: Module, context: Context) -> None:
    body = ContextBody(module, context, "void @run(ptr noalias %ctx) nounwind")
    selection = body.word(context.at("selection"), "ptr")
    with body.counted(body.word(context.at("count"))) as (pos, next_):
        row = selected(body, selection, pos)
        start, size = _arrival(body, row)
        queue = _queue(body, body.word(context.at("arriving")))
        full = body.let(f"icmp uge i64 {queue.length()}, {body.word(context.at('limit'))}")
        with body.when(full):
            body.push(context.vector("refused"), pos)
            body.jump(next_)
        _put(body, queue, start, size, next_)
        body.do(f"call void @call(ptr %ctx, i64 {row}, i64 {pos})")
    body.finish()


def _arrival(body: ContextBody, row: str) -> list[str]:
    """Address offset and size of the event of a row."""
    offsets = body.word(body.context.at("offsets"), "ptr")

    def even() -> list[str]:
        width = body.word(body.context.at("width"))
        return [body.let(f"mul i64 {row}, {width}"), width]

    def indexed() -> list[str]:
        pair = body.at(offsets, body.let(f"shl i64 {row}, 3"))
        first = body.load("i64", pair)
        return [first, body.let(f"sub i64 {body.load('i64', pair, 8)}, {first}")]

    return body.choose(body.let(f"icmp eq ptr {offsets}, null"), ("i64", "i64"), even, indexed)


def _put(body: ContextBody, queue: _Queue, start: str, size: str, failed: str) -> None:
    """Copies an event behind the others of its queue; goes to ``failed`` where there is no memory."""
    with body.when(body.let(f"icmp eq i64 {queue.length()}, 0")):
        for word in (_USED, _TAIL, _HEAD):
            queue.set(word, "0")
    slot = body.word(body.context.at("arriving"))
    for word, more, name in ((_USED, size, -1), (_TAIL, "1", -2)):
        need = body.let(f"add i64 {queue.load(word)}, {more}")
        with body.when(body.let(f"icmp ugt i64 {need}, {queue.load(word + 1)}")):
            vector, room = body.let(f"sub i64 {name}, {body.let(f'shl i64 {slot}, 1')}"), body.label()
            body.branch(body.grow(vector, need), room, failed)
            body.begin(room)
    used, tail, number_word = queue.load(_USED), queue.load(_TAIL), body.context.at("number")
    number, target = body.word(number_word), body.at(queue.load(_STORE, "ptr"), used)
    body.copy(target, body.at(body.word(body.context.at("data"), "ptr"), start), size)
    entry = queue.entry(tail)
    for i, value in enumerate((used, size, number)):
        body.store("i64", value, entry, 8 * i)
    queue.set(_USED, body.let(f"add i64 {used}, {size}"))
    queue.move(_TAIL, 1)
    body.set_word(number_word, body.let(f"add i64 {number}, 1"))
