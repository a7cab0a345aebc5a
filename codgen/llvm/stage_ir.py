"""A tree of stages as one LLVM module: ``run`` takes every selected event through the whole tree.

Each node of the tree is a function over the context, the frame, the event, its row and its position in the
selection: the stone's function, and where its events go. A function that cannot submit sends at most one
event, which goes on at once. One that submits only notes what it sends, since a later fault takes it all
back; when it has returned, the notes are followed.

The frame is an array on ``run``'s stack: counters, attributes that were set on the way, and the ends of
selections. The optimiser turns it into registers once the stages are inlined; that is why counters are not
kept in the context, which a callback may read.

A filter alone, as one that is inserted into a running graph is at first, has a ``run`` that all of them have:
it is written and compiled once, and reaches the function by its address. Numbers that the function compares
with are words of the context, so that in the first tier filters that differ in nothing else share its code.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from evflow.codgen.llvm.context import Context, ContextBody, Triple, load_triple, new_context, store_triple
from evflow.codgen.llvm.emitter import Emitter, failure_words
from evflow.codgen.llvm.function import FunctionEmitter, write_function
from evflow.codgen.llvm.host import Host, Notes
from evflow.codgen.llvm.ir import FORMATS, LLVM_TYPES, Module
from evflow.codgen.llvm.stage import Link, Node, Routes
from evflow.codgen.tree import Const, Pos, Root


class KernelText(NamedTuple):
    """A module before it is compiled.

    Attributes:
        ir: the module; its entry is ``void run(ptr context)``.
        context: what the words of the context are.
        names: what faults are about, by number.
        loop: where ``run`` is one that others share, its module; ``ir`` is then the function alone, ``s0``.
        constants: what the two take from the context.
    """

    ir: str
    context: Context
    names: tuple[str, ...]
    loop: str = ""
    constants: tuple[Constant, ...] = ()

    def whole(self) -> str:
        """The module with all that it calls, and the numbers that it takes from the context, in it."""
        if not self.loop:
            return self.ir
        function = self.ir.replace("define i64 @s0(", "define internal i64 @s0(", 1)
        texts = {constant.name: constant.text for constant in self.constants}
        both = _LOADED.sub("", function + self.loop.removesuffix(Module.END))
        return _LIFTED.sub(lambda found: texts[found[1]], both)


class Constant(NamedTuple):
    """What code takes from the context that is always the same.

    Attributes:
        name: of the value in the code.
        word: the word that holds it.
        bits: what that has to be; None for the address of the function.
        text: the value as an operand.
    """

    name: str
    word: int
    bits: int | None
    text: str


_LIFTED = re.compile(r"%(k\d+|width|s0)\b")
_LOADED = re.compile(r"  %(at\.)?(k\d+|width|s0) = .*\n")
"""The operand of such a value, and where it is loaded."""


class _StageWriter(Host):
    """Writes the function ``void s<number>(context, frame, event, row, position, live)`` of a node.

    ``live`` is 1, or 0 for an event that did not get here; only a quiet node is called for one.

    Attributes:
        invariant: see ``Host``; the input batch is not written to while the kernel runs, buffers are.
    """

    def __init__(
        self,
        module: Module,
        context: Context,
        frame: Context,
        routes: Routes,
        node: Node,
        alone: bool = False,
    ) -> None:
        parameters = "ptr %ctx, ptr %frame, ptr %event, i64 %row, i64 %pos, i64 %live"
        kind = "i64" if alone else "internal void"
        body = ContextBody(module, context, f"{kind} @s{node.number}({parameters}) nounwind")
        self.constants: list[Constant] | None = [] if alone else None
        self._function = node.function
        outputs = zip(node.outputs, self._function.outputs, strict=True)
        super().__init__(body, node.stage.stone, [(number, schema) for number, (_, schema) in outputs])
        self.invariant = ", !invariant.load !0" if node.buffer == 0 else ""
        self._frame = frame
        self._routes = routes
        self._node = node
        self._notes = Notes(body) if node.function.sent else None

    # What a function may do (the protocol Host).

    def event(self, e: Emitter, root: Root, pos: Pos) -> str:
        return "%event"

    def constant(self, expr: Const) -> str:
        text, taken = super().constant(expr), self.constants
        if taken is None or expr.type not in FORMATS:
            return text
        name, word = f"k{len(taken)}", self.context.at("constant", len(taken))
        held = struct.pack(FORMATS[expr.type], expr.value).ljust(8, b"\0")
        taken.append(Constant(name, word, int.from_bytes(held, sys.byteorder, signed=True), text))
        self.body.load_at_entry(name, LLVM_TYPES[expr.type], "%ctx", 8 * word)
        return f"%{name}"

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
        e, result = self._write_function()
        e.faults.extend(failures)
        # What might fault after all is not run for an event that did not get here.
        node.quiet = node.quiet and not e.faults
        if self._notes is not None:
            self._note_result(e, self._notes, result)
            self._notes.charge_texts(e, [self._attribute(name, by) for name, by in node.changed.items()])
            self.commit()
            with self._notes.following() as (port, code, on):
                self._follow(port, code, on)
            body.ret()
        else:
            self._send_result(e, result)
        self._write_fault(e)
        body.finish()

    def write_alone(self) -> list[Constant]:
        """Writes the function and nothing that follows: ``i64 s0(…)`` gives its result, 0 after a fault.

        Returns:
            The numbers that it takes from the context.
        """
        e, result = self._write_function()
        self.body.ret(f"i64 {result}")
        self._write_fault(e)
        if self.body.open:
            self.body.ret("i64 0")
        self.body.finish()
        return self.constants or []

    def _write_function(self) -> tuple[FunctionEmitter, str]:
        """Writes the function up to its result, which it gives and notes."""
        body = self.body
        e = write_function(body, self._function, self)
        if len(e.returns) > 1:
            body.begin("return")
            result = body.phi("i64", e.returns)
        else:
            body.join("return")
            result = e.returns[0][0]
        body.store("i64", result, "%frame", 8 * self._frame.at("result"))
        return e, result

    def _write_fault(self, e: FunctionEmitter) -> None:
        if e.faults:
            self.body.begin("fault")
            words = failure_words(self.body, e.faults)
            self._count("faults")
            where = str(self._stone), "%pos", str(self._node.buffer), "%row"
            write_fault(self.body, *where, *words)

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
        _append_row(self.body, self._frame, "%frame", exit, row, count)

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


def _append_row(body: ContextBody, frame: Context, place: str, exit: int, row: str, count: str) -> None:
    """Writes a row to a selection that has room for all, and lengthens it by ``count``, 0 or 1."""
    start, length = 8 * frame.at("address", "exit", exit), 8 * frame.at("length", "exit", exit)
    body.context.vector("exit", exit)
    rows = body.load("ptr", place, start)
    n = body.load("i64", place, length)
    body.store("i32", body.let(f"trunc i64 {row} to i32"), rows, body.let(f"shl i64 {n}, 2"))
    body.store("i64", body.let(f"add i64 {n}, {count}"), place, length)


def write_kernel(routes: Routes) -> KernelText:
    """Writes the module of a tree."""
    if routes.lone_filter:
        return _write_lone(routes)
    module, context, frame = Module(), new_context(), Context()
    context.at("counts", width=4 * routes.stones)
    for node in reversed(routes.nodes):
        _StageWriter(module, context, frame, routes, node).write()
    body = ContextBody(module, context, _RUN)
    place = _begin_frame(body, frame)
    schema = routes.buffers[0].schema
    width = None if schema is None or schema.width is None else str(schema.width)
    with _each_event(body, schema is not None, width) as (event, row, pos, count):
        for node in routes.entry:
            arguments = f"ptr %ctx, ptr {place}, ptr {event}, i64 {row}, i64 {pos}, i64 1"
            body.do(f"call void @s{node.number}({arguments})")
    _write_totals(body, frame, place, routes, count)
    _write_ends(body, frame, place)
    body.finish()
    return KernelText(module.text(), context, tuple(module.named))


_RUN = "void @run(ptr noalias %ctx) nounwind"


def _write_lone(routes: Routes) -> KernelText:
    """Writes a filter that is alone; the loop is there already, unless it is the first of its kind."""
    schema = routes.buffers[0].schema
    width = None if schema is None else schema.width
    loop, shared, frame = _lone_loop(schema is not None, width is not None, bool(routes.exits))
    module, context = Module(), shared.copy()
    writer = _StageWriter(module, context, frame, routes, routes.entry[0], alone=True)
    constants = writer.write_alone()
    words = shared.words
    constants.append(Constant("s0", words["function",], None, "@s0"))
    constants.append(Constant("width", words["width",], width or 0, str(width)))
    return KernelText(module.text(), context, tuple(module.named), loop, tuple(constants))


@lru_cache(maxsize=8)
def _lone_loop(seen: bool, fixed: bool, linked: bool) -> tuple[str, Context, Context]:
    """The ``run`` of filters that are alone, with the words of its context and of its frame.

    Args:
        seen, fixed: whether anybody looks at the events, and whether all are of one width.
        linked: whether what passes goes on.
    """
    module, context, frame = Module(), new_context(), Context()
    function, width, counts = context.at("function"), context.at("width"), context.at("counts", width=4)
    frame.at("result"), frame.at("faults", 0), frame.at("sent", 0)
    if linked:
        frame.at("address", "exit", 0), frame.at("length", "exit", 0)
    body = ContextBody(module, context, _RUN)
    place = _begin_frame(body, frame)
    sent = body.at(place, 8 * frame.at("sent", 0))
    body.load_at_entry("s0", "ptr", "%ctx", 8 * function)
    body.load_at_entry("width", "i64", "%ctx", 8 * width)
    with _each_event(body, seen, "%width" if fixed else None) as (event, row, pos, count):
        arguments = f"ptr %ctx, ptr {place}, ptr {event}, i64 {row}, i64 {pos}, i64 1"
        result = body.let(f"call i64 %s0({arguments})")
        if linked:
            passed = body.let(f"zext i1 {body.let(f'icmp ne i64 {result}, 0')} to i64")
            body.put("i64", body.let(f"add i64 {body.get('i64', sent)}, {passed}"), sent)
            _append_row(body, frame, place, 0, pos, passed)
    passed, faults = body.get("i64", sent), body.load("i64", place, 8 * frame.at("faults", 0))
    dropped = body.let(f"sub i64 {body.let(f'sub i64 {count}, {passed}')}, {faults}")
    for at, total in enumerate((count, passed, dropped, faults), counts):
        body.set_word(at, total)
    _write_ends(body, frame, place)
    body.finish()
    return module.text(), context, frame


def _begin_frame(body: ContextBody, frame: Context) -> str:
    """Begins the frame, which has all its words; gives its address."""
    place = body.alloca(f"[{max(frame.size, 1)} x i64]")
    body.zero(place, 8 * frame.size)
    for key, at in frame.words.items():
        if key[0] == "address":
            body.store("i64", body.word(body.context.vector(*key[1:])), place, 8 * at)
    return place


@contextmanager
def _each_event(body: ContextBody, seen: bool, width: str | None) -> Iterator[tuple[str, str, str, str]]:
    """A loop over the selected events; gives the address, row and position of each, and how many there are.

    Args:
        seen: whether anybody looks at them.
        width: their width (i64); None if it varies.
    """
    context = body.context
    data, selection = body.word(context.at("data"), "ptr"), body.word(context.at("selection"), "ptr")
    offsets = body.word(context.at("offsets"), "ptr") if seen and width is None else ""
    count = body.word(context.at("count"))
    with body.counted(count) as (pos, _):
        row = selected(body, selection, pos)
        if not seen:
            start = "0"
        elif width is None:
            start = body.load("i64", offsets, body.let(f"shl i64 {row}, 3"))
        else:
            start = body.let(f"mul i64 {row}, {width}")
        yield body.at(data, start), row, pos, count


def selected(body: ContextBody, selection: str, pos: str) -> str:
    """The row of the event at a position of the selection, which is null where all events are meant."""
    chosen, found, before = body.label(), body.label(), body.block
    body.branch(body.let(f"icmp ne ptr {selection}, null"), chosen, found)
    body.begin(chosen)
    picked = body.let(f"zext i32 {body.load('i32', selection, body.let(f'shl i64 {pos}, 2'))} to i64")
    body.begin(found)
    return body.phi("i64", [(pos, before), (picked, chosen)])


def _write_totals(body: ContextBody, frame: Context, place: str, routes: Routes, count: str) -> None:
    """Stores the counts of every stone."""
    counts = [["0"] * 4 for _ in range(routes.stones)]
    for node in routes.nodes:
        row = counts[node.stage.stone]
        for column, part in enumerate(_totals(body, frame, place, node, count)):
            row[column] = part if row[column] == "0" else body.let(f"add i64 {row[column]}, {part}")
    for word, total in enumerate(chain.from_iterable(counts), body.context.at("counts")):
        if total != "0":
            body.set_word(word, total)


def _write_ends(body: ContextBody, frame: Context, place: str) -> None:
    """Stores the ends of the selections and the last result."""
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
