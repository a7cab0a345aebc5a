"""Attributes that events get while they are read, since some constraints ask for more than one value.

``not exists x`` holds for an event without x. To engines it is ``exists`` on an attribute of its own, which
each event gets that lacks x. So is ``x matches 'p'``, on an attribute that those events get whose x holds a
match. ``x < y`` is ``< 0`` on an attribute that tells how x and y are ordered: -1, 0 or 1, NaN if one of them
is NaN, and missing where they do not compare. ``x == nocase 'p'`` is ``== 'p'`` on an attribute that is x
with its case folded, once an event however many ask for it. So all engines know such constraints, and index
them as they do others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.folding import folded_pieces
from evflow.matching.names import Derived, Names
from evflow.matching.operators import Op
from evflow.matching.patterns import searcher
from evflow.matching.rows import NUMBER, OTHER, TEXT, EventRows
from evflow.matching.strings import Strings

_Ints = NDArray[np.int32]
_Lowered = tuple[_Ints, NDArray[np.uint8], NDArray[np.float64], _Ints, Sequence[str]]


def _form_of(op: Op) -> tuple[Op, Op]:
    """Which derived attribute an operator asks for, and what engines test of it."""
    if op.names_other:
        return Op.EQ_OTHER, Op(op - Op.EQ_OTHER)
    if op >= Op.EQ_NOCASE:
        return Op.EQ_NOCASE, op.of_folded
    return op, Op.EXISTS


_FORMS = np.zeros((256, 2), np.uint8)
_FORMS[[op for op in Op if op >= Op.ABSENT]] = [_form_of(op) for op in Op if op >= Op.ABSENT]


def lowered(columns: FilterColumns, name: _Ints, names: Names, strings: Strings) -> _Lowered:
    """Constraints as engines take them; new attributes get numbers.

    Args:
        columns: the constraints, checked.
        name: their attributes, by number.
        names: the numbers, to be added to.
        strings: likewise, for regular expressions.

    Returns:
        The attributes, operators, numbers, indices of texts, and these texts: first ``columns.texts``.

    Example:
        >>> columns = FilterColumns.from_subscriptions(["not exists b and a < b and a < 3"])
        >>> known = Names(["a", "b"]), Strings()
        >>> name, op, number, text, texts = lowered(columns, np.array([1, 0, 0], np.int32), *known)
        >>> name, [Op(one).symbol for one in op], number
        (array([2, 3, 0], dtype=int32), ['exists', '<', '<'], array([0., 0., 3.]))
    """
    op, number, text, texts = columns.op, columns.number, columns.text, columns.texts
    asked = np.flatnonzero(op >= Op.ABSENT)
    if not len(asked):
        return name, op, number, text, texts
    name, op, number, text = name.copy(), op.copy(), number.copy(), text.copy()
    form, test = _FORMS[op[asked]].T
    folding = form == Op.EQ_NOCASE
    other = np.where(folding, -1, text[asked])
    keys, inverse = np.unique(np.stack([form, name[asked], other]), axis=1, return_inverse=True)
    found = [_derive(names, strings, *key, texts=texts) for key in keys.T.tolist()]
    name[asked] = np.array(found, np.int32)[inverse.reshape(-1)]
    op[asked] = test
    number[asked] = 0.0
    text[asked[~folding]] = -1
    operands, at = np.unique(text[asked[folding]], return_inverse=True)
    text[asked[folding]] = at + len(texts)
    return name, op, number, text, [*texts, *(texts[operand].casefold() for operand in operands.tolist())]


def _derive(names: Names, strings: Strings, form: int, name: int, text: int, *, texts: Sequence[str]) -> int:
    if text < 0:
        return names.derive(Derived(form, name))
    known = names if form == Op.EQ_OTHER else strings
    return names.derive(Derived(form, name, int(known.intern([texts[text]])[0])))


class _Added(NamedTuple):
    """An attribute that some events get: which events, and the columns of ``EventRows``."""

    event: NDArray[np.int64]
    name: _Ints
    kind: NDArray[np.uint8]
    number: NDArray[np.float64]
    text: _Ints
    char_start: NDArray[np.int64]
    char_length: _Ints


def with_derived(rows: EventRows, names: Names, strings: Strings) -> EventRows:
    """Events with the attributes that are derived from others.

    Args:
        rows: the events; they stay as they are.
        names: what constraints ask for.
        strings: the regular expressions.

    Example:
        >>> names = Names(["a"])
        >>> names.derive(Derived(Op.ABSENT, 0))
        1
        >>> none = np.zeros(0, np.int32)
        >>> empty = EventRows(
        ...     np.zeros(2, np.int64), none, none.astype(np.uint8), none.astype(float), none,
        ...     none.astype(np.uint8), none.astype(np.int64), none, np.zeros((1, 2)),
        ... )
        >>> with_derived(empty, names, Strings()).name
        array([1], dtype=int32)
    """
    deriving = _Deriving(rows, strings)
    added = [deriving.made(*one) for one in names.derived.items()]
    return _joined(rows, deriving.owner, added, deriving.chars)


def _text(rows: EventRows, row: int) -> bytes:
    """The UTF-8 bytes of a text, which are ordered as texts are."""
    at = int(rows.char_start[row])
    return rows.chars[at : at + int(rows.char_length[row])].tobytes()


class _Deriving:
    """Derives attributes of some events."""

    def __init__(self, rows: EventRows, strings: Strings) -> None:
        self.rows = rows
        self.strings = strings
        self.owner = np.repeat(np.arange(len(rows)), np.diff(rows.start))
        self.places, self.texts = cache(self._places), cache(self._texts)
        self.chars = [rows.chars]

    def made(self, of: Derived, number: int) -> _Added:
        """An attribute of the events that get it."""
        if of.op == Op.ABSENT:
            return _added(np.flatnonzero(self.places(of.name) < 0), number, OTHER)
        if of.op == Op.EQ_OTHER:
            return self._order(of, number)
        return self._folded(of, number) if of.op == Op.EQ_NOCASE else self._matching(of, number)

    def _places(self, name: int) -> NDArray[np.int64]:
        """Which row of each event is the attribute of a name; -1: none."""
        found = np.full(len(self.rows), -1)
        at = np.flatnonzero(self.rows.name == name)
        found[self.owner[at]] = at
        return found

    def _events(self, name: int) -> NDArray[np.int64]:
        """The events in which an attribute is a text."""
        places: NDArray[np.int64] = self.places(name)
        there = np.flatnonzero(places >= 0)
        event: NDArray[np.int64] = there[self.rows.kind[places[there]] == TEXT]
        return event

    def _texts(self, name: int) -> tuple[NDArray[np.int64], list[bytes]]:
        """These events, and the texts."""
        event = self._events(name)
        return event, [_text(self.rows, row) for row in self.places(name)[event].tolist()]

    def _order(self, of: Derived, number: int) -> _Added:
        rows, left, right = self.rows, self.places(of.name), self.places(of.other)
        event = np.flatnonzero((left >= 0) & (right >= 0))
        kinds, others = rows.kind[left[event]], rows.kind[right[event]]
        event = event[(kinds == others) & (kinds != OTHER)]
        left, right = left[event], right[event]
        one, two = rows.number[left], rows.number[right]
        way = np.where(np.isnan(one) | np.isnan(two), np.nan, (one > two) * 1.0 - (one < two))
        for i in np.flatnonzero(rows.kind[left] == TEXT).tolist():
            a, b = _text(rows, left[i]), _text(rows, right[i])
            way[i] = (a > b) - (a < b)
        return _added(event, number, NUMBER, number=way)

    def _folded(self, of: Derived, number: int) -> _Added:
        event = self._events(of.name)
        row = self.places(of.name)[event]
        data, start, length = folded_pieces(
            self.rows.chars, self.rows.char_start[row], self.rows.char_length[row]
        )
        text = self.strings.find(data, start, length)
        start += sum(map(len, self.chars))
        self.chars.append(data)
        return _added(event, number, TEXT, text=text, char_start=start, char_length=length)

    def _matching(self, of: Derived, number: int) -> _Added:
        event, texts = self.texts(of.name)
        search, wanted = searcher(self.strings.bytes_of(of.other).decode()), of.op == Op.MATCHES
        holds = {text: search(text) is wanted for text in set(texts)}
        return _added(event[np.array([holds[text] for text in texts], bool)], number, OTHER)


def _added(event: NDArray[np.int64], name: int, kind: int, **columns: NDArray[Any]) -> _Added:
    count = len(event)
    filled: dict[str, Any] = {
        "number": np.zeros(count),
        "text": np.full(count, -1, np.int32),
        "char_start": np.zeros(count, np.int64),
        "char_length": np.zeros(count, np.int32),
        **columns,
    }
    return _Added(event, np.full(count, name, np.int32), np.full(count, kind, np.uint8), **filled)


def _joined(
    rows: EventRows, owner: NDArray[np.int64], added: list[_Added], chars: list[NDArray[np.uint8]]
) -> EventRows:
    event = np.concatenate([owner, *(part.event for part in added)])
    order = np.argsort(event, kind="stable")
    columns = {
        column: np.concatenate([getattr(rows, column), *(getattr(part, column) for part in added)])[order]
        for column in _Added._fields[1:]
    }
    start = starts_of(np.bincount(event, minlength=len(rows)))
    whole = np.concatenate(chars) if len(chars) > 1 else rows.chars
    return EventRows(start=start, chars=whole, place=rows.place, **columns)
