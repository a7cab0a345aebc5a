"""Arrays of numbers as arrays of a field's number type: exactly, or not at all.

The rule is that of ``evflow.schema.values``, for whole arrays and columns; here, where a column of integers
often comes as floats, integral floats are taken for integers, and 0 and 1 for booleans.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evflow.schema.types import Number
from evflow.schema.values import Misfit, expected, relaxed, to_number

AnyArray = np.ndarray[Any, np.dtype[Any]]


def truth(values: AnyArray) -> AnyArray:
    """Booleans of numpy as 0 and 1 in memory, the same array if they are so; those of a buffer from elsewhere
    may be any byte."""
    held = values.view(np.uint8)
    return values if int(held.max(initial=0)) <= 1 else np.not_equal(held, 0)


def convert_array(number: Number, values: AnyArray) -> AnyArray:
    """The array as ``number``'s dtype in native byte order, a boolean as 0 or 1; the same array if it
    is so already.

    Raises:
        Misfit: a value does not fit; carries its flat index.
    """
    if values.dtype.kind == "b":
        values = truth(values)
    if values.dtype == number.dtype:
        return values
    converted, fits = fitting(number, values)
    if not fits.all():
        at = int(np.argmin(fits))
        value = values.reshape(-1)[at]
        raise Misfit(_expected(number), value.item() if isinstance(value, np.generic) else value, at)
    return converted


def array_of(values: Any) -> AnyArray:
    """The array that a (nested) sequence means, no digit of an integer lost.

    Raises:
        Misfit: the sequence has no one shape.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        raise Misfit("an array of one shape", values) from None
    if array.dtype.kind == "f" and (np.abs(array) >= 2.0**53).any():
        # numpy makes floats of a list of integers that no integer type holds together.
        return np.asarray(values, object)
    return array


def fitting(number: Number, values: AnyArray) -> tuple[AnyArray, AnyArray]:
    """The array as ``number``'s dtype, and where (booleans) that holds the values given; elsewhere it is
    arbitrary.

    Raises:
        Misfit: the array is not one of numbers.
    """
    target = number.dtype
    if values.dtype.kind == "O":
        return _convert_objects(number, values)
    if values.dtype.kind not in "biuf":
        raise Misfit(f"numbers ({number.name})", values.dtype)
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    if values.dtype == target or always_fits(values.dtype, target):
        return values.astype(target, copy=False), np.broadcast_to(np.True_, values.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        converted = values.astype(target)
        return converted, _fits(number, values, converted)


def _expected(number: Number) -> str:
    if number.kind == "b":
        return "True, False, 1 or 0 (bool)"
    return f"a number that {number.name} holds" if number.kind == "f" else expected(number)


def always_fits(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether every value of one type of numbers is one of another."""
    # numpy calls int64 to float64 safe, although it rounds.
    rounds = source.kind in "iu" and target.kind == "f" and source.itemsize >= target.itemsize
    return not rounds and np.can_cast(source, target, "safe")


def _fits(number: Number, values: AnyArray, converted: AnyArray) -> AnyArray:
    fits: AnyArray
    if number.kind == "b":
        fits = (values == 0) | (values == 1)
    elif number.kind == "f" and values.dtype.kind == "f":
        fits = np.isfinite(converted) | ~np.isfinite(values)
    elif number.kind == "f":
        # A float that rounded up to 2^63 or 2^64 would wrap on its way back to an integer.
        inside = converted < float(int(np.iinfo(values.dtype).max) + 1)
        fits = inside & (np.where(inside, converted, 0).astype(values.dtype) == values)
    elif values.dtype.kind == "f":
        low, high = number.bounds
        # The bound above is a power of two, and so exact in any float; the greatest integer may not be.
        fits = (values >= float(low)) & (values < float(high + 1)) & (values == np.trunc(values))
    else:
        low, high = number.bounds
        held = np.iinfo(values.dtype)
        fits = (values >= max(low, int(held.min))) & (values <= min(high, int(held.max)))
    return fits


def _convert_objects(number: Number, values: AnyArray) -> tuple[AnyArray, AnyArray]:
    converted = np.zeros(values.size, number.dtype)
    fits = np.ones(values.size, np.bool_)
    for at, value in enumerate(values.reshape(-1).tolist()):
        try:
            converted[at] = to_number(number, relaxed(number, value))
        except Misfit:
            fits[at] = False
    return converted.reshape(values.shape), fits.reshape(values.shape)
