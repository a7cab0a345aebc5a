"""One stage of a tree as an LLVM function: the stone's function, and where its events go.

A function that cannot submit sends at most one event, which goes on at once. One that submits only notes what
it sends, since a later fault takes it all back; when it has returned, the notes are followed.
"""

from __future__ import annotations

from evflow.codgen.llvm.attribute_ir import (
    keep_attribute,
    load_triple,
    read_column,
    stone_attribute,
    store_triple,
)
from evflow.codgen.llvm.context import Context, Key, load, push, scratch_pointer
from evflow.codgen.llvm.emitter import Emitter, Triple, failure_words
from evflow.codgen.llvm.function import Exits, FunctionEmitter, write_function
from evflow.codgen.llvm.ir import Body, Module
from evflow.codgen.llvm.output_ir import Notes, OutputBuffers
from evflow.codgen.llvm.stage import Link, Node, Routes
from evflow.codgen.tree import Pos, Root

__all__ = ["Frame", "write_fault", "write_stage"]


class Frame:
    """Words on the stack of ``run`` by key, and memory for large arrays.

    Attributes:
        slots: key → index of its first word.
        size: words in all.
        scratch: bytes of memory for large arrays.
    """

    def __init__(self) -> None:
        self.slots: dict[Key, int] = {}
        self.size = 0
        self.scratch = 0

    def at(self, *key: str | int | None, width: int = 1) -> int:
        """Offset in bytes of the first word of ``key``."""
        known = self.slots.get(key)
        if known is None:
            known = self.slots[key] = self.size
            self.size += width
        return 8 * known


def write_stage(module: Module, context: Context, frame: Frame, routes: Routes, node: Node) -> None:
    """Adds the function ``void s<number>(context, frame, event, row, position, live)`` of a node.

    ``live`` is 1, or 0 for an event that did not get here; only a quiet node is called for one.
    """
    parameters = "ptr %ctx, ptr %frame, ptr %event, i64 %row, i64 %pos, i64 %live"
    body = Body(module, f"internal void @s{node.number}({parameters}) nounwind")
    stage = _StageWriter(body, context, frame, routes, node)
    stage.write()


class _StageWriter:
    """Writes one node; it is the host of the node's function.

    Attributes:
        invariant: see ``Host``; the input batch is not written to while the kernel runs, buffers are.
    """

    def __init__(self, body: Body, context: Context, frame: Frame, routes: Routes, node: Node) -> None:
        self.invariant = ", !invariant.load !0" if node.buffer == 0 else ""
        self._body = body
        self._context = context
        self._frame = frame
        self._routes = routes
        self._node = node
        self._function = node.stage.function
        schemas = (schema for _, schema in self._function.outputs)
        self._outputs = OutputBuffers(body, context, list(zip(node.outputs, schemas, strict=True)))
        self._notes = Notes(body, context) if node.submits else None

    # What a function may do (the protocol Host).

    def event(self, e: Emitter, root: Root, pos: Pos) -> str:
        return "%event"

    def queue_length(self, e: Emitter, slot: int) -> str:
        raise NotImplementedError("only a queue stone has queues")

    def discard(self, e: Emitter, queue: int, index: str, pos: Pos) -> None:
        raise NotImplementedError("only a queue stone has queues")

    def image(self, e: Emitter, slot: int) -> str:
        return self._outputs.image(slot)

    def reserve(self, e: Emitter, slot: int, size: str, pos: Pos) -> str:
        return self._outputs.reserve(e, slot, size, pos)

    def submit_output(self, e: Emitter, port: str, slot: int, size: str, pos: Pos) -> None:
        assert self._notes is not None
        row = self._outputs.add(e, slot, size, "%pos", pos)
        self._notes.add(e, port, str(self._node.outputs[slot]), row, pos)
        self._outputs.start_next(e, slot, pos)

    def submit_event(self, e: Emitter, port: str, event: Root, pos: Pos) -> None:
        assert self._notes is not None
        self._notes.add(e, port, str(self._node.buffer), "%row", pos)

    def attribute(self, e: Emitter, scope: str, name: str) -> Triple:
        if scope == "stone":
            return stone_attribute(self._body, self._context, self._node.stage.stone, name)
        return self._attribute(name, self._node.changed.get(name))

    def set_attribute(self, e: Emitter, name: str, value: Triple) -> None:
        self._store_attribute(name, value)

    def system(self, e: Emitter, name: str) -> str:
        return load(self._body, self._context.at("system", name), "double")

    def static(self, e: Emitter, offset: int) -> str:
        return self._body.at(
            load(self._body, self._context.at("state", self._node.stage.stone), "ptr"), offset
        )

    def scratch(self, e: Emitter, size: int) -> str:
        start = self._frame.scratch
        self._frame.scratch = -(-(start + size) // 16) * 16
        return scratch_pointer(self._body, self._context, start)

    # Attributes.

    def _attribute(self, name: str, setter: int | None) -> Triple:
        """An attribute as the node ``setter`` left it, or as the input event has it."""
        if setter is not None:
            return load_triple(self._body, "%frame", self._frame.at("attribute", setter, name, width=3))
        return read_column(self._body, self._context, name, "%pos")

    def _store_attribute(self, name: str, value: Triple) -> None:
        at = self._frame.at("attribute", self._node.number, name, width=3)
        store_triple(self._body, value, "%frame", at)

    def _begin_attributes(self) -> None:
        for name in self._node.sets:
            self._store_attribute(name, self._attribute(name, self._node.inherited.get(name)))

    # The function and what follows it.

    def write(self) -> None:
        body, node = self._body, self._node
        if not node.entry and node.follows is None:
            self._count("seen")
        if self._notes is not None:
            self._notes.begin()
        failures = self._outputs.begin()
        self._begin_attributes()
        e, exits = write_function(body, self._function, self)
        exits.faults.extend(failures)
        # What might fault after all is not run for an event that did not get here.
        node.quiet = node.quiet and not exits.faults
        body.begin("return")
        result = body.phi("i64", exits.returns) if len(exits.returns) > 1 else exits.returns[0][0]
        body.store("i64", result, "%frame", self._frame.at("result"))
        if self._notes is not None:
            self._note_result(e, self._notes, result)
            self._notes.charge_texts(e, [self._attribute(name, by) for name, by in node.changed.items()])
            self._outputs.commit()
            port, code, on = self._notes.begin_following()
            self._follow(port, code, on)
            self._notes.end_following()
            body.ret()
        else:
            self._send_result(e, result)
        self._write_fault(exits)
        body.finish()

    def _write_fault(self, exits: Exits) -> None:
        if not exits.faults:
            return
        body, node = self._body, self._node
        body.begin("fault")
        words = failure_words(body, exits.faults)
        self._count("faults")
        write_fault(body, self._context, str(node.stage.stone), "%pos", str(node.buffer), "%row", *words)
        body.ret()

    def _count(self, name: str, more: str = "1") -> None:
        at = self._frame.at(name, self._node.number)
        before = self._body.load("i64", "%frame", at)
        self._body.store("i64", self._body.let(f"add i64 {before}, {more}"), "%frame", at)

    def _send_result(self, e: FunctionEmitter, result: str) -> None:
        body, node, kind = self._body, self._node, self._function.kind
        ports = {port: link for (port, _), link in node.links.items()}
        if kind == "router":
            self._send_routed(result, ports)
            return
        if 0 not in ports:
            body.ret()
            return
        passed = body.let(f"icmp ne i64 {result}, 0")
        if kind == "filter" and self._unbranched(ports[0]):
            self._send_masked(passed, ports[0])
            body.ret()
            return
        send, done = body.label(), body.label()
        if node.quiet:
            passed = body.let(f"and i1 {passed}, {body.let('icmp ne i64 %live, 0')}")
        body.branch(passed, send, done)
        body.begin(send)
        event, row = "%event", "%row"
        if kind == "transform":
            event, row = self._finish_result(e)
            self._outputs.commit()
        self._count("sent")
        self._send(ports[0], node.passed_on, event, row)
        body.begin(done)
        body.ret()

    def _send_routed(self, result: str, ports: dict[int, Link]) -> None:
        body = self._body
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
        return self.image(e, 0), self._outputs.add(e, 0, size, "%pos", pos)

    def _send(self, link: Link, buffer: int, event: str, row: str) -> None:
        self._call(link.nodes, event, row, "1")
        if link.exit is not None:
            self._append(link.exit, buffer, row)

    def _call(self, nodes: tuple[Node, ...], event: str, row: str, live: str) -> None:
        for node in nodes:
            arguments = f"ptr %ctx, ptr %frame, ptr {event}, i64 {row}, i64 %pos, i64 {live}"
            self._body.do(f"call void @s{node.number}({arguments})")

    # Exits.

    def _append(self, exit: int, buffer: int, row: str) -> None:
        body, form = self._body, self._routes.form(exit)
        if form == "rows":
            self._append_row(exit, "%pos" if buffer == 0 else row, "1")
        elif form == "mixed":
            code = body.let(f"or i64 {'%pos' if buffer == 0 else row}, {buffer << 32}")
            push(body, self._context.vector("exit", exit), "i64", (code,))
        for name in self._routes.attributes(exit):
            value = self._attribute(name, self._node.changed.get(name))
            keep_attribute(body, self._context, self._context.vector("attribute", exit, name), value)

    def _append_row(self, exit: int, row: str, count: str) -> None:
        """Writes a row to a selection that has room for all, and lengthens it by ``count``, 0 or 1."""
        body = self._body
        start, length = self._frame.at("address", "exit", exit), self._frame.at("length", "exit", exit)
        self._context.vector("exit", exit)
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
        body = self._body
        live = body.let(f"zext i1 {passed} to i64")
        if self._node.quiet:
            live = body.let(f"and i64 {live}, %live")
        self._count("sent", live)
        self._call(link.nodes, "%event", "%row", live)
        if link.exit is not None:
            self._append_row(link.exit, "%pos" if self._node.buffer == 0 else "%row", live)

    # What was submitted.

    def _note_result(self, e: FunctionEmitter, notes: Notes, result: str) -> None:
        body, node, kind = self._body, self._node, self._function.kind
        note, done = body.label(), body.label()
        test = "sge" if kind == "router" else "ne"
        body.branch(body.let(f"icmp {test} i64 {result}, 0"), note, done)
        body.begin(note)
        row = self._finish_result(e)[1] if kind == "transform" else "%row"
        port = result if kind == "router" else "0"
        notes.add(e, port, str(node.passed_on), row, self._function.body.pos, counted=False)
        self._count("emitted")
        body.begin(done)

    def _follow(self, port: str, code: str, on: str) -> None:
        """Sends one noted record on."""
        body, node = self._body, self._node
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
        body, schema = self._body, self._routes.buffers[buffer].schema
        start = load(body, self._context.vector("bytes", buffer), "ptr")
        if schema is not None and schema.width is not None:
            return body.at(start, body.let(f"mul i64 {row}, {schema.width}"))
        offsets = load(body, self._context.vector("offsets", buffer), "ptr")
        return body.at(start, body.load("i64", offsets, body.let(f"shl i64 {row}, 3")))


def write_fault(body: Body, context: Context, *words: str) -> None:
    """Adds a fault: stone, position, buffer, row, and what ``failure_words`` gave."""
    faults = context.vector("faults")

    def write(_: str) -> None:
        names = [f"%w{i}" for i in range(len(words))]
        parameters = ", ".join(f"i64 {name}" for name in names)
        routine = Body(body.module, f"internal void @ev.fault(ptr %ctx, {parameters}) noinline cold nounwind")
        push(routine, faults, "i64", tuple(names))
        routine.ret()
        routine.finish()

    keep = body.module.routine("@ev.fault", write)
    body.do(f"call void {keep}(ptr %ctx, {', '.join(f'i64 {word}' for word in words)})")
