"""Appending to memory as LLVM IR: a function that Python calls with an object, and that puts bytes behind
those that are there.

Whoever writes one says what the bytes are; here is where they go, whether there is room, who may not put any,
and the gate that may reject them. Other threads of Python run while much is copied. What a function that
Python calls has to check of objects is ``Checks``.
"""

from __future__ import annotations

from evflow.codgen.llvm.ir import Body, Module
from evflow.codgen.memory import BRIEF

PYTHON_FUNCTIONS = {
    "PyBool_FromLong": "ptr @ev_PyBool_FromLong(i64)",
    "PyBytes_FromStringAndSize": "ptr @ev_PyBytes_FromStringAndSize(ptr, i64)",
    "PyErr_Clear": "void @ev_PyErr_Clear()",
    "PyEval_RestoreThread": "void @ev_PyEval_RestoreThread(ptr)",
    "PyEval_SaveThread": "ptr @ev_PyEval_SaveThread()",
    "PyFloat_FromDouble": "ptr @ev_PyFloat_FromDouble(double)",
    "PyList_New": "ptr @ev_PyList_New(i64)",
    "PyLong_AsLongLongAndOverflow": "i64 @ev_PyLong_AsLongLongAndOverflow(ptr, ptr)",
    "PyLong_FromLongLong": "ptr @ev_PyLong_FromLongLong(i64)",
    "PyLong_FromUnsignedLongLong": "ptr @ev_PyLong_FromUnsignedLongLong(i64)",
    "PyThread_get_thread_ident": "i64 @ev_PyThread_get_thread_ident()",
    "PyUnicode_AsUTF8AndSize": "ptr @ev_PyUnicode_AsUTF8AndSize(ptr, ptr)",
    "PyUnicode_DecodeUTF8": "ptr @ev_PyUnicode_DecodeUTF8(ptr, i64, ptr)",
    "Py_DecRef": "void @ev_Py_DecRef(ptr)",
    "Py_IncRef": "void @ev_Py_IncRef(ptr)",
}
"""The functions of Python that the code calls, and how they are declared."""

WORDS = ("at", "end", "thread", "gate", "rejected", "writing", "mark", "marks", "row", "express")
"""The words behind the array that a function has as its ``self``: the address where the next bytes go, that
where the memory ends, the thread whose bytes it does not take, the address of a function ``i64 (ptr event)``
that says by 0 that an event is not to be kept (0 for none), how many were not, and whether an event is being
written while other threads run, so that no other one is taken. Where the width of events varies, also the
address where that of the next one's end is noted, and that where the memory for it ends. The next is for
tables (``table_ir``): the row to go on with, or -1 where a table is taken whole or not at all. The last is
the address of the words of what sends events at once (``express_ir``), or 0."""

SENT = 2
"""What the function gives for an event that is sent already; for others that were taken it gives True."""

# Bytes from the beginning of an object of CPython or numpy to what it is and holds.
TYPE = 8
FLOAT_VALUE = 16
BYTES_SIZE, BYTES_DATA = 16, 32
LIST_SIZE, LIST_ITEMS = 16, 24
ARRAY_DATA, ARRAY_NDIM, ARRAY_SHAPE, ARRAY_STRIDES, ARRAY_DTYPE, ARRAY_FLAGS = 16, 24, 32, 40, 56, 64
DTYPE_ORDER, DTYPE_NUMBER = 26, 28


def write_appender(varying: bool) -> str:
    """The function that takes the bytes of an event, and puts them where the words of ``self`` say; see
    ``evflow.codgen.llvm.object_ir.write_encoder``."""
    writer = Append()
    writer.require_type("%event", bytes)
    size = writer.body.load("i64", "%event", BYTES_SIZE)
    writer.begin(size, None if varying else 0)
    writer.body.copy(writer.target, writer.body.at("%event", BYTES_DATA), size)
    return writer.finish()


def pointer(value: object) -> str:
    """An object that lives as long as the code."""
    return f"inttoptr (i64 {id(value)} to ptr)"


class Checks:
    """Writes a function ``ptr (ptr self, ptr event)``, a ``PyCFunction`` that refuses what is not as it must
    be.

    Attributes:
        body: the function.
        refuse: the label to jump to where something is not.
    """

    def __init__(self) -> None:
        module = Module()
        for signature in PYTHON_FUNCTIONS.values():
            module.declare(signature)
        self.body = Body(module, "ptr @run(ptr %self, ptr %event) nounwind")
        self.refuse = self.body.label()

    def load_words(self) -> None:
        """Finds the words behind the array that the function has as its ``self``."""
        self._words = self.body.load("ptr", "%self", ARRAY_DATA)

    def word(self, name: str, kind: str = "i64") -> str:
        """One of ``WORDS``, as it is now."""
        return self.body.load(kind, self._words, 8 * WORDS.index(name))

    def set_word(self, name: str, value: str) -> None:
        """Gives one of ``WORDS`` a value (i64)."""
        self.body.store("i64", value, self._words, 8 * WORDS.index(name))

    def require(self, condition: str) -> None:
        """Goes on only if a condition (i1) holds."""
        right = self.body.label()
        self.body.branch(condition, right, self.refuse)
        self.body.begin(right)

    def is_type(self, value: str, kind: type) -> str:
        """Whether an object is of this very type (i1)."""
        found = self.body.load("ptr", value, TYPE)
        return self.body.let(f"icmp eq ptr {found}, {pointer(kind)}")

    def require_type(self, value: str, kind: type) -> None:
        """Goes on only if an object is of this very type."""
        self.require(self.is_type(value, kind))


class Append(Checks):
    """Writes a function that puts the bytes of an event into memory.

    Attributes:
        target: where its bytes go.
        copies: what is copied last: target, source, size, and the object that has it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.target = ""
        self._mark = ""
        # Whether an event is so large that other threads run meanwhile; "" if none can be.
        self._much = ""
        self.copies: list[tuple[str, str, str, str]] = []

    def begin(self, size: str, width: int | None) -> None:
        """Finds out where the bytes go, and that there is room for them.

        Args:
            size: how many they are.
            width: of every event; None if it varies.
        """
        body = self.body
        self.load_words()
        at, end, thread = (self.word(name) for name in ("at", "end", "thread"))
        self._behind = body.let(f"add i64 {at}, {size}")
        self.require(body.let(f"icmp ule i64 {self._behind}, {end}"))
        if width is None or width > BRIEF:
            self.require(body.let(f"icmp eq i64 {self.word('writing')}, 0"))
            self._much = body.let(f"icmp ugt i64 {size}, {BRIEF}")
        if width is None:
            self._mark = self.word("mark")
            self.require(body.let(f"icmp ult i64 {self._mark}, {self.word('marks')}"))
        here = body.call("i64", "@ev_PyThread_get_thread_ident")
        self.require(body.let(f"icmp ne i64 {here}, {thread}"))
        self.target = body.let(f"inttoptr i64 {at} to ptr")

    def finish(self) -> str:
        """Keeps what was written, unless the gate rejects it, and gives the module.

        A gate looks at numbers alone (see ``evflow.codgen.gate``), so it is asked before arrays are copied.
        """
        body = self.body
        gate = self.word("gate", "ptr")
        ask, reject, keep, done = (body.label() for _ in range(4))
        body.branch(body.let(f"icmp eq ptr {gate}, null"), keep, ask)
        body.begin(ask)
        passed = body.call("i64", gate, f"ptr {self.target}")
        body.branch(body.let(f"icmp eq i64 {passed}, 0"), reject, keep)
        body.begin(reject)
        self.set_word("rejected", body.let(f"add i64 {self.word('rejected')}, 1"))
        body.jump(done)
        body.begin(keep)
        let_go = self._copy_last()
        self.set_word("at", self._behind)
        if self._mark:
            body.store("i64", self._behind, body.let(f"inttoptr i64 {self._mark} to ptr"))
            self.set_word("mark", body.let(f"add i64 {self._mark}, 8"))
        if let_go:
            self._let_go_of_objects(let_go)
        self._send(done)
        body.begin(done)
        body.ret("ptr " + body.call("ptr", "@ev_PyBool_FromLong", "i64 1"))
        body.begin(self.refuse)
        body.ret("ptr " + body.call("ptr", "@ev_PyBool_FromLong", "i64 0"))
        body.finish()
        return body.module.text()

    def _send(self, done: str) -> None:
        """Has what was written sent at once, if it may be; else it goes on at ``done``."""
        body = self.body
        express = self.word("express", "ptr")
        send, sent = body.label(), body.label()
        body.branch(body.let(f"icmp eq ptr {express}, null"), done, send)
        body.begin(send)
        at = body.let(f"ptrtoint ptr {self.target} to i64")
        given = (f"ptr {express}", f"i64 {at}", f"i64 {self._behind}")
        gone = body.call("i64", body.load("ptr", express), *given)
        body.branch(body.let(f"icmp eq i64 {gone}, 0"), done, sent)
        body.begin(sent)
        body.ret("ptr " + body.call("ptr", "@ev_PyLong_FromLongLong", f"i64 {SENT}"))

    def _copy_last(self) -> str:
        """Copies arrays and the like, while other threads run if they are much; gives a pointer that is null
        if they were not, "" if they cannot be."""
        state = self._let_others_run() if self.copies and self._much else ""
        for target, source, size, _ in self.copies:
            self.body.copy(target, source, size)
        if state:
            self._go_on_alone(state)
        return state

    def _let_others_run(self) -> str:
        body = self.body
        let_go, copy = body.label(), body.label()
        before = body.block
        body.branch(self._much, let_go, copy)
        body.begin(let_go)
        self.set_word("writing", "1")
        for *_, holder in self.copies:
            body.do(f"call void @ev_Py_IncRef(ptr {holder})")
        thread = body.call("ptr", "@ev_PyEval_SaveThread")
        body.begin(copy)
        return body.phi("ptr", [("null", before), (thread, let_go)])

    def _go_on_alone(self, state: str) -> None:
        body = self.body
        go_on, done = body.label(), body.label()
        body.branch(body.let(f"icmp eq ptr {state}, null"), done, go_on)
        body.begin(go_on)
        body.do(f"call void @ev_PyEval_RestoreThread(ptr {state})")
        self.set_word("writing", "0")
        body.begin(done)

    def _let_go_of_objects(self, state: str) -> None:
        # Last, since an object that goes may run anything.
        body = self.body
        release, done = body.label(), body.label()
        body.branch(body.let(f"icmp eq ptr {state}, null"), done, release)
        body.begin(release)
        for *_, holder in self.copies:
            body.do(f"call void @ev_Py_DecRef(ptr {holder})")
        body.begin(done)
