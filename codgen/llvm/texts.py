"""Texts as LLVM IR: where a ``str`` value starts and how long it is, and what can be asked of it.

A text is a view of bytes that stay where they are while the function runs: in an event, an attribute
or a literal. Comparisons with a literal read the padded field as one integer where it is short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evflow.codgen import tree
from evflow.codgen.llvm import layout
from evflow.codgen.llvm.emitter import Emitter, Place, Text
from evflow.codgen.llvm.ir import Body, Module
from evflow.codgen.llvm.utf8_ir import utf8
from evflow.codgen.tree import Expr, Fault, Pos
from evflow.schema.types import Blob, Bytes, Str
from evflow.schema.types import Text as TextType

_WORD = 16

_SHORT = 256
"""Bytes up to which comparing is paid for as one operation."""

_COMPARE, _SEARCH = 8, 3
"""Bytes that are compared in a step; steps to search a byte."""


def text_value(e: Emitter, expr: Expr) -> Text:
    """The operands of an expression of type ``str``."""
    return _TEXTS[type(expr)](e, expr)


def read_text(e: Emitter, place: Place, pos: Pos) -> Text:
    """The text of a field, without padding."""
    body, kind = e.body, place.type
    if isinstance(kind, Str):
        pointer = body.at(place.base, place.offset + kind.head)
        trimmed = body.module.routine("@ev.trimmed", lambda _: _write_trimmed(body.module))
        return pointer, body.call("i64", trimmed, f"ptr {pointer}", f"i64 {kind.capacity}")
    if isinstance(kind, Bytes):
        size = body.load("i16", place.base, place.offset + kind.head)
        return body.at(place.base, place.offset + kind.head + 2), body.let(f"zext i16 {size} to i64")
    assert isinstance(kind, (TextType, Blob))
    pointer = body.at(place.base, place.offset)
    return body.at(pointer, 5), layout.count32(body, pointer)


def _write_trimmed(module: Module) -> None:
    """Finds the length of a text padded with NUL, from its end."""
    body = Body(module, "internal i64 @ev.trimmed(ptr %p, i64 %n) nounwind")
    left = body.alloca("i64", "%n")
    done = body.label()
    with body.repeat(lambda: body.let(f"icmp ne i64 {body.get('i64', left)}, 0")):
        last = body.let(f"sub i64 {body.get('i64', left)}, 1")
        shorter = body.label()
        body.branch(body.let(f"icmp eq i8 {body.load('i8', '%p', last)}, 0"), shorter, done)
        body.begin(shorter)
        body.put("i64", last, left)
    body.begin(done)
    body.ret(f"i64 {body.get('i64', left)}")
    body.finish()


def _const(e: Emitter, expr: tree.Const) -> Text:
    return e.body.module.constant(expr.value), str(len(expr.value))


def _load(e: Emitter, expr: tree.Load) -> Text:
    if isinstance(expr.place, tree.Element):
        pointer = e.element(expr.place, expr.pos)
        return e.body.load("ptr", pointer), e.body.load("i64", pointer, 8)
    return read_text(e, e.place(expr.place, expr.pos), expr.pos)


def _assign(e: Emitter, expr: tree.Assign) -> Text:
    return e.assign_text(expr)


def _attribute(e: Emitter, expr: tree.Attribute) -> Text:
    kind, bits, size = e.host.attribute(expr.scope, expr.name)
    body = e.body
    is_text = body.let(f"icmp eq i64 {kind}, 3")
    default = e.text(expr.default) if expr.default is not None else ("null", "0")
    pointer = body.let(f"inttoptr i64 {bits} to ptr")
    return (
        body.let(f"select i1 {is_text}, ptr {pointer}, ptr {default[0]}"),
        body.let(f"select i1 {is_text}, i64 {size}, i64 {default[1]}"),
    )


def _select(e: Emitter, expr: tree.Select) -> Text:
    condition = e.value(expr.condition)
    pointer, size = e.body.choose(
        condition, ("ptr", "i64"), lambda: e.text(expr.yes), lambda: e.text(expr.no)
    )
    return pointer, size


_TEXTS: dict[type, Callable[[Emitter, Any], Text]] = {
    tree.Const: _const,
    tree.Load: _load,
    tree.Assign: _assign,
    tree.Attribute: _attribute,
    tree.Select: _select,
}


def require_utf8(e: Emitter, expr: Expr, value: Text, pos: Pos) -> None:
    """A TEXT fault where a text, the value of ``expr``, is not UTF-8."""
    if _is_utf8(expr):
        return
    e.charge(value[1], pos)
    valid = e.body.call("i1", utf8(e.body.module), f"ptr {value[0]}", f"i64 {value[1]}")
    e.fault_if(e.body.let(f"xor i1 {valid}, true"), Fault.TEXT, pos)


def _is_utf8(expr: Expr) -> bool:
    """Whether a text is UTF-8 for certain: what comes from a text field, or is a literal."""
    if isinstance(expr, tree.Const):
        return _decodes(expr.value)
    if isinstance(expr, tree.Load) and isinstance(expr.place, tree.Path):
        return isinstance(expr.place.type.held, (Str, TextType))
    return isinstance(expr, tree.Select) and _is_utf8(expr.yes) and _is_utf8(expr.no)


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def compare(e: Emitter, expr: tree.Compare) -> str:
    """A comparison of two texts by bytes (i1)."""
    if expr.op in ("eq", "ne"):
        equal = _padded_equal(e, expr.left, expr.right) or _padded_equal(e, expr.right, expr.left)
        if equal is None:
            equal = _equal(e, e.text(expr.left), e.text(expr.right), expr)
        return equal if expr.op == "eq" else e.body.let(f"xor i1 {equal}, true")
    (p, n), (q, m) = e.text(expr.left), e.text(expr.right)
    body = e.body
    least = body.let(f"select i1 {body.let(f'icmp ult i64 {n}, {m}')}, i64 {n}, i64 {m}")
    _charge_compared(e, least, expr.left, expr.right)
    order = body.let(f"sext i32 {_memcmp(body, p, q, least)} to i64")
    by_length = body.let(f"sub i64 {n}, {m}")
    decided = body.let(f"icmp ne i64 {order}, 0")
    sign = body.let(f"select i1 {decided}, i64 {order}, i64 {by_length}")
    return body.let(f"icmp s{expr.op} i64 {sign}, 0")


def _padded_equal(e: Emitter, field: Expr, literal: Expr) -> str | None:
    """Whether a short ``Str`` field equals a literal, by one load; None where it takes another way."""
    if not (
        isinstance(field, tree.Load)
        and isinstance(field.place, tree.Path)
        and isinstance(literal, tree.Const)
    ):
        return None
    # Loading comes first, since the way to the field may fault.
    place = e.place(field.place, field.pos) if isinstance(field.place.type.held, Str) else None
    if place is None or not isinstance(place.type, Str):
        return None
    capacity, text = place.type.capacity, literal.value
    if len(text) > capacity or text[-1:] == b"\0":
        return "false"
    padded = text.ljust(capacity, b"\0")
    body, offset = e.body, place.offset + place.type.head
    if capacity > _WORD:
        order = _memcmp(body, body.at(place.base, offset), body.module.constant(padded), str(capacity))
        return body.let(f"icmp eq i32 {order}, 0")
    return _words_equal(e, place.base, offset, padded)


def _words_equal(e: Emitter, base: str, offset: int, expected: bytes) -> str:
    body = e.body
    result = ""
    at = 0
    while at < len(expected):
        size = next(n for n in (8, 4, 2, 1) if n <= len(expected) - at)
        wanted = int.from_bytes(expected[at : at + size], "little", signed=True)
        found = body.load(f"i{8 * size}", base, offset + at, e.host.invariant)
        same = body.let(f"icmp eq i{8 * size} {found}, {wanted}")
        result = body.let(f"and i1 {result}, {same}") if result else same
        at += size
    return result


def _memcmp(body: Body, p: str, q: str, n: str) -> str:
    body.module.declare("i32 @memcmp(ptr, ptr, i64)")
    return body.call("i32", "@memcmp", f"ptr {p}", f"ptr {q}", f"i64 {n}")


def _equal(e: Emitter, left: Text, right: Text, expr: tree.Compare) -> str:
    """Whether two texts are equal; bytes are compared only where the lengths agree."""
    return _matches(
        e, e.body.let(f"icmp eq i64 {left[1]}, {right[1]}"), left[0], right, expr.left, expr.right
    )


def _matches(e: Emitter, fits: str, at: str, part: Text, *of: Expr) -> str:
    """Whether ``fits`` holds and the bytes at ``at`` are those of ``part``; they are texts of ``of``."""
    body = e.body
    look, done, before = body.label(), body.label(), body.block
    body.branch(fits, look, done)
    body.begin(look)
    _charge_compared(e, part[1], *of)
    same = body.let(f"icmp eq i32 {_memcmp(body, at, part[0], part[1])}, 0")
    after = body.block
    body.begin(done)
    return body.phi("i1", [("false", before), (same, after)])


def _charge_compared(e: Emitter, size: str, *of: Expr) -> None:
    """Pays for comparing so many bytes (i64) of two texts, if neither of them is short."""
    if not any(_is_short(expr) for expr in of):
        e.charge_bytes(size, _COMPARE, of[0].pos)


def _is_short(expr: Expr) -> bool:
    if isinstance(expr, tree.Const):
        return len(expr.value) <= _SHORT
    if not (isinstance(expr, tree.Load) and isinstance(expr.place, tree.Path)):
        return False
    kind = expr.place.type.held
    return isinstance(kind, (Str, Bytes)) and kind.capacity <= _SHORT


def _two_texts(e: Emitter, expr: tree.Call) -> tuple[Text, Text]:
    return e.text(expr.args[0]), e.text(expr.args[1])


def _starts_with(e: Emitter, expr: tree.Call) -> str:
    text, part = _two_texts(e, expr)
    return _matches(e, e.body.let(f"icmp uge i64 {text[1]}, {part[1]}"), text[0], part, *expr.args)


def _ends_with(e: Emitter, expr: tree.Call) -> str:
    text, part = _two_texts(e, expr)
    behind = e.body.let(f"sub i64 {text[1]}, {part[1]}")
    return _matches(
        e, e.body.let(f"icmp uge i64 {text[1]}, {part[1]}"), e.body.at(text[0], behind), part, *expr.args
    )


def _contains(e: Emitter, expr: tree.Call) -> str:
    (p, n), (q, m) = _two_texts(e, expr)
    body = e.body
    # memmem takes time linear in the lengths, whatever the bytes are; eight nanoseconds a byte at worst.
    e.charge(body.let(f"mul i64 {body.let(f'add i64 {n}, {m}')}, {_SEARCH}"), expr.pos)
    body.module.declare("ptr @ev_memmem(ptr, i64, ptr, i64)")
    found = body.call("ptr", "@ev_memmem", f"ptr {p}", f"i64 {n}", f"ptr {q}", f"i64 {m}")
    empty = body.let(f"icmp eq i64 {m}, 0")
    return body.let(f"or i1 {empty}, {body.let(f'icmp ne ptr {found}, null')}")


def _length(e: Emitter, expr: tree.Call) -> str:
    return e.text(expr.args[0])[1]


FUNCTIONS: dict[str, Callable[[Emitter, tree.Call], str]] = {
    "starts_with": _starts_with,
    "ends_with": _ends_with,
    "contains": _contains,
    "length": _length,
}
"""The functions of ``library.LIBRARY`` that take texts."""
