"""Many texts as columns: texts that differ in numbers and strings only are parsed once.

The shape of a text is the text without its numbers and strings. One text of each shape is parsed, with marks
in their places. Where the marks turn up in its columns, the numbers and strings of the other texts go. What
cannot be told in this way is parsed text by text, and so is everything if something is wrong, since the error
is the parser's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching.areas.columns import AreaColumns, joined
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.tokens import LONGEST

_LITERAL = re.compile(
    r"""([0-9.'"](?:
      (?<=')[^']*'
    | (?<=")[^"]*"
    | (?<![\w.].)(?:(?<=[0-9])[0-9]*(?:\.[0-9]*)?|(?<=\.)[0-9]+)(?:[eE][+-]?[0-9]+)?
    ))""",
    re.VERBOSE,
)
"""A number or string, found by its first character, which is quick."""

_MOST = 64
"""Numbers and strings of a text that is not parsed by itself."""

_ODD = "\\`\0"

_FEW = 4
"""So many texts of a shape are parsed sooner one by one."""

_EXACT = 15
"""Digits of a whole number that float64 surely holds."""

_COLUMNS = {
    "names", "texts", "start", "name", "op", "number", "text", "subscription", "x", "y", "radius", "space",
    "count",
}  # fmt: skip

Ints = NDArray[np.int64]

Track = Callable[[Sequence[str], str], Iterable[str]]
"""Gives the texts of a long loop, and may show how far the loop is; it is told what the loop does."""


def untracked(items: Sequence[str], what: str) -> Iterable[str]:
    """The ``Track`` that shows nothing."""
    return items


class _Group:
    """Texts of one shape: their numbers in the list, and what stands in the places, text after text."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.literals: list[str] = []


class _Piece(NamedTuple):
    """Columns of some texts, and the numbers of these texts."""

    columns: FilterColumns
    rows: Ints


def columns_of_texts(texts: Sequence[str], track: Track = untracked) -> FilterColumns:
    """The columns of subscriptions given as texts; see ``FilterColumns.from_subscriptions``.

    Args:
        texts: the texts.
        track: is told of long loops.

    Raises:
        SubscriptionError: one is malformed; it names the first, counted from 0.

    Example:
        >>> columns = columns_of_texts([f"temp > {n} and kind == 'k{n}'" for n in range(1000)])
        >>> print(len(columns), columns.to_subscriptions()[7])
        1000 temp > 7 and kind == 'k7'
    """
    groups = _grouped(texts, track)
    alone: list[int] = []
    pieces = []
    for shape, mixed in groups.items():
        for group in _alike(mixed):
            piece = _filled(shape, group) if len(group.rows) > _FEW else None
            if piece is None:
                alone += group.rows
            else:
                pieces.append(piece)
    if not pieces:
        return FilterColumns.from_subscriptions(track(texts, "parsed"))
    alone.sort()
    try:
        if alone:
            rest = FilterColumns.from_subscriptions(track([texts[row] for row in alone], "parsed"))
            pieces.append(_Piece(rest, np.array(alone)))
        columns = _joined(pieces, len(texts))
        columns.check()
    except SubscriptionError:
        # It is to name the first text that is wrong.
        return FilterColumns.from_subscriptions(texts)
    return columns


def _grouped(texts: Sequence[str], track: Track) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    split, whole = _LITERAL.split, "".join(texts)
    # In names in backquotes and strings with escapes something may only look like a literal.
    odd = any(character in whole for character in _ODD) or max(map(len, texts), default=0) > LONGEST
    for row, text in enumerate(track(texts, "looked through")):
        if odd and (len(text) > LONGEST or any(character in text for character in _ODD)):
            shape, literals = text, []
        else:
            parts = split(text)
            shape, literals = "\0".join(parts[::2]), parts[1::2]
        group = groups.get(shape)
        if group is None:
            group = groups[shape] = _Group()
        group.rows.append(row)
        group.literals += literals
    return groups


def _alike(group: _Group) -> Iterator[_Group]:
    """Groups in which one place has numbers or strings, and not both."""
    places = len(group.literals) // len(group.rows)
    if all(len({one[0] in "'\"" for one in group.literals[place::places]}) == 1 for place in range(places)):
        yield group
        return
    found: dict[tuple[bool, ...], _Group] = {}
    for at, row in enumerate(group.rows):
        literals = group.literals[at * places : (at + 1) * places]
        part = found.setdefault(tuple(one[0] in "'\"" for one in literals), _Group())
        part.rows.append(row)
        part.literals += literals
    yield from found.values()


def _filled(shape: str, group: _Group) -> _Piece | None:
    """The columns of the texts of a group; None: they are to be parsed one by one."""
    rows, count = np.array(group.rows), len(group.rows)
    places = len(group.literals) // count
    if not 0 < places <= _MOST:
        return None
    # Text after text, so those of one place are so far apart.
    columns = [group.literals[place::places] for place in range(places)]
    strings = [column[0][0] in "'\"" for column in columns]
    # Binary fractions, which any factor leaves exact; and letters that no change of case leaves.
    marks: list[Any] = [f"Mark aß {n}" if is_text else 2.0 ** -(n + 1) for n, is_text in enumerate(strings)]
    parts = shape.split("\0")[: places + 1]
    written = [f"'{mark}'" if isinstance(mark, str) else repr(mark) for mark in marks]
    text = parts[0] + "".join(mark + part for mark, part in zip(written, parts[1:], strict=True))
    try:
        template = FilterColumns.from_subscriptions([text])
    except SubscriptionError:
        return None
    others = (getattr(template, f.name) for f in fields(FilterColumns) if f.name not in _COLUMNS)
    if any(other is not None for other in others):
        return None
    return _with_values(template, rows, columns, marks)


def _with_values(
    template: FilterColumns, rows: Ints, columns: list[list[str]], marks: list[Any]
) -> _Piece | None:
    """The template once for each row, with the row's values in place of the marks."""
    count, filters, constraints = len(rows), len(template), len(template.name)
    table: dict[str, Any] = {
        field: np.tile(held, (count, 1))
        for field in ("name", "op", "number", "text", "x", "y", "radius")
        if (held := getattr(template, field)) is not None
    }
    texts: dict[str, int] = {text: at for at, text in enumerate(template.texts)}
    for column, mark in zip(columns, marks, strict=True):
        if isinstance(mark, str):
            slots = [("text", template.text == texts.get(mark, -2), 1.0)]
            values = np.array([texts.setdefault(one[1:-1], len(texts)) for one in column], np.int32)
        else:
            if max(map(len, column)) > _EXACT and any(
                one.isdecimal() and len(one) > _EXACT for one in column
            ):
                return None
            values = np.array(list(map(float, column)))
            slots = _slots_of(template, mark)
        if not any(chosen.any() for _, chosen, _ in slots) or not np.isfinite(values).all():
            return None
        for field, chosen, factor in slots:
            table[field][:, chosen] = (values if factor == 1.0 else values * factor)[:, None]
    lengths = np.tile(np.diff(template.start), count)
    filled = FilterColumns(
        names=template.names,
        texts=list(texts),
        start=np.concatenate([[0], np.cumsum(lengths)]),
        subscription=np.repeat(np.arange(count), filters),
        space=template.space,
        count=count,
        **{field: held.reshape(-1) for field, held in table.items()},
    )
    assert len(filled.name) == count * constraints
    return _Piece(filled, rows)


def _slots_of(template: FilterColumns, mark: float) -> list[tuple[str, NDArray[np.bool_], float]]:
    """Where the mark of a number turns up: column, places in it, and by what it was multiplied."""
    found = []
    for field in ("number", "x", "y", "radius"):
        held = getattr(template, field)
        if held is None:
            continue
        # A power of two has its own significand, whatever it is multiplied with: a sign, or metres of a unit.
        for factor in (1.0, -1.0, 1000.0, 1609.344):
            chosen = held == mark * factor
            if field == "number":
                chosen &= template.text < 0
            if chosen.any():
                found.append((field, chosen, factor))
    return found


def _joined(pieces: list[_Piece], count: int) -> FilterColumns:
    """All pieces as one, in the order of the texts."""
    names: dict[str, int] = {}
    texts: dict[str, int] = {}
    spaces = {piece.columns.space for piece in pieces} - {None}
    if len(spaces) > 1:
        raise SubscriptionError("some areas are on the plane and others on the globe")
    held: dict[str, list[NDArray[Any]]] = {}
    areas: list[AreaColumns] = []
    for columns, rows in pieces:
        numbers = [names.setdefault(name, len(names)) for name in columns.names]
        words = [*(texts.setdefault(text, len(texts)) for text in columns.texts), -1]
        made = {
            "lengths": np.diff(columns.start),
            "name": np.array(numbers, np.int32)[columns.name] if numbers else columns.name,
            "op": columns.op,
            "number": columns.number,
            "text": np.array(words, np.int32)[columns.text],
            "subscription": rows if columns.subscription is None else rows[columns.subscription],
        }
        if any(piece.columns.areas is not None for piece in pieces):
            areas.append(AreaColumns.of(()) if columns.areas is None else columns.areas)
            none = np.full(len(columns), -1) if columns.area is None else columns.area
            made["area"] = np.where(none < 0, -1, none + sum(map(len, areas[:-1])))
        for field in ("x", "y", "radius") if spaces else ():
            area = getattr(columns, field)
            made[field] = np.full(len(columns), np.nan) if area is None else area
        for field, column in made.items():
            held.setdefault(field, []).append(column)
    whole: dict[str, Any] = {field: np.concatenate(columns) for field, columns in held.items()}
    start = np.concatenate([[0], np.cumsum(whole.pop("lengths"))])
    return FilterColumns(
        names=list(names),
        texts=list(texts),
        start=start,
        space=next(iter(spaces), None),
        areas=joined(areas, str(*spaces)) if areas else None,
        count=count,
        **whole,
    ).grouped()
