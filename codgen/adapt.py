"""Events of one schema for code that was written against another.

An *actual* schema fits a *declared* one if it has its fields, by name and with types that convert: number
to number, text to text, and so on within records, arrays and lists. A field that is missing needs a
default. ``adapt`` makes the function that turns an actual event into a declared one, for those who need the
declared bytes (a handler, a storage).
"""

from __future__ import annotations

from collections.abc import Iterator

from evflow.codgen.source.access import Ref, converts, is_text
from evflow.codgen.source.check import Builder
from evflow.codgen.source.transfer import Transfer
from evflow.codgen.tree import Function
from evflow.errors import CodeError, SchemaError
from evflow.schema import REQUIRED, Schema
from evflow.schema.types import Array, FieldType, ListOf, Logical, Number, Record

_FUEL = 1 << 40


def adapt(actual: Schema, declared: Schema) -> Function | None:
    """The transform from an event of ``actual`` to one of ``declared``.

    Numbers are converted checked (a RANGE fault for an event whose value does not fit), texts as they are
    (TEXT where one is too long), missing fields take their defaults. None where it takes more than a
    function can do: lists, arrays of varying size, and optional records, whose element types differ.

    Raises:
        SchemaError: ``actual`` does not fit; names every field that is missing or has another type.
    """
    check_fit(actual, declared)
    builder = Builder(
        "transform",
        f"/* {actual.name} as {declared.name} */",
        [("input", declared, actual)],
        [("output", declared)],
    )
    target, source = builder.lookup("output"), builder.lookup("input")
    assert isinstance(target, Ref) and isinstance(source, Ref)
    try:
        body = Transfer(builder, checked=True, whole=True).copied(target, source)
    except CodeError:
        return None
    return builder.finish([*body, builder.returned(builder.const("i64", 1))], _FUEL)


def needs(actual: Schema, declared: Schema) -> str:
    """What it takes to see an event of ``actual`` as one of ``declared``.

    "same": nothing, their bytes are laid out alike; "subset": every declared field is there with the same
    type; "convert": types differ or defaults stand in.

    Raises:
        SchemaError: it cannot be; names every field that is missing or has another type.
    """
    if actual is declared or _layout(actual) == _layout(declared):
        return "same"
    if all(f.name in actual and actual[f.name].type == f.type for f in declared):
        return "subset"
    check_fit(actual, declared)
    return "convert"


def _layout(schema: Schema) -> list[tuple[str, FieldType]]:
    return [(f.name, f.type) for f in schema]


def check_fit(actual: Schema, declared: Schema) -> None:
    """Refuses an actual schema that does not fit the declared one.

    Raises:
        SchemaError: names every field that is missing or has another type.
    """
    problems = list(_problems(actual, declared, "", frozenset()))
    if problems:
        raise SchemaError(f"events of {actual.name} do not fit {declared.name}: {'; '.join(problems)}")


def _problems(
    actual: Schema, declared: Schema, prefix: str, seen: frozenset[tuple[str, str]]
) -> Iterator[str]:
    pair = (actual.fingerprint, declared.fingerprint)
    if pair[0] == pair[1] or pair in seen:
        return
    for field in declared:
        name = prefix + field.name
        if field.name in actual:
            yield from _mismatches(actual[field.name].type, field.type, name, seen | {pair})
        elif field.default is REQUIRED:
            yield f"field {name} ({field.type.text}) is missing and has no default"


def _mismatches(
    actual: FieldType, declared: FieldType, name: str, seen: frozenset[tuple[str, str]]
) -> Iterator[str]:
    inner = actual.held
    wanted = declared.held
    if isinstance(inner, Record) and isinstance(wanted, Record):
        yield from _problems(inner.schema, wanted.schema, f"{name}.", seen)
    elif isinstance(inner, ListOf) and isinstance(wanted, ListOf):
        yield from _mismatches(inner.element, wanted.element, f"{name}[]", seen)
    elif not _converts(inner, wanted):
        yield f"field {name} is {actual.text}, expected {declared.text}"


def _converts(actual: FieldType, declared: FieldType) -> bool:
    if not converts(actual, declared):
        return False
    if isinstance(declared, Logical):
        return True
    if isinstance(actual, Number) and isinstance(declared, Number):
        return True
    if isinstance(actual, Array) and isinstance(declared, Array) and len(actual.shape) == len(declared.shape):
        return all(d is None or a == d for a, d in zip(actual.shape, declared.shape, strict=True))
    return is_text(actual) and is_text(declared)
