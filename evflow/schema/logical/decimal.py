"""``Decimal[precision, scale]``: a decimal number, exact."""

from __future__ import annotations

import decimal
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from evflow.errors import SchemaError
from evflow.schema.types import Bytes, Logical, Number, i64
from evflow.schema.values import Misfit

__all__ = ["Decimal"]

_NARROW, _WIDE = 18, 38
"""Digits that 64 and 128 bits hold."""

_LONGEST = 1_000
"""Digits of a number that is looked at."""

_DIGITS = re.compile(r"[+-]?[0-9]{1,60}(\.[0-9]{0,60})?", re.ASCII)
_TEXT = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)", re.ASCII)


class _Exact(Logical):
    """What decimals have in common, however many digits they have."""

    __slots__ = ()

    classes = (decimal.Decimal,)
    spelling = "ev.Decimal[digits, behind_point]"
    numeric = True
    computable = False
    precision: int
    scale: int

    @property
    def text(self) -> str:
        return f"decimal({self.precision},{self.scale})"

    def constrained(self, value: Any) -> float:
        """The float64 nearest to the number ``value``."""
        return float(self.load(self.store(value)))

    @classmethod
    def seen_alone(cls, value: Any) -> float:
        """The float64 nearest to the number ``value``."""
        return float(value)

    def arrow_type(self) -> Any:
        """``decimal128(precision, scale)``."""
        import pyarrow as pa

        return pa.decimal128(self.precision, self.scale)

    def spark_type(self) -> Any:
        """``DecimalType(precision, scale)``."""
        from pyspark.sql import types

        return types.DecimalType(self.precision, self.scale)


@dataclass(frozen=True, repr=False, slots=True)
class Decimal(_Exact, Number):
    """A number of at most ``precision`` decimal digits, ``scale`` of them behind the point.

    It takes a ``decimal.Decimal``, an int or a text (``"19.90"``) of no more digits, and gives a
    ``decimal.Decimal``. What
    is kept is the number without its point: up to 18 digits as a 64-bit integer, up to 38 as the 16 bytes of
    a little-endian 128-bit integer. Functions see one of at most 15 digits as the float nearest to it.

    Attributes:
        precision: digits, 1 to 38.
        scale: digits behind the point, 0 to ``precision``.

    Example:
        >>> import evflow as ev
        >>> from decimal import Decimal
        >>> item = ev.Schema("item", {"price": ev.Decimal[10, 2]})
        >>> ev.EventBatch.from_events([item(price=Decimal("19.9"))])[0].price
        Decimal('19.90')
    """

    precision: int = _NARROW
    scale: int = 0

    def __class_getitem__(cls, parameters: Any) -> Decimal | WideDecimal:
        match parameters:
            case (precision, scale):
                pass
            case precision:
                scale = 0
        for what, n, least, most in (("precision", precision, 1, _WIDE), ("scale", scale, 0, precision)):
            if type(n) is not int or not least <= n <= most:
                raise SchemaError(
                    f"Decimal[{precision!r}, {scale!r}]: expected a {what} of {least} to {most} digits"
                )
        if precision > _NARROW:
            return WideDecimal(16, precision, scale)
        return Decimal("i64", "i", 8, i64.marker, i64.code, precision, scale)

    @property
    def stored(self) -> Number:
        return i64

    @property
    def bounds(self) -> tuple[int, int]:
        """The numbers of so many digits."""
        return 1 - 10**self.precision, 10**self.precision - 1

    def store(self, value: Any) -> int:
        """The number ``value`` without its point.

        Raises:
            Misfit: ``value`` is not a decimal number, or has too many digits.
        """
        return _unscaled(self, value)

    def load(self, stored: int) -> decimal.Decimal:
        """The number that is kept as ``stored``, with its point."""
        return _scaled(stored, self.scale)

    def from_arrow(self, array: Any) -> Any:
        """What the numbers of ``array`` are kept as: decimals or integers that need no more digits.

        Raises:
            TypeError: ``array`` holds something else.
            pyarrow.ArrowInvalid: a number needs more digits.
        """
        import pyarrow as pa

        words = np.frombuffer(_decimals(self, array), np.int64)
        return pa.array(words[::2], mask=array.is_null().to_numpy(zero_copy_only=False))

    def to_arrow(self, array: Any) -> Any:
        """The decimals, of 128 bits, that are kept as the elements of ``array``."""
        import pyarrow as pa

        words = np.empty((len(array), 2), np.int64)
        words[:, 0] = array.fill_null(0)
        words[:, 1] = words[:, 0] >> 63
        return _of_words(self, pa.py_buffer(words), array)

    @classmethod
    def parse(cls, text: str) -> Any:
        """The type of a ``text`` such as ``decimal(12,2)``; None if ``text`` has another form.

        Raises:
            SchemaError: there is no decimal of so many digits.
        """
        found = _TEXT.fullmatch(text)
        return None if found is None else cls.__class_getitem__((int(found[1]), int(found[2])))


@dataclass(frozen=True, repr=False, slots=True)
class WideDecimal(_Exact, Bytes):
    """A ``Decimal`` of more than 18 digits."""

    precision: int = _WIDE
    scale: int = 0

    def __class_getitem__(cls, parameters: Any) -> Any:
        return Decimal.__class_getitem__(parameters)

    @property
    def stored(self) -> Bytes:
        return Bytes(16)

    def store(self, value: Any) -> bytes:
        """The number ``value`` without its point, little-endian.

        Raises:
            Misfit: ``value`` is not a decimal number, or has too many digits.
        """
        return _unscaled(self, value).to_bytes(16, "little", signed=True)

    def load(self, stored: bytes) -> decimal.Decimal:
        """The number that is kept as ``stored``, with its point."""
        return _scaled(int.from_bytes(stored, "little", signed=True), self.scale)

    def from_arrow(self, array: Any) -> Any:
        """What the numbers of ``array`` are kept as: decimals or integers that need no more digits.

        Raises:
            TypeError: ``array`` holds something else.
            pyarrow.ArrowInvalid: a number needs more digits.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        made = pa.Array.from_buffers(pa.binary(16), len(array), [None, pa.py_buffer(_decimals(self, array))])
        return pc.if_else(array.is_valid(), made, pa.scalar(None, made.type))

    def to_arrow(self, array: Any) -> Any:
        """The decimals, of 128 bits, that are kept as the elements of ``array``."""
        import pyarrow as pa

        fixed = array.cast(pa.binary(16)).fill_null(bytes(16))
        return _of_words(self, fixed.buffers()[1].slice(16 * fixed.offset), array)


def _unscaled(kind: _Exact, value: Any) -> int:
    """A number times ten to the scale.

    Raises:
        Misfit: it is not a decimal number, or has too many digits.
    """
    number: Any = value
    if isinstance(value, str):
        number = decimal.Decimal(value) if _DIGITS.fullmatch(value) else None
    elif isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
        number = decimal.Decimal(int(value)) if abs(int(value)) < 10**_LONGEST else None
    if not isinstance(number, decimal.Decimal) or not number.is_finite():
        hint = "; a float does not have the digits: give the text" if isinstance(value, float) else ""
        raise Misfit(f"a decimal.Decimal, an int or a text of digits ({kind.text}){hint}", value)
    return _without_point(kind, number, value)


def _without_point(kind: _Exact, given: decimal.Decimal, value: Any) -> int:
    sign, digits, exponent = given.as_tuple()
    assert isinstance(exponent, int)
    places = exponent + kind.scale
    # What is huge is not written out before it is refused.
    if len(digits) > _LONGEST or (any(digits) and places > kind.precision):
        raise Misfit(f"a number of at most {kind.precision} digits ({kind.text})", value)
    number = int("".join(map(str, digits)))
    if places < 0:
        number, rest = divmod(number, 10 ** min(-places, len(digits) + 1))
        if rest:
            raise Misfit(f"at most {kind.scale} digits behind the point ({kind.text})", value)
    elif number:
        number *= 10**places
    if number >= 10**kind.precision:
        raise Misfit(f"at most {kind.precision - kind.scale} digits before the point ({kind.text})", value)
    return -number if sign else number


def _scaled(number: int, scale: int) -> decimal.Decimal:
    # Neither arithmetic nor ``scaleb``: these round to the digits of the context.
    digits = tuple(map(int, str(abs(number))))
    return decimal.Decimal((int(number < 0), digits, -scale))


def _decimals(kind: _Exact, array: Any) -> bytes:
    """The 128-bit integers that are the decimals of an array without their points, 0 where there is none."""
    import pyarrow as pa

    if pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(20, 0))
    if not pa.types.is_decimal(array.type):
        raise TypeError
    made = array.cast(kind.arrow_type()).fill_null(decimal.Decimal(0))
    return bytes(made.buffers()[1])[16 * made.offset : 16 * (made.offset + len(made))]


def _of_words(kind: _Exact, words: Any, like: Any) -> Any:
    """128-bit integers as decimals, with the nulls of another array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    made = pa.Array.from_buffers(kind.arrow_type(), len(like), [None, words])
    return pc.if_else(like.is_valid(), made, pa.scalar(None, made.type))
