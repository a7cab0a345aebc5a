"""A tree of stages as one LLVM module: ``run`` takes every selected event through the whole tree.

Each node of the tree is a function (``stage_ir.py``) over the context, the frame, the event, its row and
its position in the selection. The frame is an array on ``run``'s stack: counters, attributes that
were set on the way, and the ends of selections. The optimiser turns it into registers once
the stages are inlined; that is why counters are not kept in the context, which a callback may read.
"""

from __future__ import annotations

from dataclasses import dataclass

from evflow.codgen.llvm.context import Context, load, new_context, store
from evflow.codgen.llvm.ir import Body, Module
from evflow.codgen.llvm.stage import Node, Routes
from evflow.codgen.llvm.stage_ir import Frame, write_stage

__all__ = ["KernelText", "write_kernel"]


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel before it is compiled.

    Attributes:
        ir: the module; its entry is ``void run(ptr context)``.
        context: what the words of the context are.
        scratch: bytes of memory that the functions need for large arrays.
        names: what faults are about, by number.
    """

    ir: str
    context: Context
    scratch: int
    names: tuple[str, ...]


def write_kernel(routes: Routes) -> KernelText:
    """Writes the module of a tree."""
    module, context, frame = Module(), new_context(), Frame()
    context.at("counts", width=4 * routes.stones)
    for node in reversed(routes.nodes):
        write_stage(module, context, frame, routes, node)
    _write_run(module, context, frame, routes)
    return KernelText(module.text(), context, frame.scratch, tuple(module.named))


def _write_run(module: Module, context: Context, frame: Frame, routes: Routes) -> None:
    body = Body(module, "void @run(ptr noalias %ctx) nounwind")
    data, offsets, selection = (load(body, context.at(k), "ptr") for k in ("data", "offsets", "selection"))
    count = load(body, context.at("count"))
    place = body.alloca(f"[{max(frame.size, 1)} x i64]")
    for key, at in frame.slots.items():
        initial = load(body, context.vector(*key[1:])) if key[0] == "address" else "0"
        body.store("i64", initial, place, 8 * at)
    schema = routes.buffers[0].schema
    selected = body.let(f"icmp ne ptr {selection}, null")
    position = body.alloca("i64", "0")
    test, turn, chosen, found, done = (body.label() for _ in range(5))
    body.begin(test)
    pos = body.let(f"load i64, ptr {position}")
    body.branch(body.let(f"icmp slt i64 {pos}, {count}"), turn, done)
    body.begin(turn)
    body.branch(selected, chosen, found)
    body.begin(chosen)
    picked = body.load("i32", selection, body.let(f"shl i64 {pos}, 2"))
    picked = body.let(f"zext i32 {picked} to i64")
    body.begin(found)
    row = body.phi("i64", [(pos, turn), (picked, chosen)])
    if schema is None:
        start = "0"  # nobody looks at the event
    elif schema.width is not None:
        start = body.let(f"mul i64 {row}, {schema.width}")
    else:
        start = body.load("i64", offsets, body.let(f"shl i64 {row}, 3"))
    event = body.at(data, start)
    for node in routes.entry:
        body.do(f"call void @s{node.number}(ptr %ctx, ptr {place}, ptr {event}, i64 {row}, i64 {pos}, i64 1)")
    body.do(f"store i64 {body.let(f'add i64 {pos}, 1')}, ptr {position}")
    body.jump(test)
    body.begin(done)
    _write_totals(body, context, frame, place, routes, count)
    body.ret()
    body.finish()


_NO_TOTALS = ("0", "0", "0", "0")


def _write_totals(body: Body, context: Context, frame: Frame, place: str, routes: Routes, count: str) -> None:
    """Stores the counts of every stone, the ends of the selections and the last result."""
    for stone in range(routes.stones):
        totals = [
            _totals(body, frame, place, node, count) for node in routes.nodes if node.stage.stone == stone
        ]
        for column, parts in enumerate(zip(*(totals or [_NO_TOTALS]), strict=True)):
            total = parts[0]
            for part in parts[1:]:
                total = body.let(f"add i64 {total}, {part}")
            store(body, context.at("counts") + 4 * stone + column, total)
    for key, at in frame.slots.items():
        if key[0] == "length":
            store(body, context.vector(*key[1:]) + 1, body.load("i64", place, 8 * at))
        elif key[0] == "result":
            store(body, context.at("result"), body.load("i64", place, 8 * at))


def _totals(body: Body, frame: Frame, place: str, node: Node, count: str) -> tuple[str, str, str, str]:
    """In, out, dropped and faults of a node."""

    def counter(name: str, of: int = node.number) -> str:
        at = frame.slots.get((name, of))
        return "0" if at is None else body.load("i64", place, 8 * at)

    seen = count if node.entry else counter("seen") if node.follows is None else counter("sent", node.follows)
    sent, emitted, lost, faults = (counter(name) for name in ("sent", "emitted", "lost", "faults"))
    if not node.submits:
        emitted = sent
    dropped = body.let(f"sub i64 {body.let(f'sub i64 {seen}, {emitted}')}, {faults}")
    return seen, sent, body.let(f"add i64 {dropped}, {lost}"), faults
