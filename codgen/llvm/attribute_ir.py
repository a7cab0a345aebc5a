"""Attributes as LLVM IR: read from a column or from where the code set them, and kept for what leaves.

An attribute is three words: kind (0 not set, 1 i64, 2 f64, 3 text), bits or address, length. In the context
a column of the input's attributes is three words as well: kind, address of the values, address of the
presence.
"""

from __future__ import annotations

from evflow.codgen.llvm.context import Context, grow_if_full, load, push, store
from evflow.codgen.llvm.emitter import Triple
from evflow.codgen.llvm.ir import Body, Module

__all__ = ["keep_attribute", "load_triple", "read_column", "stone_attribute", "store_triple"]


def load_triple(body: Body, pointer: str, offset: int = 0) -> Triple:
    """Reads an attribute from memory."""
    kind, bits, size = (body.load("i64", pointer, offset + 8 * i) for i in range(3))
    return kind, bits, size


def store_triple(body: Body, value: Triple, pointer: str, offset: int = 0) -> None:
    """Writes an attribute to memory."""
    for i, word in enumerate(value):
        body.store("i64", word, pointer, offset + 8 * i)


def stone_attribute(body: Body, context: Context, stone: int, name: str) -> Triple:
    """An attribute of a stone, which is the same for the whole run."""
    at = context.at("stone attribute", stone, name, width=3)
    kind, bits, size = (load(body, at + i) for i in range(3))
    return kind, bits, size


def read_column(body: Body, context: Context, name: str, position: str) -> Triple:
    """An attribute of the input event at a position of the selection."""
    column = context.at("attribute", name, width=3)
    read = body.module.routine("@ev.attribute", lambda _: _write_read(body.module))
    found = body.alloca("[3 x i64]")
    body.do(f"call void {read}(ptr {body.at('%ctx', 8 * column)}, i64 {position}, ptr {found})")
    return load_triple(body, found)


def _write_read(module: Module) -> None:
    body = Body(module, "internal void @ev.attribute(ptr %column, i64 %pos, ptr %found) nounwind")
    some, there, text, number, done = (body.label() for _ in range(5))
    store_triple(body, ("0", "0", "0"), "%found")
    kind = body.load("i64", "%column")
    body.branch(body.let(f"icmp eq i64 {kind}, 0"), done, some)
    body.begin(some)
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


def keep_attribute(body: Body, context: Context, vector: int, value: Triple) -> None:
    """Appends an attribute to a vector; a text's bytes are copied, and its address becomes an offset."""
    texts = context.vector("texts")
    kind, bits, size = value
    keep = body.module.routine("@ev.text", lambda _: _write_keep_text(body.module, texts))
    text, done, before = body.label(), body.label(), body.block
    body.branch(body.let(f"icmp eq i64 {kind}, 3"), text, done)
    body.begin(text)
    start = body.call("i64", keep, "ptr %ctx", f"i64 {bits}", f"i64 {size}")
    body.begin(done)
    word = body.phi("i64", [(bits, before), (start, text)])
    push(body, vector, "i64", (kind, word, size))


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
