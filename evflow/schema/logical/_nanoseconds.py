"""What times and durations have in common: nanoseconds in 64 bits, and the types of numpy for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import numpy as np

from evflow.schema.types import Logical, Number, i64
from evflow.schema.values import Misfit, stored_each

__all__ = ["Nanoseconds", "nanoseconds_of"]

_Column = np.ndarray[Any, np.dtype[Any]]

_SECOND = 1_000_000_000
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": _SECOND, "m": 60 * _SECOND, "h": 3_600 * _SECOND}
"""Nanoseconds of those units of numpy that have whole ones, whatever the date."""

_NAT = -(1 << 63)


class Nanoseconds(Logical, Number):
    """A type that is kept as a 64-bit number of nanoseconds.

    Attributes:
        letter64: the kind of numpy's type: ``M`` for points in time, ``m`` for durations.
        expected: what is taken, in words.
    """

    __slots__ = ()

    plain = True
    numeric = True
    letter64: ClassVar[str]
    expected: ClassVar[str]

    @property
    def stored(self) -> Number:
        return i64

    @property
    def bounds(self) -> tuple[int, int]:
        """What may be given: the least integer is NaT."""
        return _NAT + 1, (1 << 63) - 1

    @property
    def narrowed(self) -> bool:
        """Functions may compute NaT, so that events may have it."""
        return False

    @property
    def _numpy(self) -> np.dtype[Any]:
        return np.dtype(f"{self.letter64}8[ns]")

    def nanoseconds(self, value: Any) -> int | None:
        """The nanoseconds of ``value``, a text or an object of Python's ``datetime``; None if it is
        neither."""
        raise NotImplementedError

    def is_missing(self, value: Any) -> bool:
        """True if ``value`` stands for no value; NaT of numpy does, too."""
        if isinstance(value, np.datetime64 | np.timedelta64):
            return bool(np.isnat(value))
        return super().is_missing(value)

    def store(self, value: Any) -> int:
        """The nanoseconds of ``value``.

        Raises:
            Misfit: ``value`` is missing, is not of the type, or is too far away.
        """
        if self.is_missing(value):
            raise Misfit(f"{self.expected}; the field is not optional", value)
        if isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
            found: int | None = int(value)
        elif isinstance(value, np.datetime64 | np.timedelta64):
            unit, count = np.datetime_data(value.dtype)
            if value.dtype.kind != self.letter64 or unit not in _UNITS:
                return int(self.store_column(np.array([value]))[0])
            found = int(value.view(np.int64)) * count * _UNITS[unit]
        else:
            found = self.nanoseconds(value)
        if found is None:
            raise Misfit(self.expected, value)
        if not self.bounds[0] <= found <= self.bounds[1]:
            raise Misfit(f"{self.expected} within 292 years", value)
        return found

    def load(self, stored: int) -> Any:
        """The ``numpy.datetime64`` or ``numpy.timedelta64`` of ``stored`` nanoseconds."""
        return self._numpy.type(stored, "ns")

    def constrained(self, value: Any) -> float:
        """The seconds of ``value``, as float64."""
        seconds, rest = divmod(self.store(value), _SECOND)
        return seconds + rest / _SECOND

    def constrained_column(self, stored: np.ndarray[Any, np.dtype[Any]]) -> tuple[Any, Any]:
        """The seconds of the nanoseconds ``stored``, as float64, and a mask of those that are not NaT."""
        native = stored.astype(np.int64)
        seconds, rest = np.divmod(native, _SECOND)
        return seconds + rest / _SECOND, native != _NAT

    def store_column(self, values: Any) -> np.ndarray[Any, np.dtype[Any]]:
        """The nanoseconds of ``values``, as int64."""
        if not isinstance(values, np.ndarray) or values.dtype.kind in "OUT":
            return np.array(stored_each(self.store, values), np.int64)
        if values.dtype.kind in "iu":
            if (values == _NAT).any():
                raise Misfit(f"{self.expected} within 292 years", _NAT, int(np.argmax(values == _NAT)))
            return values  # which are looked at as all integers are
        if values.dtype.kind != self.letter64 or _varies(values.dtype):
            raise Misfit(self.expected, values.dtype)
        missing = np.isnat(values)
        if missing.any():
            raise Misfit(f"{self.expected}; the field is not optional", "NaT", int(np.argmax(missing)))
        converted, same = self._converted(values)
        if not same.all():
            row = int(np.argmin(same))
            raise Misfit(f"{self.expected} within 292 years, in whole nanoseconds", values[row], row)
        return converted.view(np.int64)

    def _converted(self, values: _Column) -> tuple[_Column, _Column]:
        """A column in nanoseconds, and where these are the same as the values."""
        try:
            converted = values.astype(self._numpy)
            # numpy says nothing of what it cuts off, and before 2.4 nothing of years that are too far.
            return converted, converted.astype(values.dtype) == values
        except OverflowError:
            if len(values) == 1:
                return values, np.zeros(1, np.bool_)
            # In halves, until the values that are too far away stand alone.
            half = len(values) // 2
            first, second = self._converted(values[:half]), self._converted(values[half:])
            same = np.concatenate([first[1], second[1]])
            return values, same

    def load_column(self, stored: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
        """A view of ``stored`` with numpy's type of times, in the byte order of ``stored``."""
        return stored.view(self._numpy.newbyteorder(stored.dtype.byteorder))

    def to_arrow(self, array: Any) -> Any:
        """The nanoseconds of ``array`` as times or durations, in the same memory."""
        return array.view(self.arrow_type())

    @classmethod
    def as_arrow(cls, value: Any) -> int | None:
        """The nanoseconds of ``value``; None if it is missing."""
        kind = cls.parse(cls.word)
        return None if kind.is_missing(value) else int(kind.store(value))

    @classmethod
    def seen_alone(cls, value: Any) -> Any:
        """The seconds of ``value``, as float64; ``value`` itself if it has no time zone, or is too far
        away."""
        kind = cls.parse(cls.word)
        try:
            return None if kind.is_missing(value) else kind.constrained(value)
        except Misfit:
            return value

    @classmethod
    def parse(cls, text: str) -> Any:
        """The type if ``text`` is its word."""
        return cls("i64", "i", 8, i64.marker, i64.code) if cls.word and text == cls.word else None


def nanoseconds_of(delta: timedelta) -> int:
    """The nanoseconds of the duration ``delta``; one of pandas has more of them than microseconds."""
    micros = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    return micros * 1000 + int(getattr(delta, "nanoseconds", 0))


def _varies(dtype: np.dtype[Any]) -> bool:
    """True for durations in months or years, which have no fixed length."""
    return dtype.kind == "m" and np.datetime_data(dtype)[0] in ("M", "Y")
