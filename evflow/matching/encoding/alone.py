"""A single event, in columns that are made once a thread, and what is derived of it.

To derive attributes of one event, a call of numpy for each step would take many times as long as Python does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evflow.matching.encoding.values import Vocabulary
from evflow.matching.folding import folded
from evflow.matching.operators import Op
from evflow.matching.patterns import searcher
from evflow.matching.rows import NUMBER, OTHER, TEXT, EventRows

if TYPE_CHECKING:
    from evflow.matching.encoding.dicts import Columns

WIDEST = 64
LONGEST = 4096
_REMEMBERED = 4096
_ABSENT, _EQ_OTHER, _EQ_NOCASE, _MATCHES = map(int, (Op.ABSENT, Op.EQ_OTHER, Op.EQ_NOCASE, Op.MATCHES))


class Alone(threading.local):
    """What a thread reads single events with.

    Args:
        make: makes columns of so many attributes and bytes.

    Attributes:
        columns: where the event is written.
        all: where the columns are, and the rows of each width.
    """

    def __init__(self, make: Callable[[int, int], Columns]) -> None:
        self.columns = make(WIDEST, LONGEST)
        # All in one, since to look up what belongs to a thread takes long.
        rows: list[EventRows | None] = [None] * (WIDEST + 1)
        self.all = self.columns.at, rows
        self._views: list[Any] = [array.data for array in self.columns.arrays]
        self._bounds: Any = self.columns.bounds.data

    def rows(self, width: int) -> EventRows:
        """The rows of an event with so many attributes."""
        self._bounds[1] = width
        rows = self.all[1][width] or self.columns.rows(1)
        self.all[1][width] = rows
        return rows

    def derive(self, width: int, known: Vocabulary, memo: dict[bytes, tuple[int, bytes]]) -> int:
        """Writes the attributes that are derived from those of the event; see ``with_derived``.

        Args:
            width: how many attributes the event has.
            known: what constraints ask for.
            memo: texts → the number and the bytes of each folded, for as long as ``known`` stays the same.

        Returns:
            How many attributes it has then; -1 if there is no room for them.
        """
        names, kinds, numbers, texts, chars, starts, lengths = self._views
        at = {name: row for row, name in enumerate(names[:width].tolist())}
        row, end = width, self.columns.written
        for (op, name, other), number in known.names.derived.items():
            source = at.get(name)
            if (source is None) is not (op == _ABSENT):
                continue
            if row == WIDEST:
                return -1
            kind = OTHER
            if source is None:
                pass
            elif op == _EQ_OTHER:
                way = self._way(source, at.get(other))
                if way is None:
                    continue
                kind, numbers[row] = NUMBER, way
            elif kinds[source] != TEXT:
                continue
            elif op == _EQ_NOCASE:
                text = self._text(source)
                held = memo.get(text)
                if held is None:
                    if len(memo) >= _REMEMBERED:
                        memo.clear()
                    made = folded(text)
                    held = memo[text] = known.strings.number(made), made
                texts[row], piece = held
                size = len(piece)
                if end + size > LONGEST:
                    return -1
                chars[end : end + size] = piece
                kind, starts[row], lengths[row] = TEXT, end, size
                end += size
            else:
                search = searcher(known.strings.bytes_of(other).decode())
                if search(self._text(source)) is not (op == _MATCHES):
                    continue
            names[row], kinds[row] = number, kind
            row += 1
        return row

    def _way(self, one: int, two: int | None) -> float | None:
        """How two attributes of the event are ordered; None: they do not compare."""
        _, kinds, numbers, *_ = self._views
        if two is None or kinds[one] != kinds[two] or kinds[one] == OTHER:
            return None
        a, b = (numbers[one], numbers[two]) if kinds[one] == NUMBER else (self._text(one), self._text(two))
        return float((a > b) - (a < b)) if a == a and b == b else float("nan")

    def _text(self, row: int) -> bytes:
        """The UTF-8 bytes of a text, which are ordered as texts are."""
        *_, chars, starts, lengths = self._views
        start: int = starts[row]
        return bytes(chars[start : start + lengths[row]])
