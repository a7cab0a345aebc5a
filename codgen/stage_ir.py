"""One stage of a tree as an LLVM function: the stone's function, and where its events go.

A function that cannot submit sends at most one event, which goes on at once. One that submits only notes what
it sends, since a later fault takes it all back; when it has returned, the notes are followed.
"""

from __future__ import annotations

from evflow.codgen.context import Context, Key, grow_if_full, load, push, store
from evflow.codgen.emitter import Emitter, Triple
from evflow.codgen.ir import Body, Module
from evflow.codgen.llvm import Exits, FunctionEmitter, write_function
from evflow.codgen.stage import Link, Node, Routes
from evflow.codgen.tree import Fault, Pos, Root

__all__ = ["MAX_SUBMITS", "Frame", "write_stage"]

MAX_SUBMITS = 100_000
"""Events that a function may submit for one event; beyond it is a LIMIT fault."""


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
    """Adds the function ``void s<number>(context, frame, event, row, position)`` of a node."""
    signature = f"internal void @s{node.number}(ptr %ctx, ptr %frame, ptr %event, i64 %row, i64 %pos) nounwind"
    stage = _StageWriter(Body(module, signature), context, frame, routes, node)
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
        self._images: list[str] = []
        self._ends: list[str] = []
        self._rows: list[str] = []
        self._notes: str | None = None

    # What a function may do (the protocol Host).

    def event(self, e: Emitter, root: Root, pos: Pos) -> str:
        return "%event"

    def queue_length(self, e: Emitter, slot: int) -> str:
        raise NotImplementedError("only a queue stone has queues")

    def discard(self, e: Emitter, queue: int, index: str, pos: Pos) -> None:
        raise NotImplementedError("only a queue stone has queues")

    def image(self, e: Emitter, slot: int) -> str:
        return self._body.let(f"load ptr, ptr {self._images[slot]}")

    def reserve(self, e: Emitter, slot: int, size: str, pos: Pos) -> str:
        body, vector = self._body, self._bytes(slot)
        end = body.let(f"load i64, ptr {self._ends[slot]}")
        room = grow_if_full(body, vector, body.let(f"add i64 {end}, {size}"))
        e.fault_if(body.let(f"xor i1 {room}, true"), Fault.LIMIT, pos)
        image = body.at(load(body, vector, "ptr"), end)
        body.do(f"store ptr {image}, ptr {self._images[slot]}")
        return image

    def submit_output(self, e: Emitter, port: str, slot: int, size: str, pos: Pos) -> None:
        row = self._body.let(f"load i64, ptr {self._rows[slot]}")
        self._note(e, port, self._node.outputs[slot], row, pos)
        self._add_row(e, slot, row, size, pos)
        self.reserve(e, slot, str(self._function.outputs[slot][1].fixed_width), pos)

    def submit_event(self, e: Emitter, port: str, event: Root, pos: Pos) -> None:
        self._note(e, port, self._node.buffer, "%row", pos)

    def attribute(self, e: Emitter, scope: str, name: str) -> Triple:
        if scope == "stone":
            at = self._context.at("stone attribute", self._node.stage.stone, name, width=3)
            kind, bits, size = (load(self._body, at + i) for i in range(3))
            return kind, bits, size
        return self._attribute(name, self._node.changed.get(name))

    def set_attribute(self, e: Emitter, name: str, value: Triple) -> None:
        self._store_attribute(name, value)

    def system(self, e: Emitter, name: str) -> str:
        return load(self._body, self._context.at("system", name), "double")

    def static(self, e: Emitter, offset: int) -> str:
        return self._body.at(load(self._body, self._context.at("state", self._node.stage.stone), "ptr"), offset)

    def scratch(self, e: Emitter, size: int) -> str:
        start = self._frame.scratch
        self._frame.scratch = -(-(start + size) // 16) * 16
        base = self._body.let_at_entry(f"getelementptr i8, ptr %ctx, i64 {8 * self._context.at('scratch')}")
        base = self._body.let_at_entry(f"load ptr, ptr {base}")
        return self._body.let_at_entry(f"getelementptr i8, ptr {base}, i64 {start}")

    # Records under construction.

    def _bytes(self, slot: int) -> int:
        return self._context.vector("bytes", self._node.outputs[slot])

    def _begin_outputs(self) -> list[tuple[str, str]]:
        """Sets the records up; gives the blocks that found no memory, for the block ``fault``."""
        body = self._body
        failures = []
        for slot, (_, schema) in enumerate(self._function.outputs):
            vector, rows = self._bytes(slot), self._context.vector("origin", self._node.outputs[slot])
            end = load(body, vector + 1)
            self._ends.append(body.alloca("i64"))
            self._rows.append(body.alloca("i64"))
            self._images.append(body.alloca("ptr"))
            room = grow_if_full(body, vector, body.let(f"add i64 {end}, {schema.fixed_width}"))
            failures.append((str(int(Fault.LIMIT)), body.block))
            on = body.label()
            body.branch(room, on, "fault")
            body.begin(on)
            body.do(f"store i64 {end}, ptr {self._ends[slot]}")
            body.do(f"store i64 {load(body, rows + 1)}, ptr {self._rows[slot]}")
            body.do(f"store ptr {body.at(load(body, vector, 'ptr'), end)}, ptr {self._images[slot]}")
        return failures

    def _add_row(self, e: Emitter, slot: int, row: str, size: str, pos: Pos) -> None:
        """Counts a finished record in, for now only in the function's own variables."""
        body, buffer = self._body, self._node.outputs[slot]
        origin = self._context.vector("origin", buffer)
        next_row = body.let(f"add i64 {row}, 1")
        room = grow_if_full(body, origin, next_row)
        e.fault_if(body.let(f"xor i1 {room}, true"), Fault.LIMIT, pos)
        position = body.let("trunc i64 %pos to i32")
        body.store("i32", position, load(body, origin, "ptr"), body.let(f"shl i64 {row}, 2"))
        end = body.let(f"add i64 {body.let(f'load i64, ptr {self._ends[slot]}')}, {size}")
        if self._function.outputs[slot][1].width is None:
            offsets = load(body, self._context.vector("offsets", buffer), "ptr")
            body.store("i64", end, offsets, body.let(f"shl i64 {next_row}, 3"))
        body.do(f"store i64 {end}, ptr {self._ends[slot]}")
        body.do(f"store i64 {next_row}, ptr {self._rows[slot]}")

    def _commit(self) -> None:
        body = self._body
        for slot, buffer in enumerate(self._node.outputs):
            store(body, self._bytes(slot) + 1, body.let(f"load i64, ptr {self._ends[slot]}"))
            rows = body.let(f"load i64, ptr {self._rows[slot]}")
            store(body, self._context.vector("origin", buffer) + 1, rows)

    # Attributes.

    def _attribute(self, name: str, setter: int | None) -> Triple:
        """An attribute as the node ``setter`` left it, or as the input event has it."""
        body = self._body
        if setter is not None:
            at = self._frame.at("attribute", setter, name, width=3)
            kind, bits, size = (body.load("i64", "%frame", at + 8 * i) for i in range(3))
            return kind, bits, size
        column = self._context.at("attribute", name, width=3)
        read = body.module.routine("@ev.attribute", lambda _: _write_read_attribute(body.module))
        found = body.alloca("[3 x i64]")
        body.do(f"call void {read}(ptr {body.at('%ctx', 8 * column)}, i64 %pos, ptr {found})")
        kind, bits, size = (body.load("i64", found, 8 * i) for i in range(3))
        return kind, bits, size

    def _store_attribute(self, name: str, value: Triple) -> None:
        at = self._frame.at("attribute", self._node.number, name, width=3)
        for i, word in enumerate(value):
            self._body.store("i64", word, "%frame", at + 8 * i)

    def _begin_attributes(self) -> None:
        for name in self._node.sets:
            self._store_attribute(name, self._attribute(name, self._node.inherited.get(name)))

    # The function and what follows it.

    def write(self) -> None:
        body, node = self._body, self._node
        if not node.entry:
            self._count("seen")
        if node.submits:
            self._notes = body.alloca("i64")
            body.do(f"store i64 {load(body, self._context.vector('notes') + 1)}, ptr {self._notes}")
        failures = self._begin_outputs()
        self._begin_attributes()
        e, exits = write_function(body, self._function, self)
        exits.faults.extend(failures)
        body.begin("return")
        result = body.phi("i64", exits.returns) if len(exits.returns) > 1 else exits.returns[0][0]
        body.store("i64", result, "%frame", self._frame.at("result"))
        if node.submits:
            self._follow_notes(e, result)
        else:
            self._send_result(e, result)
        self._write_fault(exits)
        body.finish()

    def _write_fault(self, exits: Exits) -> None:
        if not exits.faults:
            return
        body, node = self._body, self._node
        body.begin("fault")
        code = body.phi("i64", exits.faults)
        self._count("faults")
        faults = self._context.vector("faults")
        keep = body.module.routine("@ev.fault", lambda _: _write_fault(body.module, faults))
        numbers = (str(node.stage.stone), "%pos", str(node.buffer), "%row", code)
        body.do(f"call void {keep}(ptr %ctx, {', '.join(f'i64 {n}' for n in numbers)})")
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
        if kind == "filter" and self._routes.is_plain(ports[0]):
            self._append_if(passed, ports[0])
            body.ret()
            return
        send, done = body.label(), body.label()
        body.branch(passed, send, done)
        body.begin(send)
        event, row = "%event", "%row"
        if kind == "transform":
            event, row = self._finish_result(e)
            self._commit()
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
        size = e.outputs[0].finish(self._function.body.pos)
        image = self.image(e, 0)
        row = self._body.let(f"load i64, ptr {self._rows[0]}")
        self._add_row(e, 0, row, size, self._function.body.pos)
        return image, row

    def _send(self, link: Link, buffer: int, event: str, row: str) -> None:
        for node in link.nodes:
            self._body.do(f"call void @s{node.number}(ptr %ctx, ptr %frame, ptr {event}, i64 {row}, i64 %pos)")
        if link.exit is not None:
            self._append(link.exit, buffer, row)

    # Exits.

    def _append(self, exit: int, buffer: int, row: str) -> None:
        body, form = self._body, self._routes.form(exit)
        if form == "rows":
            self._append_row(exit, "%pos" if buffer == 0 else row, "1")
        elif form == "mixed":
            code = body.let(f"or i64 {'%pos' if buffer == 0 else row}, {buffer << 32}")
            push(body, self._context.vector("exit", exit), "i64", (code,))
        for name in self._routes.attributes(exit):
            self._keep_attribute(exit, name)

    def _keep_attribute(self, exit: int, name: str) -> None:
        """Appends an attribute as it leaves; a text's bytes are copied, and its address becomes an offset."""
        body, texts = self._body, self._context.vector("texts")
        kind, bits, size = self._attribute(name, self._node.changed.get(name))
        keep = body.module.routine("@ev.text", lambda _: _write_keep_text(body.module, texts))
        text, done, before = body.label(), body.label(), body.block
        body.branch(body.let(f"icmp eq i64 {kind}, 3"), text, done)
        body.begin(text)
        start = body.call("i64", keep, "ptr %ctx", f"i64 {bits}", f"i64 {size}")
        body.begin(done)
        word = body.phi("i64", [(bits, before), (start, text)])
        push(body, self._context.vector("attribute", exit, name), "i64", (kind, word, size))

    def _append_row(self, exit: int, row: str, count: str) -> None:
        """Writes a row to a selection that has room for all, and lengthens it by ``count``, 0 or 1."""
        body = self._body
        start, length = self._frame.at("address", "exit", exit), self._frame.at("length", "exit", exit)
        self._context.vector("exit", exit)
        rows = body.load("ptr", "%frame", start)
        n = body.load("i64", "%frame", length)
        body.store("i32", body.let(f"trunc i64 {row} to i32"), rows, body.let(f"shl i64 {n}, 2"))
        body.store("i64", body.let(f"add i64 {n}, {count}"), "%frame", length)

    def _append_if(self, passed: str, link: Link) -> None:
        assert link.exit is not None
        count = self._body.let(f"zext i1 {passed} to i64")
        self._append_row(link.exit, "%pos" if self._node.buffer == 0 else "%row", count)
        self._count("sent", count)

    # Notes of what was submitted.

    def _note(self, e: Emitter, port: str, buffer: int, row: str, pos: Pos) -> None:
        base = load(self._body, self._context.vector("notes") + 1)
        noted = self._body.let(f"sub i64 {self._body.let(f'load i64, ptr {self._notes}')}, {base}")
        e.fault_if(self._body.let(f"icmp uge i64 {noted}, {2 * MAX_SUBMITS}"), Fault.LIMIT, pos)
        self._write_note(e, port, buffer, row, pos)

    def _write_note(self, e: Emitter, port: str, buffer: int, row: str, pos: Pos) -> None:
        body, notes = self._body, self._context.vector("notes")
        used = body.let(f"load i64, ptr {self._notes}")
        end = body.let(f"add i64 {used}, 2")
        room = grow_if_full(body, notes, end)
        e.fault_if(body.let(f"xor i1 {room}, true"), Fault.LIMIT, pos)
        target = body.at(load(body, notes, "ptr"), body.let(f"shl i64 {used}, 3"))
        body.store("i64", port, target)
        body.store("i64", body.let(f"or i64 {row}, {buffer << 32}"), target, 8)
        body.do(f"store i64 {end}, ptr {self._notes}")

    def _follow_notes(self, e: FunctionEmitter, result: str) -> None:
        self._note_result(e, result)
        self._commit()
        body, notes = self._body, self._context.vector("notes")
        first, behind = load(body, notes + 1), body.let(f"load i64, ptr {self._notes}")
        # What is sent on may note something itself, and does so behind these.
        store(body, notes + 1, behind)
        index = body.alloca("i64")
        body.do(f"store i64 {first}, ptr {index}")
        test, turn, done = body.label(), body.label(), body.label()
        body.begin(test)
        at = body.let(f"load i64, ptr {index}")
        body.branch(body.let(f"icmp slt i64 {at}, {behind}"), turn, done)
        body.begin(turn)
        body.do(f"store i64 {body.let(f'add i64 {at}, 2')}, ptr {index}")
        note = body.at(load(body, notes, "ptr"), body.let(f"shl i64 {at}, 3"))
        self._follow(body.load("i64", note), body.load("i64", note, 8), test)
        body.begin(done)
        store(body, notes + 1, first)
        body.ret()

    def _note_result(self, e: FunctionEmitter, result: str) -> None:
        body, node, kind = self._body, self._node, self._function.kind
        note, done = body.label(), body.label()
        test = "sge" if kind == "router" else "ne"
        body.branch(body.let(f"icmp {test} i64 {result}, 0"), note, done)
        body.begin(note)
        row = self._finish_result(e)[1] if kind == "transform" else "%row"
        self._write_note(e, result if kind == "router" else "0", node.passed_on, row, self._function.body.pos)
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


def _write_fault(module: Module, faults: int) -> None:
    names = ("stone", "pos", "buffer", "row", "code")
    parameters = ", ".join(f"i64 %{name}" for name in names)
    body = Body(module, f"internal void @ev.fault(ptr %ctx, {parameters}) noinline cold nounwind")
    push(body, faults, "i64", tuple(f"%{name}" for name in names))
    body.ret()
    body.finish()


def _write_read_attribute(module: Module) -> None:
    """Reads a column: three words (kind, values, present) at ``column``, into the three words at ``found``."""
    body = Body(module, "internal void @ev.attribute(ptr %column, i64 %pos, ptr %found) nounwind")
    set_, there, text, number, done = (body.label() for _ in range(5))
    for i in range(3):
        body.store("i64", "0", "%found", 8 * i)
    kind = body.load("i64", "%column")
    body.branch(body.let(f"icmp eq i64 {kind}, 0"), done, set_)
    body.begin(set_)
    present = body.load("i8", body.load("ptr", "%column", 16), "%pos")
    body.branch(body.let(f"icmp eq i8 {present}, 0"), done, there)
    body.begin(there)
    body.store("i64", kind, "%found")
    values = body.load("ptr", "%column", 8)
    body.branch(body.let(f"icmp eq i64 {kind}, 3"), text, number)
    body.begin(text)
    pair = body.at(values, body.let("shl i64 %pos, 4"))
    body.store("i64", body.load("i64", pair), "%found", 8)
    body.store("i64", body.load("i64", pair, 8), "%found", 16)
    body.jump(done)
    body.begin(number)
    body.store("i64", body.load("i64", values, body.let("shl i64 %pos, 3")), "%found", 8)
    body.begin(done)
    body.ret()
    body.finish()


def _write_keep_text(module: Module, texts: int) -> None:
    """Copies a text to the vector ``texts``; gives where it starts there."""
    body = Body(module, "internal i64 @ev.text(ptr %ctx, i64 %address, i64 %size) noinline nounwind")
    used = load(body, texts + 1)
    end = body.let(f"add i64 {used}, %size")
    room, done = body.label(), body.label()
    body.branch(grow_if_full(body, texts, end), room, done)
    body.begin(room)
    body.copy(body.at(load(body, texts, "ptr"), used), body.let("inttoptr i64 %address to ptr"), "%size")
    store(body, texts + 1, end)
    body.begin(done)
    body.ret(f"i64 {used}")
    body.finish()
