"""The block of 64-bit words through which Python and native code share what a run needs, as LLVM IR.

A word, or several in a row, belong to a key; they are handed out in the order in which the code asks for
them, and the run time fills those that there are. A *vector* is three words: address, length and capacity,
in elements; only the run time allocates, so native code that needs more calls back (``grow``).

An attribute is three words: kind (0 not set, 1 i64, 2 f64, 3 text), bits or address, length. A column of the
input's attributes is three words as well: kind, address of the values, address of the presence.
"""

from __future__ import annotations

from evflow.codgen.llvm.ir import Body, Module

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

    def copy(self) -> Context:
        """Another with the same words so far."""
        other = Context()
        other.words, other.size, other.scratch = self.words.copy(), self.size, self.scratch
        return other

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
    context.words = {(name,): at for at, name in enumerate(HEAD)}
    context.size = len(HEAD)
    return context


def load_triple(body: Body, pointer: str, offset: int = 0) -> Triple:
    """Reads an attribute from memory."""
    kind, bits, size = (body.load("i64", pointer, offset + 8 * i) for i in range(3))
    return kind, bits, size


def store_triple(body: Body, value: Triple, pointer: str, offset: int = 0) -> None:
    """Writes an attribute to memory."""
    for i, word in enumerate(value):
        body.store("i64", word, pointer, offset + 8 * i)


class ContextBody(Body):
    """A function that has the context, ``%ctx``.

    Args:
        module: the module it belongs to.
        context: what its words are.
        signature: as LLVM writes it.

    Attributes:
        context: as given.
    """

    def __init__(self, module: Module, context: Context, signature: str) -> None:
        super().__init__(module, signature)
        self.context = context

    def word(self, word: int, kind: str = "i64") -> str:
        """Reads a word."""
        return self.get(kind, self.at("%ctx", 8 * word))

    def set_word(self, word: int, value: str) -> None:
        """Writes a word."""
        self.put("i64", value, self.at("%ctx", 8 * word))

    def scratch(self, size: int) -> str:
        """A pointer to ``size`` more bytes of the memory for large arrays, valid in the whole function."""
        start, self.context.scratch = self.context.scratch, -(-(self.context.scratch + size) // 16) * 16
        word = self.let_at_entry(f"getelementptr i8, ptr %ctx, i64 {8 * self.context.at('scratch')}")
        base = self.let_at_entry(f"load ptr, ptr {word}")
        return self.let_at_entry(f"getelementptr i8, ptr {base}, i64 {start}")

    def grow(self, vector: str, need: str) -> str:
        """Asks the run time for room for ``need`` elements in a vector; gives whether there is (i1)."""
        routine = self.module.routine("@ev.grow", lambda _: _write_grow(self.module))
        return self.call("i1", routine, "ptr %ctx", f"i64 {vector}", f"i64 {need}")

    def grow_if_full(self, vector: int, need: str) -> str:
        """Makes sure that a vector can hold ``need`` elements (i64); gives whether it can (i1)."""
        full, done, before = self.label(), self.label(), self.block
        capacity = self.word(vector + 2)
        self.branch(self.let(f"icmp ugt i64 {need}, {capacity}"), full, done)
        self.begin(full)
        grown = self.grow(str(vector), need)
        self.begin(done)
        return self.phi("i1", [("true", before), (grown, full)])

    def push(self, vector: int, *values: str) -> None:
        """Appends words to a vector; if there is no memory nothing is, and the run time raises."""
        used = self.word(vector + 1)
        need = self.let(f"add i64 {used}, {len(values)}")
        with self.when(self.grow_if_full(vector, need)):
            target = self.at(self.word(vector, "ptr"), self.let(f"mul i64 {used}, 8"))
            for i, value in enumerate(values):
                self.store("i64", value, target, 8 * i)
            self.set_word(vector + 1, need)

    def stone_attribute(self, stone: int, name: str) -> Triple:
        """An attribute of a stone, which is the same for the whole run."""
        at = self.context.at("stone attribute", stone, name, width=3)
        kind, bits, size = (self.word(at + i) for i in range(3))
        return kind, bits, size

    def read_column(self, name: str, position: str) -> Triple:
        """An attribute of the input event at a position of the selection."""
        column = self.context.at("attribute", name, width=3)
        read = self.module.routine("@ev.attribute", lambda _: _write_read(self.module))
        found = self.alloca("[3 x i64]")
        self.do(f"call void {read}(ptr {self.at('%ctx', 8 * column)}, i64 {position}, ptr {found})")
        return load_triple(self, found)

    def keep_attribute(self, vector: int, value: Triple) -> None:
        """Appends an attribute to a vector; a text's bytes are copied, and its address becomes an offset."""
        texts = self.context.vector("texts")
        kind, bits, size = value
        keep = self.module.routine("@ev.text", lambda _: _write_keep_text(self.module, self.context, texts))
        (word,) = self.choose(
            self.let(f"icmp eq i64 {kind}, 3"),
            ("i64",),
            lambda: [self.call("i64", keep, "ptr %ctx", f"i64 {bits}", f"i64 {size}")],
            lambda: [bits],
        )
        self.push(vector, kind, word, size)


def _write_grow(module: Module) -> None:
    body = Body(module, "internal i1 @ev.grow(ptr %ctx, i64 %vector, i64 %need) noinline cold nounwind")
    callback = body.get("ptr", body.at("%ctx", 8 * HEAD.index("grow")))
    done = body.call("i64", callback, "ptr %ctx", "i64 %vector", "i64 %need")
    body.ret(f"i1 {body.let(f'icmp ne i64 {done}, 0')}")
    body.finish()


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


def _write_keep_text(module: Module, context: Context, texts: int) -> None:
    """Copies a text to the vector ``texts``; gives where it starts there."""
    body = ContextBody(
        module, context, "internal i64 @ev.text(ptr %ctx, i64 %address, i64 %size) noinline nounwind"
    )
    used = body.word(texts + 1)
    end = body.let(f"add i64 {used}, %size")
    with body.when(body.grow_if_full(texts, end)):
        body.copy(body.at(body.word(texts, "ptr"), used), body.let("inttoptr i64 %address to ptr"), "%size")
        body.set_word(texts + 1, end)
    body.ret(f"i64 {used}")
    body.finish()
