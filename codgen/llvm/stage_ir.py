"""A tree of stages as one LLVM module: ``run`` takes every selected event through the whole tree.

Each node of the tree is a function over the context, the frame, the event, its row and its position in the
selection: the stone's function, and where its events go. A function that cannot submit sends at most one
event, which goes on at once. One that submits only notes what it sends, since a later fault takes it all
back; when it has returned, the notes are followed.

The frame is an array on ``run``'s stack: counters, attributes that were set on the way, and the ends of
selections. The optimiser turns it into registers once the stages are inlined; that is why counters are not
kept in the context, which a callback may read.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from evflow.codgen.llvm.context import Context, ContextBody, Triple, load_triple, new_context, store_triple
from evflow.codgen.llvm.emitter import Emitter, failure_words
from evflow.codgen.llvm.function import FunctionEmitter, write_function
from evflow.codgen.llvm.host import Host, Notes
from evflow.codgen.llvm.ir import Module
from evflow.codgen.llvm.stage import Link, Node, Routes
from evflow.codgen.tree import Pos, Root


class KernelText(NamedTuple):
    """A module before it is compiled.

    Attributes:
        ir: the module; its entry is ``void run(ptr context)``.
        context: what the words of the context are.
        names: what faults are about, by number.
    """

    ir: str
    context: Context
    names: tuple[str, ...]


class _StageWriter(Host):
    """Writes the function ``void s<number>(context, frame, event, row, position, live)`` of a node.

    ``live`` is 1, or 0 for an event that did not get here; only a quiet node is called for one.

    Attributes:
        invariant: see ``Host``; the input batch is not written to while the kernel runs, buffers are.
    """

    def __init__(self, module: Module, context: Context, frame: Context, routes: Routes, node: Node) -> None:
        parameters = "ptr %ctx, ptr %frame, ptr %event, i64 %row, i64 %pos, i64 %live"
        body = ContextBody(module, context, f"internal void @s{node.number}({parameters}) nounwind")
        self._function = node.function
        schemas = (schema for _, schema in self._function.outputs)
        super().__init__(body, node.stage.stone, list(zip(node.outputs, schemas, strict=True)))
        self.invariant = ", !invariant.load !0" if node.buffer == 0 else ""
        self._frame = frame
        self._routes = routes
        self._node = node
        self._notes = Notes(body) if node.function.sent else None

    # What a function may do (the protocol Host).

    def event(self, e: Emitter, root: Root, pos: Pos) -> str:
        return "%event"

    def submit_output(self, e: Emitter, port: str, slot: int, size: str, pos: Pos) -> None:
        assert self._notes is not None
        self.submit_record(e, self._notes, port, slot, size, pos)

    def submit_event(self, e: Emitter, port: str, event: Root, pos: Pos) -> None:
        assert self._notes is not None
        self._notes.add(e, port, str(self._node.buffer), "%row", pos)

    def event_attribute(self, name: str) -> Triple:
        return self._attribute(name, self._node.changed.get(name))

    def set_attribute(self, name: str, value: Triple) -> None:
        at = self._frame.at("attribute", self._node.number, name, width=3)
        store_triple(self.body, value, "%frame", 8 * at)

    def _attribute(self, name: str, setter: int | None) -> Triple:
        """An attribute as the node ``setter`` left it, or as the input event has it."""
        if setter is not None:
            return load_triple(self.body, "%frame", 8 * self._frame.at("attribute", setter, name, width=3))
        return self.body.read_column(name, "%pos")

    # The function and what follows it.

    def write(self) -> None:
        body, node = self.body, self._node
        if not node.entry and node.follows is None:
            self._count("seen")
        if self._notes is not None:
            self._notes.begin()
        failures = self.begin_outputs()
        for name in node.function.sets:
            self.set_attribute(name, self._attribute(name, node.inherited.get(name)))
        e = write_function(body, self._function, self)
        e.faults.extend(failures)
        # What might fault after all is not run for an event that did not get here.
        node.quiet = node.quiet and not e.faults
        body.begin("return")
        result = body.phi("i64", e.returns) if len(e.returns) > 1 else e.returns[0][0]
        body.store("i64", result, "%frame", 8 * self._frame.at("result"))
        if self._notes is not None:
            self._note_result(e, self._notes, result)
            self._notes.charge_texts(e, [self._attribute(name, by) for name, by in node.changed.items()])
            self.commit()
            with self._notes.following() as (port, code, on):
                self._follow(port, code, on)
            body.ret()
        else:
            self._send_result(e, result)
        if e.faults:
            body.begin("fault")
            words = failure_words(body, e.faults)
            self._count("faults")
            write_fault(body, str(self._stone), "%pos", str(node.buffer), "%row", *words)
        body.finish()

    def _count(self, name: str, more: str = "1") -> None:
        place = self.body.at("%frame", 8 * self._frame.at(name, self._node.number))
        before = self.body.load("i64", place)
        self.body.store("i64", self.body.let(f"add i64 {before}, {more}"), place)

    def _send_result(self, e: FunctionEmitter, result: str) -> None:
        body, node, kind = self.body, self._node, self._function.kind
        ports = {port: link for (port, _), link in node.links.items()}
        if kind == "router":
            self._send_routed(result, ports)
            return
        if 0 in ports:
            passed = body.let(f"icmp ne i64 {result}, 0")
            if kind == "filter" and self._unbranched(ports[0]):
                self._send_masked(passed, ports[0])
            else:
                self._send_passed(e, passed, ports[0])
        body.ret()

    def _send_passed(self, e: FunctionEmitter, passed: str, link: Link) -> None:
        body, node = self.body, self._node
        if node.quiet:
            passed = body.let(f"and i1 {passed}, {body.let('icmp ne i64 %live, 0')}")
        with body.when(passed):
            event, row = "%event", "%row"
            if self._function.kind == "transform":
                event, row = self._finish_result(e)
                self.commit()
            self._count("sent")
            self._send(link, node.passed_on, event, row)

    def _send_routed(self, result: str, ports: dict[int, Link]) -> None:
        body = self.body
        labels = {port: body.label() for port in ports}
        done = body.label()
        body.switch(result, done, labels.items())
        for port, link in ports.items():
            body.begin(labels[port])
            self._count("sent")
            self._send(link, self._node.buffer, "%event", "%row")
            body.jump(done)
        body.begin(done)
        body.ret()

    def _finish_result(self, e: FunctionEmitter) -> tuple[str, str]:
        """Completes output 0; gives its address and row."""
        pos = self._function.body.pos
        size = e.outputs[0].finish(pos)
        return self.image(e, 0), self.add_record(e, 0, size, "%pos", pos)

    def _send(self, link: Link, buffer: int, event: str, row: str) -> None:
        self._call(link.nodes, event, row, "1")
        if link.exit is not None:
            self._append(link.exit, buffer, row)

    def _call(self, nodes: tuple[Node, ...], event: str, row: str, live: str) -> None:
        for node in nodes:
            arguments = f"ptr %ctx, ptr %frame, ptr {event}, i64 {row}, i64 %pos, i64 {live}"
            self.body.do(f"call void @s{node.number}({arguments})")

    # Exits.

    def _append(self, exit: int, buffer: int, row: str) -> None:
        body, form = self.body, self._routes.form(exit)
        if form == "rows":
            self._append_row(exit, "%pos" if buffer == 0 else row, "1")
        elif form == "mixed":
            code = body.let(f"or i64 {'%pos' if buffer == 0 else row}, {buffer << 32}")
            body.push(self.context.vector("exit", exit), code)
        for name in self._routes.attributes(exit):
            value = self._attribute(name, self._node.changed.get(name))
            body.keep_attribute(self.context.vector("attribute", exit, name), value)

    def _append_row(self, exit: int, row: str, count: str) -> None:
        """Writes a row to a selection that has room for all, and lengthens it by ``count``, 0 or 1."""
        body = self.body
        start, length = (8 * self._frame.at(what, "exit", exit) for what in ("address", "length"))
        self.context.vector("exit", exit)
        rows = body.load("ptr", "%frame", start)
        n = body.load("i64", "%frame", length)
        body.store("i32", body.let(f"trunc i64 {row} to i32"), rows, body.let(f"shl i64 {n}, 2"))
        body.store("i64", body.let(f"add i64 {n}, {count}"), "%frame", length)

    def _unbranched(self, link: Link) -> bool:
        """Whether events may be sent on by masks alone."""
        return all(node.quiet for node in link.nodes) and (
            link.exit is None or self._routes.notes_rows(link.exit)
        )

    def _send_masked(self, passed: str, link: Link) -> None:
        body = self.body
        live = body.let(f"zext i1 {passed} to i64")
        if self._node.quiet:
            live = body.let(f"and i64 {live}, %live")
        self._count("sent", live)
        self._call(link.nodes, "%event", "%row", live)
        if link.exit is not None:
            self._append_row(link.exit, "%pos" if self._node.buffer == 0 else "%row", live)

    # What was submitted.

    def _note_result(self, e: FunctionEmitter, notes: Notes, result: str) -> None:
        body, node, kind = self.body, self._node, self._function.kind
        test = "sge" if kind == "router" else "ne"
        with body.when(body.let(f"icmp {test} i64 {result}, 0")):
            row = self._finish_result(e)[1] if kind == "transform" else "%row"
            port = result if kind == "router" else "0"
            notes.add(e, port, str(node.passed_on), row, self._function.body.pos, counted=False)
            self._count("emitted")

    def _follow(self, port: str, code: str, on: str) -> None:
        """Sends one noted record on."""
        body, node = self.body, self._node
        row, buffer = body.let(f"and i64 {code}, {(1 << 32) - 1}"), body.let(f"lshr i64 {code}, 32")
        lost = body.label()
        arms = {source: body.label() for source in dict.fromkeys(source for _, source in node.links)}
        body.switch(buffer, lost, arms.items())
        for source, arm in arms.items():
            body.begin(arm)
            labels = {p: body.label() for p, held in node.links if held == source}
            event = "%event" if source == node.buffer else self._record(source, row)
            body.switch(port, lost, labels.items())
            for p, label in labels.items():
                body.begin(label)
                self._count("sent")
                self._send(node.links[p, source], source, event, "%row" if source == node.buffer else row)
                body.jump(on)
        body.begin(lost)
        self._count("lost")
        body.jump(on)

    def _record(self, buffer: int, row: str) -> str:
        body, schema = self.body, self._routes.buffers[buffer].schema
        start = body.word(self.context.vector("bytes", buffer), "ptr")
        if schema is not None and schema.width is not None:
            return body.at(start, body.let(f"mul i64 {row}, {schema.width}"))
        offsets = body.word(self.context.vector("offsets", buffer), "ptr")
        return body.at(start, body.load("i64", offsets, body.let(f"shl i64 {row}, 3")))


def write_fault(body: ContextBody, *words: str) -> None:
    """Adds a fault: stone, position, buffer, row, and what ``failure_words`` gave."""
    faults = body.context.vector("faults")

    def write(_: str) -> None:
        names = [f"%w{i}" for i in range(len(words))]
        parameters = ", ".join(f"i64 {name}" for name in names)
        routine = ContextBody(
            body.module,
            body.context,
            f"internal void @ev.fault(ptr %ctx, {parameters}) noinline cold nounwind",
        )
        routine.push(faults, *names)
        routine.finish()

    keep = body.module.routine("@ev.fault", write)
    body.do(f"call void {keep}(ptr %ctx, {', '.join(f'i64 {word}' for word in words)})")


def write_kernel(routes: Routes) -> KernelText:
    """Writes the module of a tree."""
    module, context, frame = Module(), new_context(), Context()
    context.at("counts", width=4 * routes.stones)
    for node in reversed(routes.nodes):
        _StageWriter(module, context, frame, routes, node).write()
    _write_run(module, context, frame, routes)
    return KernelText(module.text(), context, tuple(module.named))


def _write_run(module: Module, context: Context, frame: Context, routes: Routes) -> None:
    body = ContextBody(module, context, "void @run(ptr noalias %ctx) nounwind")
    schema = routes.buffers[0].schema
    data, selection = body.word(context.at("data"), "ptr"), body.word(context.at("selection"), "ptr")
    offsets = body.word(context.at("offsets"), "ptr") if schema is not None and schema.width is None else ""
    count = body.word(context.at("count"))
    place = body.alloca(f"[{max(frame.size, 1)} x i64]")
    body.zero(place, 8 * frame.size)
    for key, at in frame.words.items():
        if key[0] == "address":
            body.store("i64", body.word(context.vector(*key[1:])), place, 8 * at)
    with body.counted(count) as (pos, _):
        row = selected(body, selection, pos)
        if schema is None:
            start = "0"  # nobody looks at the event
        elif schema.width is not None:
            start = body.let(f"mul i64 {row}, {schema.width}")
        else:
            start = body.load("i64", offsets, body.let(f"shl i64 {row}, 3"))
        event = body.at(data, start)
        for node in routes.entry:
            arguments = f"ptr %ctx, ptr {place}, ptr {event}, i64 {row}, i64 {pos}, i64 1"
            body.do(f"call void @s{node.number}({arguments})")
    _write_totals(body, frame, place, routes, count)
    body.finish()


def selected(body: ContextBody, selection: str, pos: str) -> str:
    """The row of the event at a position of the selection, which is null where all events are meant."""
    chosen, found, before = body.label(), body.label(), body.block
    body.branch(body.let(f"icmp ne ptr {selection}, null"), chosen, found)
    body.begin(chosen)
    picked = body.let(f"zext i32 {body.load('i32', selection, body.let(f'shl i64 {pos}, 2'))} to i64")
    body.begin(found)
    return body.phi("i64", [(pos, before), (picked, chosen)])


def _write_totals(body: ContextBody, frame: Context, place: str, routes: Routes, count: str) -> None:
    """Stores the counts of every stone, the ends of the selections and the last result."""
    counts = [["0"] * 4 for _ in range(routes.stones)]
    for node in routes.nodes:
        row = counts[node.stage.stone]
        for column, part in enumerate(_totals(body, frame, place, node, count)):
            row[column] = part if row[column] == "0" else body.let(f"add i64 {row[column]}, {part}")
    for word, total in enumerate(chain.from_iterable(counts), body.context.at("counts")):
        if total != "0":
            body.set_word(word, total)
    for key, at in frame.words.items():
        if key[0] == "length":
            body.set_word(body.context.vector(*key[1:]) + 1, body.load("i64", place, 8 * at))
        elif key[0] == "result":
            body.set_word(body.context.at("result"), body.load("i64", place, 8 * at))


def _totals(
    body: ContextBody, frame: Context, place: str, node: Node, count: str
) -> tuple[str, str, str, str]:
    """In, out, dropped and faults of a node."""

    def counter(name: str, of: int = node.number) -> str:
        at = frame.words.get((name, of))
        return "0" if at is None else body.load("i64", place, 8 * at)

    seen = count if node.entry else counter("seen") if node.follows is None else counter("sent", node.follows)
    sent, faults = counter("sent"), counter("faults")
    dropped = body.let(f"sub i64 {seen}, {counter('emitted') if node.function.sent else sent}")
    if faults != "0":
        dropped = body.let(f"sub i64 {dropped}, {faults}")
    if node.function.sent:
        dropped = body.let(f"add i64 {dropped}, {counter('lost')}")
    return seen, sent, dropped, faults
