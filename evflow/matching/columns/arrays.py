"""Arrays that users give for columns of filters, in one form; what the numbers mean is not looked at."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching.areas.columns import AreaColumns
from evflow.matching.literals import shown
from evflow.matching.operators import OPERATORS, Op

KINDS: dict[str, type[np.generic]] = {
    "start": np.int64,
    "name": np.int32,
    "op": np.uint8,
    "number": np.float64,
    "text": np.int32,
    "subscription": np.int64,
    "x": np.float64,
    "y": np.float64,
    "radius": np.float64,
    "area": np.int64,
    "ids": np.int64,
}
"""The type of each column."""

_Array = NDArray[Any]


def column(given: Any, kind: type[np.generic], what: str) -> _Array:
    """An array of one dimension and this type, not copied if it is one.

    Raises:
        SubscriptionError: it has more dimensions, or holds something else than numbers that the type holds
            exactly.

    Example:
        >>> column([1, 2], np.int32, "name")
        array([1, 2], dtype=int32)
        >>> column([1.5], np.int32, "name")
        Traceback (most recent call last):
        evflow.errors.SubscriptionError: name: expected an array of integers (int32) but found float64
    """
    array = _array(given, what)
    if array.ndim != 1:
        raise SubscriptionError(f"{what}: expected an array of one dimension but found shape {array.shape}")
    return _cast(array, np.dtype(kind), what)


def words(given: Any, what: str) -> Sequence[str]:
    """A list or tuple of strings; not each of them is looked at.

    Raises:
        SubscriptionError: it is something else.

    Example:
        >>> words(np.array(["temp", "wind"]), "names")
        ['temp', 'wind']
    """
    if isinstance(given, (list, tuple)):
        return given
    if isinstance(given, np.ndarray) and given.ndim == 1:
        return list(given.tolist())
    raise SubscriptionError(f"{what}: expected a list of strings but found {shown(given)}")


def whole(given: Any, what: str) -> int:
    """An integer of Python or numpy.

    Raises:
        SubscriptionError: it is something else.

    Example:
        >>> whole(np.int32(3), "count")
        3
    """
    try:
        return index(given)
    except TypeError:
        raise SubscriptionError(f"{what}: expected an integer but found {shown(given)}") from None


def _array(given: Any, what: str) -> _Array:
    try:
        return np.asarray(given)
    except (ValueError, TypeError, OverflowError) as error:
        raise SubscriptionError(f"{what}: expected an array but found {shown(given)}: {error}") from None


def _cast(array: _Array, kind: np.dtype[Any], what: str) -> _Array:
    if array.dtype == kind:
        return array
    if not array.size and array.dtype.kind in "biufO":
        return np.zeros(array.shape, kind)
    wanted, name = ("iu", "integers") if kind.kind in "iu" else ("biuf", "numbers")
    if array.dtype.kind not in wanted or array.dtype.itemsize > 8:
        raise SubscriptionError(f"{what}: expected an array of {name} ({kind}) but found {array.dtype}")
    if np.can_cast(array.dtype, kind, "safe") and array.dtype.itemsize < 8:
        return array.astype(kind)
    return _exact(array, kind, what)


def _exact(array: _Array, kind: np.dtype[Any], what: str) -> _Array:
    """The integers of an array in a type that may be too small for them."""
    if kind.kind == "f":
        made = array.astype(kind)
        # From 2**63 on float64 has more than int64, and casting it back is not defined.
        least, most = np.iinfo(array.dtype).min, float(np.iinfo(array.dtype).max)
        wrong = made >= most
        wrong |= np.where(wrong, least, made).astype(array.dtype) != array
    else:
        limits = np.iinfo(kind)
        wrong = (array < limits.min) | (array > limits.max)
        made = array.astype(kind)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = ", ".join(map(str, at))
        raise SubscriptionError(f"{what}[{place}]: {array[at]} does not fit {kind} exactly")
    return made


def intake(
    constraints: dict[str, Any],
    filters: dict[str, Any],
    start: Any,
    names: Sequence[str] | None,
    texts: Sequence[str] | None,
) -> dict[str, Any]:
    """The arguments of ``FilterColumns`` made of what ``from_arrays`` takes.

    Args:
        constraints: what there is of each constraint: name, op, number, text.
        filters: what there is of each filter: x, y, radius, subscription, area; and areas.
    """
    made, dictionaries = _constraints(constraints, names, texts)
    shape = _common_shape(made, start)
    if start is None:
        width = 1 if len(shape) < 2 else int(np.prod(shape[1:], dtype=np.int64))
        start = np.arange(shape[0] + 1, dtype=np.int64) * width
    columns = {field: np.broadcast_to(held, shape).reshape(-1) for field, held in made.items()}
    return {**columns, **dictionaries, "start": start, **_filters(filters, start)}


def _constraints(
    given: dict[str, Any], names: Sequence[str] | None, texts: Sequence[str] | None
) -> tuple[dict[str, _Array], dict[str, Any]]:
    name, names = _coded(given["name"], names, "name")
    text, texts = _coded(-1 if given["text"] is None else given["text"], texts, "text")
    number = np.float64(np.nan) if given["number"] is None else given["number"]
    made = {
        "name": name,
        "op": _cast(_operators(given["op"]), np.dtype(np.uint8), "op"),
        "number": _cast(_array(number, "number"), np.dtype(np.float64), "number"),
        "text": text,
    }
    return made, {"names": names, "texts": texts}


def _coded(given: Any, dictionary: Sequence[str] | None, what: str) -> tuple[_Array, Sequence[str]]:
    """Indices and what they are indices of."""
    array = _array(given, what)
    if array.dtype.kind == "U" and isinstance(given, (list, tuple)):
        # numpy would make texts of numbers that stand beside texts, and cut off NULs.
        array = np.array(given, object)
    if array.dtype.kind not in "UTO":
        if dictionary is None and what == "name":
            raise SubscriptionError(f"names is missing: name holds {array.dtype}, no strings")
        return _cast(array, np.dtype(np.int32), what), () if dictionary is None else dictionary
    if dictionary is not None:
        raise SubscriptionError(f"{what} holds strings, so {what}s must be left out")
    return _numbered(array, what)


def _numbered(array: _Array, what: str) -> tuple[_Array, list[str]]:
    flat = array.reshape(-1)
    missing = np.zeros(len(flat), bool)
    if array.dtype.kind == "O":
        missing = np.fromiter((text is None for text in flat), bool, len(flat))
        kinds = set(map(type, flat[~missing].tolist()))
        if not all(issubclass(kind, str) for kind in kinds):
            raise SubscriptionError(f"{what}: expected strings but found {sorted(k.__name__ for k in kinds)}")
        if what == "name" and missing.any():
            raise SubscriptionError(f"name[{int(missing.argmax())}]: expected a string but found None")
    found, inverse = np.unique(flat[~missing], return_inverse=True)
    codes = np.full(len(flat), -1, np.int32)
    codes[~missing] = inverse
    return codes.reshape(array.shape), [str(text) for text in found.tolist()]


def _operators(given: Any) -> _Array:
    """Operators as numbers."""
    if isinstance(given, (str, Op)):
        return np.array(Op.of(given), np.uint8)
    array = _array(given, "op")
    if array.dtype.kind not in "UTO":
        return array
    if isinstance(given, (list, tuple)) or array.dtype.kind == "O":
        # numpy would make texts of operators that stand beside texts.
        return np.asarray(np.frompyfunc(Op.of, 1, 1)(np.array(given, object))).astype(np.uint8)
    codes = np.full(array.shape, 255, np.uint8)
    for symbol, op in OPERATORS.items():
        codes[np.equal(array, symbol)] = op
    unknown = array[codes == 255]
    if unknown.size:
        Op.of(unknown.tolist()[0])
    return codes


def _common_shape(made: dict[str, _Array], start: Any) -> tuple[int, ...]:
    shapes = {field: held.shape for field, held in made.items()}
    try:
        shape = np.broadcast_shapes(*shapes.values())
    except ValueError:
        raise SubscriptionError(f"the shapes of the columns do not go together: {shapes}") from None
    if start is not None and len(shape) > 1:
        raise SubscriptionError(f"either start or arrays of more dimensions, not both: {shapes}")
    return shape or (1,)


def _filters(given: dict[str, Any], start: Any) -> dict[str, Any]:
    count = len(_array(start, "start")) - 1
    made: dict[str, Any] = {}
    for field in ("x", "y", "radius"):
        held = given[field]
        if held is not None:
            array = _array(held, field)
            made[field] = np.broadcast_to(array, (count,)) if array.ndim == 0 else array
    if given["areas"] is not None or given["area"] is not None:
        areas, area = given["areas"], given["area"]
        if not isinstance(areas, AreaColumns):
            raise SubscriptionError(f"areas: expected AreaColumns but found {shown(areas)}")
        made["areas"] = areas
        held = np.arange(count) if area is None else _array(area, "area")
        made["area"] = np.broadcast_to(held, (count,)) if held.ndim == 0 else held
    if given["subscription"] is not None:
        of = column(given["subscription"], np.int64, "subscription")
        made["ids"], made["subscription"] = np.unique(of, return_inverse=True)
        made["count"] = len(made["ids"])
    return made
