"""``Enum["buy", "sell"]``: one of some names."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Any

from evflow.errors import SchemaError
from evflow.outside import shown
from evflow.schema.types import FieldType, Logical, Number, u8
from evflow.schema.values import Misfit

__all__ = ["Enum"]

_MOST = 256
_NAME = re.compile(r"\w[\w .:/+-]{0,63}")
_LONGEST = 1_500
"""Characters of all the names."""
_SHOWN = 200


@dataclass(frozen=True, repr=False, slots=True)
class Enum(Logical, Number):
    """One of at most 256 names, kept as the number of the name, from 0, in a byte: ``Enum["buy", "sell"]``.

    A class that derives from Python's ``enum.Enum`` stands for the names of its members. It takes a name or a
    member, and gives the name as a str. Functions see the number, and take a name for it.

    Attributes:
        names: the names in order.

    Example:
        >>> import evflow as ev
        >>> order = ev.Schema("order", {"side": ev.Enum["buy", "sell"]})
        >>> ev.EventBatch.from_events([order(side="sell")])[0].side
        'sell'
    """

    spelling = "ev.Enum[…]"

    names: tuple[str, ...] = ()

    def __class_getitem__(cls, given: Any) -> Enum:
        names = given if isinstance(given, tuple) else (given,)
        if len(names) == 1 and isinstance(names[0], enum.EnumMeta):
            names = tuple(names[0].__members__)
        wrong = [name for name in names if not isinstance(name, str) or not _NAME.fullmatch(name)]
        if wrong:
            raise SchemaError(
                f"Enum: name {shown(wrong[0])}: expected a text of 1 to 64 letters, digits, spaces and "
                "_.:/+-, of which the first is a letter, a digit or _"
            )
        if not 1 <= len(names) <= _MOST or len(set(names)) < len(names) or sum(map(len, names)) > _LONGEST:
            raise SchemaError(
                f"Enum: {len(names)} names: expected 1 to {_MOST} different ones, of at most {_LONGEST} "
                "characters together"
            )
        return Enum("u8", "u", 1, u8.marker, u8.code, names)

    @property
    def text(self) -> str:
        return f"enum({','.join(self.names)})"

    @property
    def stored(self) -> Number:
        return u8

    @property
    def bounds(self) -> tuple[int, int]:
        """The positions of the names."""
        return 0, len(self.names) - 1

    def takes(self, other: FieldType) -> bool:
        """True also if ``other`` is an enumeration of fewer names, of which these are a continuation."""
        return isinstance(other, Enum) and other.names == self.names[: len(other.names)]

    @property
    def _expected(self) -> str:
        names = ", ".join(self.names)
        return f"one of {names[:_SHOWN]}{'…' * (len(names) > _SHOWN)}"

    def store(self, value: Any) -> int:
        """The number of the name or member ``value``.

        Raises:
            Misfit: ``value`` is not one of the names.
        """
        # A member of an enumeration of texts may stand for its name or for its value.
        forms = (value.name, value.value) if isinstance(value, enum.Enum) else (value,)
        for form in forms:
            if isinstance(form, str) and form in self.names:
                return self.names.index(form)
        raise Misfit(self._expected, value)

    def load(self, stored: int) -> str:
        """The name whose number is ``stored``.

        Raises:
            SchemaError: there are fewer names.
        """
        if stored >= len(self.names):
            raise SchemaError(
                f"{shown(self.text, 100)}: expected a number below {len(self.names)}, found {stored}"
            )
        return self.names[stored]

    def arrow_type(self) -> Any:
        """The type of text."""
        import pyarrow as pa

        return pa.string()

    def from_arrow(self, array: Any) -> Any:
        """The numbers of the names that ``array`` holds as text.

        Raises:
            TypeError: ``array`` does not hold text.
            Misfit: a text is not one of the names; carries its row.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            raise TypeError
        found = pc.index_in(array, pa.array(self.names, array.type))
        if found.null_count > array.null_count:
            unknown = pc.and_(found.is_null(), array.is_valid())
            row = unknown.index(pa.scalar(True)).as_py()
            raise Misfit(self._expected, array[row].as_py(), row)
        return found.cast(pa.uint8())

    def to_arrow(self, array: Any) -> Any:
        """The names, as text, whose numbers are in ``array``."""
        import pyarrow as pa

        return pa.array(self.names, pa.string()).take(array)

    def spark_type(self) -> Any:
        """The type of text."""
        from pyspark.sql import types

        return types.StringType()

    @classmethod
    def parse(cls, text: str) -> Any:
        """The type of a ``text`` such as ``enum(buy,sell)``; None if ``text`` has another form.

        Raises:
            SchemaError: the names cannot be those of an enumeration.
        """
        if not text.startswith("enum(") or not text.endswith(")"):
            return None
        return cls.__class_getitem__(tuple(text[5:-1].split(",")))
