"""How the values of a field stand in Arrow memory, as native code reads and writes it.

A form is a tree that follows a field's type: a list has one child, a record one for each of its fields, an
array of numbers one list in another for each of its dimensions and the numbers at the end. Each form has some
words in the context of the native code, which say where its memory is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from evflow.codgen.memory import Array as Memory
from evflow.codgen.memory import address
from evflow.codgen.native import Code
from evflow.schema import Schema
from evflow.schema.types import NUMBERS, Array, FieldType, ListOf, Maybe, Number, Record

WORDS = ("validity", "bits", "values", "first", "content", "size")
"""What the encoder has to know of the memory of a form: address of the bitmap of what is not null (0: nothing
is) and the number of its first bit; address of the values or, for text, bytes and lists, of the offsets, and
the number of the first; address and size of the bytes of text and bytes."""

# Rows up to which the interpreter lock is kept: giving it away costs more than they do.
_FEW = 2048


@dataclass(frozen=True, slots=True)
class Form:
    """How the values of a field stand in Arrow memory.

    Attributes:
        kind: the field's type, without the optional.
        optional: whether nulls may stand there.
        path: names the field in errors.
        number: position of the form among all of its schema.
        stored: of numbers, the type they have in Arrow memory.
        children: forms of what is within.
    """

    kind: FieldType
    optional: bool
    path: str
    number: int
    stored: Number | None
    children: tuple[Form, ...]

    @property
    def leaf(self) -> Form:
        """The innermost form of an array's dimensions."""
        return self.children[0].leaf if self.children else self

    def walk(self) -> Iterator[Form]:
        """This form and those within, in the order of their numbers."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of a schema's fields, in declared order."""

    schema: Schema
    fields: tuple[Form, ...]

    @property
    def count(self) -> int:
        """How many forms there are in all."""
        return sum(1 for form in self.fields for _ in form.walk())


def forms_of(schema: Schema, spark: bool = False) -> Forms:
    """The forms of a schema's fields.

    Args:
        schema: not recursive.
        spark: whether unsigned integers stand in the next wider signed ones.
    """
    numbers = count()

    def form(kind: FieldType, path: str) -> Form:
        number, held = next(numbers), kind.held
        children: tuple[Form, ...] = ()
        if isinstance(held, ListOf):
            children = (form(held.element, path + "[]"),)
        elif isinstance(held, Record):
            children = tuple(form(f.type, f"{path}.{f.name}") for f in held.schema.fields)
        elif isinstance(held, Array):
            inner = Array(held.element, held.shape[1:]) if len(held.shape) > 1 else held.element
            children = (form(inner, path + "[]"),)
        stored = held if isinstance(held, Number) else None
        if stored is not None and spark and stored.kind == "u" and stored.size < 8:
            stored = NUMBERS[f"i{16 * stored.size}"]
        return Form(held, isinstance(kind, Maybe), path, number, stored, children)

    return Forms(schema, tuple(form(f.type, f.name) for f in schema.fields))


def call(code: Code, words: Memory, rows: int) -> None:
    """Runs compiled code on a block of words; other threads run meanwhile if it takes a while."""
    (code.held if rows <= _FEW else code.free)(address(words))
