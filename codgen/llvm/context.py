"""The block of 64-bit words through which Python and native code share what a run needs.

A word, or several in a row, belong to a key; they are handed out in the order in which the code asks for
them, and the run time fills those that there are. A *vector* is three words: address, length and capacity,
in elements; only the run time allocates, so native code that needs more calls back (``grow``).
"""

from __future__ import annotations

from evflow.codgen.llvm.ir import Body, Module

__all__ = [
    "Context",
    "Key",
    "grow",
    "grow_if_full",
    "load",
    "new_context",
    "push",
    "scratch_pointer",
    "store",
]

Key = tuple[str | int | None, ...]

HEAD = ("data", "offsets", "selection", "count", "grow", "result")
"""Keys of the first words: the input, how many events it has, the callback, the last result."""


class Context:
    """Where each key's words are.

    Attributes:
        words: key → index of its first word.
        size: words in all.
    """

    def __init__(self) -> None:
        self.words: dict[Key, int] = {}
        self.size = 0

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
    return body.let(f"load {kind}, ptr {body.at('%ctx', 8 * word)}")


def store(body: Body, word: int, value: str) -> None:
    """Writes a word."""
    body.do(f"store i64 {value}, ptr {body.at('%ctx', 8 * word)}")


def scratch_pointer(body: Body, context: Context, start: int) -> str:
    """A pointer into the memory for large arrays, which is valid in the whole function."""
    word = body.let_at_entry(f"getelementptr i8, ptr %ctx, i64 {8 * context.at('scratch')}")
    base = body.let_at_entry(f"load ptr, ptr {word}")
    return body.let_at_entry(f"getelementptr i8, ptr {base}, i64 {start}")


def grow(body: Body, vector: str, need: str) -> str:
    """Asks the run time for room for ``need`` elements in a vector; gives whether there is (i1)."""
    routine = body.module.routine("@ev.grow", lambda _: _write_grow(body.module))
    return body.call("i1", routine, "ptr %ctx", f"i64 {vector}", f"i64 {need}")


def _write_grow(module: Module) -> None:
    body = Body(module, "internal i1 @ev.grow(ptr %ctx, i64 %vector, i64 %need) noinline cold nounwind")
    callback = body.let(f"load ptr, ptr {body.at('%ctx', 8 * HEAD.index('grow'))}")
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


def push(body: Body, vector: int, kind: str, values: tuple[str, ...]) -> None:
    """Appends elements to a vector; if there is no memory nothing is, and the run time raises."""
    size = int(kind[1:]) // 8
    used = load(body, vector + 1)
    need = body.let(f"add i64 {used}, {len(values)}")
    room, done = body.label(), body.label()
    body.branch(grow_if_full(body, vector, need), room, done)
    body.begin(room)
    target = body.at(load(body, vector, "ptr"), body.let(f"mul i64 {used}, {size}"))
    for i, value in enumerate(values):
        body.store(kind, value, target, size * i)
    store(body, vector + 1, need)
    body.begin(done)
