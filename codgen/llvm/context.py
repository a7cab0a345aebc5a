"""The block of 64-bit words through which Python and native code share what a run needs, as LLVM IR.

A word, or several in a row, belong to a key; they are handed out in the order in which the code asks for
them, and the run time fills those that there are. A *vector* is three words: address, length and capacity,
in elements; only the run time allocates, so native code that needs more calls back (``grow``).

An attribute is three words: kind (0 not set, 1 i64, 2 f64, 3 text), bits or address, length. A column of the
input's attributes is three words as well: kind, address of the values, address of the presence.
"""

from __future__ import annotations

from evflow.codgen.llvm.ir import Body, Module

__all__ = [
    "Context", "Key", "Triple", "grow", "grow_if_full", "keep_attribute", "load", "load_triple",
    "new_context", "push", "read_column", "scratch_pointer", "stone_attribute", "store", "store_triple",
]  # fmt: skip

Triple = tuple[str, str, str]
"""An attribute's operands, each i64: kind, bits or address, length."""

Key = tuple[str | int | None, ...]

HEAD = ("data", "offsets", "selection", "count", "grow", "result")
"""Keys of the first words: the input, how many events it has, the callback, the last result."""


class Context:
    """Where each key's words are.

    Attributes:
        words: key → index of its first word.
        size: words in all.
        scratch: bytes of memory that the code needs for large arrays.
    """

    def __init__(self) -> None:
        self.words: dict[Key, int] = {}
        self.size = 0
        self.scratch = 0

    def at(self, *key: str | int | None, width: int = 1) -> int:
        """Index of the first word of ``key``, which has ``width`` of them."""
        known = self.words.get(key)
        if known is None:
            known = self.words[key] = self.size
            self.size += width
        return known

    def vector(self, *key: str | int | None) -> int:
        """Index of the first word of a vector."""
        return self.at("vector", *key, width=3)


def new_context() -> Context:
    """A context that holds the words every kernel has."""
    context = Context()
    for name in HEAD:
        context.at(name)
    return context


def load(body: Body, word: int, kind: str = "i64") -> str:
    """Reads a word."""
    return body.get(kind, body.at("%ctx", 8 * word))


def store(body: Body, word: int, value: str) -> None:
    """Writes a word."""
    body.put("i64", value, body.at("%ctx", 8 * word))


def scratch_pointer(body: Body, context: Context, size: int) -> str:
    """A pointer to ``size`` more bytes of the memory for large arrays; it is valid in the whole function."""
    start, context.scratch = context.scratch, -(-(context.scratch + size) // 16) * 16
    word = body.let_at_entry(f"getelementptr i8, ptr %ctx, i64 {8 * context.at('scratch')}")
    base = body.let_at_entry(f"load ptr, ptr {word}")
    return body.let_at_entry(f"getelementptr i8, ptr {base}, i64 {start}")


def grow(body: Body, vector: str, need: str) -> str:
    """Asks the run time for room for ``need`` elements in a vector; gives whether there is (i1)."""
    routine = body.module.routine("@ev.grow", lambda _: _write_grow(body.module))
    return body.call("i1", routine, "ptr %ctx", f"i64 {vector}", f"i64 {need}")


def _write_grow(module: Module) -> None:
    body = Body(module, "internal i1 @ev.grow(ptr %ctx, i64 %vector, i64 %need) noinline cold nounwind")
    callback = load(body, HEAD.index("grow"), "ptr")
    done = body.call("i64", callback, "ptr %ctx", "i64 %vector", "i64 %need")
    body.ret(f"i1 {body.let(f'icmp ne i64 {done}, 0')}")
    body.finish()


def grow_if_full(body: Body, vector: int, need: str) -> str:
    """Makes sure that a vector can hold ``need`` elements (i64); gives whether it can (i1)."""
    full, done, before = body.label(), body.label(), body.block
    capacity = load(body, vector + 2)
    body.branch(body.let(f"icmp ugt i64 {need}, {capacity}"), full, done)
    body.begin(full)
    grown = grow(body, str(vector), need)
    body.begin(done)
    return body.phi("i1", [("true", before), (grown, full)])


def push(body: Body, vector: int, *values: str) -> None:
    """Appends words to a vector; if there is no memory nothing is, and the run time raises."""
    used = load(body, vector + 1)
    need = body.let(f"add i64 {used}, {len(values)}")
    with body.when(grow_if_full(body, vector, need)):
        target = body.at(load(body, vector, "ptr"), body.let(f"mul i64 {used}, 8"))
        for i, value in enumerate(values):
            body.store("i64", value, target, 8 * i)
        store(body, vector + 1, need)


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
    store_triple(body, ("0", "0", "0"), "%found")
    kind = body.load("i64", "%column")
    with body.when(body.let(f"icmp ne i64 {kind}, 0")):
        present = body.load("i8", body.load("ptr", "%column", 16), "%pos")
        with body.when(body.let(f"icmp ne i8 {present}, 0")):
            values = body.load("ptr", "%column", 8)

            def text() -> list[str]:
                pair = body.at(values, body.let("shl i64 %pos, 4"))
                return [body.load("i64", pair), body.load("i64", pair, 8)]

            def number() -> list[str]:
                return [body.load("i64", values, body.let("shl i64 %pos, 3")), "0"]

            is_text = body.let(f"icmp eq i64 {kind}, 3")
            bits, size = body.choose(is_text, ("i64", "i64"), text, number)
            store_triple(body, (kind, bits, size), "%found")
    body.finish()


def keep_attribute(body: Body, context: Context, vector: int, value: Triple) -> None:
    """Appends an attribute to a vector; a text's bytes are copied, and its address becomes an offset."""
    texts = context.vector("texts")
    kind, bits, size = value
    keep = body.module.routine("@ev.text", lambda _: _write_keep_text(body.module, texts))
    (word,) = body.choose(
        body.let(f"icmp eq i64 {kind}, 3"),
        ("i64",),
        lambda: [body.call("i64", keep, "ptr %ctx", f"i64 {bits}", f"i64 {size}")],
        lambda: [bits],
    )
    push(body, vector, kind, word, size)


def _write_keep_text(module: Module, texts: int) -> None:
    """Copies a text to the vector ``texts``; gives where it starts there."""
    body = Body(module, "internal i64 @ev.text(ptr %ctx, i64 %address, i64 %size) noinline nounwind")
    used = load(body, texts + 1)
    end = body.let(f"add i64 {used}, %size")
    with body.when(grow_if_full(body, texts, end)):
        body.copy(body.at(load(body, texts, "ptr"), used), body.let("inttoptr i64 %address to ptr"), "%size")
        store(body, texts + 1, end)
    body.ret(f"i64 {used}")
    body.finish()
