"""What times and durations have in common: nanoseconds in 64 bits, and the types of numpy for them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from evflow.schema.logical.columns import stored_each
from evflow.schema.types import Logical, Number, i64
from evflow.schema.values import Misfit, bounds

__all__ = ["Nanoseconds"]

_LEAST, _MOST = bounds(i64)


class Nanoseconds(Logical, Number):
    """A type that is kept as a 64-bit number of nanoseconds.

    Attributes:
        letter64: the kind of numpy's type: ``M`` for points in time, ``m`` for durations.
        word: the canonical text.
        expected: what is taken, in words.
    """

    __slots__ = ()

    plain = True
    letter64: ClassVar[str]
    word: ClassVar[str]
    expected: ClassVar[str]

    @property
    def text(self) -> str:
        return self.word

    @property
    def stored(self) -> Number:
        return i64

    @property
    def _numpy(self) -> np.dtype[Any]:
        return np.dtype(f"{self.letter64}8[ns]")

    def nanoseconds(self, value: Any) -> int | None:
        """The nanoseconds of an object of Python's ``datetime``; None if it is none that fits."""
        raise NotImplementedError

    def store(self, value: Any) -> int:
        """Nanoseconds."""
        if isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
            found: int | None = int(value)
        elif isinstance(value, np.datetime64 | np.timedelta64):
            return int(self.store_column(np.array([value]))[0])
        else:
            found = self.nanoseconds(value)
        if found is None:
            raise Misfit(self.expected, value)
        if not _LEAST <= found <= _MOST:
            raise Misfit(f"{self.expected} within 292 years", value)
        return found

    def load(self, stored: int) -> Any:
        """``numpy.datetime64`` or ``numpy.timedelta64`` in nanoseconds."""
        return self._numpy.type(stored, "ns")

    def constrained(self, value: Any) -> int:
        """Nanoseconds."""
        return self.store(value)

    def store_column(self, values: Any) -> np.ndarray[Any, np.dtype[Any]]:
        """Nanoseconds."""
        if not isinstance(values, np.ndarray) or values.dtype.kind == "O":
            return np.array(stored_each(self.store, values), np.int64)
        if values.dtype.kind in "iu":
            return values
        if values.dtype.kind != self.letter64 or _varies(values.dtype):
            raise Misfit(self.expected, values.dtype)
        missing = np.isnat(values)
        if missing.any():
            raise Misfit(
                f"{self.expected}; a field that may be missing is optional", "NaT", int(np.argmax(missing))
            )
        try:
            converted = values.astype(self._numpy)
            # numpy says nothing where a value has too many years, or parts of a nanosecond.
            same = converted.astype(values.dtype) == values
        except (TypeError, OverflowError):
            raise Misfit(self.expected, values.dtype) from None
        if not same.all():
            row = int(np.argmin(same))
            raise Misfit(f"{self.expected} within 292 years, in whole nanoseconds", values[row], row)
        return converted.view(np.int64)

    def load_column(self, stored: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
        """A view of numpy's type, in the byte order of ``stored``."""
        return stored.view(self._numpy.newbyteorder(stored.dtype.byteorder))

    def to_arrow(self, array: Any) -> Any:
        """The same memory as times or durations."""
        return array.view(self.arrow_type())

    @classmethod
    def parse(cls, text: str) -> Any:
        """The type if the text is its word."""
        return cls("i64", "i", 8, i64.marker, i64.code) if text == cls.word else None


def _varies(dtype: np.dtype[Any]) -> bool:
    """Whether it is of durations in months or years, which have no fixed length."""
    return dtype.kind == "m" and np.datetime_data(dtype)[0] in ("M", "Y")
