"""Arrow memory as native code reads it: which values are there, where they are, how long they are."""

from __future__ import annotations

from evflow.codgen.llvm.ir import Body
from evflow.schema.types import Array
from evflow.spark.columns.forms import WORDS, Form, Forms

__all__ = ["Columns"]


class Columns:
    """Writes into a function what reads the columns of its rows.

    An index is that of a row or element, as an i64 operand; so are sizes.

    Args:
        body: the function, whose parameter ``%ctx`` is the context.
        forms: what the columns are.
        start: how many words of the context are before those of the forms.
    """

    def __init__(self, body: Body, forms: Forms, start: int) -> None:
        self._body = body
        self._words: dict[tuple[int, str], str] = {}
        for form in (form for field in forms.fields for form in field.walk()):
            for at, word in enumerate(WORDS):
                where = 8 * (start + len(WORDS) * form.number + at)
                self._words[form.number, word] = body.load("i64", "%ctx", where)

    def word(self, form: Form, name: str) -> str:
        """A word of a form (i64)."""
        return self._words[form.number, name]

    def pointer(self, form: Form, name: str) -> str:
        """A word of a form that is an address."""
        return self._body.let(f"inttoptr i64 {self.word(form, name)} to ptr")

    def bit(self, address: str, first: str, index: str) -> str:
        """Bit ``first + index`` of those at an address (i1)."""
        body = self._body
        at = body.let(f"add i64 {index}, {first}")
        byte = body.load("i8", address, body.let(f"lshr i64 {at}, 3"))
        shift = body.let(f"trunc i64 {body.let(f'and i64 {at}, 7')} to i8")
        return body.let(f"trunc i8 {body.let(f'lshr i8 {byte}, {shift}')} to i1")

    def present(self, form: Form, index: str) -> str:
        """Whether a value is no null (i1)."""
        body = self._body
        look, done = body.label(), body.label()
        before = body.block
        body.branch(body.let(f"icmp eq i64 {self.word(form, 'validity')}, 0"), done, look)
        body.begin(look)
        bit = self.bit(self.pointer(form, "validity"), self.word(form, "bits"), index)
        looked = body.block
        body.begin(done)
        return body.phi("i1", [("true", before), (bit, looked)])

    def range(self, form: Form, index: str) -> tuple[str, str]:
        """Where the bytes or elements of a value begin, and how many they are."""
        body = self._body
        bits = 64 if form.wide else 32
        at = body.let(f"add i64 {index}, {self.word(form, 'first')}")
        place = self.pointer(form, "values")
        scaled = body.let(f"shl i64 {at}, {3 if form.wide else 2}")
        ends = [body.load(f"i{bits}", place, scaled)]
        ends.append(body.load(f"i{bits}", place, body.let(f"add i64 {scaled}, {bits // 8}")))
        if not form.wide:
            ends = [body.let(f"sext i32 {end} to i64") for end in ends]
        return ends[0], body.let(f"sub i64 {ends[1]}, {ends[0]}")

    def elements(self, form: Form, index: str) -> tuple[str, str]:
        """The first element of an array of numbers, and the size of all in bytes."""
        body = self._body
        first, count = self.range(form, index)
        inner = form.children[0]
        while inner.children:
            behind = body.let(f"add i64 {first}, {count}")
            empty = body.let(f"icmp eq i64 {count}, 0")
            some, done = body.label(), body.label()
            before = body.block
            body.branch(empty, done, some)
            body.begin(some)
            start, _ = self.range(inner, first)
            last, size = self.range(inner, body.let(f"sub i64 {behind}, 1"))
            whole = body.let(f"sub i64 {body.let(f'add i64 {last}, {size}')}, {start}")
            after = body.block
            body.begin(done)
            first = body.phi("i64", [("0", before), (start, after)])
            count = body.phi("i64", [("0", before), (whole, after)])
            inner = inner.children[0]
        assert isinstance(form.kind, Array)
        return first, body.let(f"mul i64 {count}, {form.kind.item_size}")
