"""The types that a field of a schema can have, and how each stands on the wire.

Every type is written in the one msgpack form given here, never a shorter one, so that a type of
fixed width has the same number of bytes in every event (``docs/wire-format.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from evflow.errors import SchemaError
from evflow.schema.misfit import stored_each

if TYPE_CHECKING:
    from evflow.schema.schema import Schema

MAX_CAPACITY = 65_533
"""The greatest capacity in bytes of ``Str[n]`` and ``Bytes[n]``."""

MAX_DIMENSIONS = 8
"""The greatest number of dimensions of an array."""

MAX_WIDTH = (1 << 31) - 1
"""The greatest number of bytes of the fixed part of an event."""

MAX_DEPTH = 500
"""How many records of one event may stand in each other, the event itself being the first."""

_MAX_DIMENSION = (1 << 32) - 1


class FieldType:
    """A type of a field.

    Attributes:
        text: the canonical spelling, as it stands in a schema's description.
        width: bytes on the wire, markers included; None where it varies from event to event.
    """

    __slots__ = ()

    @property
    def text(self) -> str:
        raise NotImplementedError

    @property
    def width(self) -> int | None:
        return None

    @property
    def held(self) -> FieldType:
        """The type itself; of an optional, the type of the value that it may hold."""
        return self

    def __repr__(self) -> str:
        return self.text

    def __or__(self, other: None) -> Maybe:
        """``Str[8] | None``: optional."""
        return Maybe(self) if other is None and not isinstance(self, Maybe) else NotImplemented

    __ror__ = __or__


@dataclass(frozen=True, repr=False, slots=True)
class Number(FieldType):
    """An integer, a float or a boolean of fixed width.

    Attributes:
        name: ``i8`` … ``u64``, ``f32``, ``f64``, ``bool``.
        kind: ``i`` signed, ``u`` unsigned, ``f`` float, ``b`` boolean.
        size: bytes of the value, without its marker; 0 for ``bool``, whose marker is the value.
        marker: the msgpack marker byte; for ``bool`` the marker of False.
        code: the msgpack ext type of an array of such elements.
    """

    name: str
    kind: str
    size: int
    marker: int
    code: int

    @property
    def text(self) -> str:
        return self.name

    @property
    def width(self) -> int:
        return 1 + self.size

    @property
    def letter(self) -> str:
        """The letter of the value in a format of ``struct``."""
        return _LETTERS[self.name]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of the value in native byte order."""
        return np.dtype("?" if self.kind == "b" else f"{self.kind}{self.size}")

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest integer of an integer type."""
        if self.kind == "u":
            return 0, (1 << 8 * self.size) - 1
        return -(1 << (8 * self.size - 1)), (1 << (8 * self.size - 1)) - 1

    @property
    def narrowed(self) -> bool:
        """True if not every integer of so many bytes is a value."""
        return False


_LETTERS = dict(
    zip(
        ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "bool"),
        "bhiqBHIQfd?",
        strict=True,
    )
)

i8 = Number("i8", "i", 1, 0xD0, 1)
i16 = Number("i16", "i", 2, 0xD1, 2)
i32 = Number("i32", "i", 4, 0xD2, 3)
i64 = Number("i64", "i", 8, 0xD3, 4)
u8 = Number("u8", "u", 1, 0xCC, 5)
u16 = Number("u16", "u", 2, 0xCD, 6)
u32 = Number("u32", "u", 4, 0xCE, 7)
u64 = Number("u64", "u", 8, 0xCF, 8)
f32 = Number("f32", "f", 4, 0xCA, 9)
f64 = Number("f64", "f", 8, 0xCB, 10)
boolean = Number("bool", "b", 0, 0xC2, 11)

NUMBERS: dict[str, Number] = {t.name: t for t in (i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, boolean)}
"""The number types by name."""


def _check_capacity(kind: str, n: object) -> None:
    if type(n) is not int or not 1 <= n <= MAX_CAPACITY:
        raise SchemaError(f"{kind}[{n!r}]: expected a capacity of 1 to {MAX_CAPACITY} bytes")


def _head(size: int) -> int:
    return 2 if size <= 0xFF else 3


@dataclass(frozen=True, repr=False, slots=True)
class Str(FieldType):
    """Text of at most ``capacity`` bytes of UTF-8, at a constant offset: ``Str[8]``.

    On the wire a msgpack string of exactly ``capacity`` bytes, padded with NUL; a text that ends
    with NUL cannot be told from its padding and is refused.

    Example:
        >>> import evflow as ev
        >>> ev.Schema("reading", {"station": ev.Str[12]}).width
        15
    """

    capacity: int

    def __post_init__(self) -> None:
        _check_capacity("Str", self.capacity)

    def __class_getitem__(cls, n: int) -> Str:
        return cls(n)

    @property
    def text(self) -> str:
        return f"str[{self.capacity}]"

    @property
    def head(self) -> int:
        """Bytes before the text: marker and length."""
        return _head(self.capacity)

    @property
    def width(self) -> int:
        return self.head + self.capacity


@dataclass(frozen=True, repr=False, slots=True)
class Bytes(FieldType):
    """At most ``capacity`` bytes, at a constant offset: ``Bytes[16]``.

    On the wire a msgpack binary of ``capacity + 2`` bytes: the length as a little-endian 16-bit
    integer, the value, and zeros up to the capacity, so that a value may end with zeros.

    Example:
        >>> import evflow as ev
        >>> digest = ev.Schema("digest", {"value": ev.Bytes[4]})
        >>> ev.EventBatch.from_events([digest(value=b"ab\\0")])[0].value
        b'ab\\x00'
    """

    capacity: int

    def __post_init__(self) -> None:
        _check_capacity("Bytes", self.capacity)

    def __class_getitem__(cls, n: int) -> Bytes:
        return cls(n)

    @property
    def text(self) -> str:
        return f"bytes[{self.capacity}]"

    @property
    def head(self) -> int:
        """Bytes before the two length bytes: marker and msgpack length."""
        return _head(self.capacity + 2)

    @property
    def width(self) -> int:
        return self.head + 2 + self.capacity


@dataclass(frozen=True, repr=False, slots=True)
class Text(FieldType):
    """Text of any length (``str``): msgpack str 32, UTF-8."""

    @property
    def text(self) -> str:
        return "str"


@dataclass(frozen=True, repr=False, slots=True)
class Blob(FieldType):
    """Bytes of any length (``bytes``): msgpack bin 32."""

    @property
    def text(self) -> str:
        return "bytes"


TEXT = Text()
BLOB = Blob()


@dataclass(frozen=True, repr=False, slots=True)
class Array(FieldType):
    """A numeric array: ``Array[f64, 253, 37]``; a dimension of None varies: ``Array[f32, None, 3]``.

    On the wire msgpack ext 32 with the element's code as type; the data is one byte with the number
    of dimensions, each dimension as a little-endian 32-bit integer, then the elements, little-endian,
    in C order. It is static, at a constant offset, when no dimension is None.

    Attributes:
        element: the type of the elements.
        shape: the dimensions, 1 to 8; None for one that varies.

    Example:
        >>> import evflow as ev
        >>> wind = ev.Schema("wind", {"speed": ev.Array[ev.f32, 2, 3], "track": ev.Array[ev.f64, None, 2]})
        >>> event = ev.EventBatch.from_events([wind(speed=[[1, 2, 3], [4, 5, 6]], track=[[0, 1]])])[0]
        >>> event.speed.shape, event.track.shape
        ((2, 3), (1, 2))
    """

    element: Number
    shape: tuple[int | None, ...]

    HEAD: ClassVar[int] = 6
    """Bytes of the ext 32 header: marker, length, type."""

    def __class_getitem__(cls, parameters: Any) -> Array:
        element, *shape = parameters if isinstance(parameters, tuple) else (parameters, None)
        for python_type, number in ((int, i64), (float, f64), (bool, boolean)):
            element = number if element is python_type else element
        return cls(element, tuple(shape))

    def __post_init__(self) -> None:
        if type(self.element) is not Number:
            raise SchemaError(
                f"Array[{self.element!r}, …]: expected a number type as element, such as ev.f64; "
                "of other types there are lists"
            )
        for n in self.shape:
            if n is not None and (type(n) is not int or not 0 <= n <= _MAX_DIMENSION):
                raise SchemaError(f"Array: dimension {n!r}: expected a 32-bit integer, or None if it varies")
        if not 1 <= len(self.shape) <= MAX_DIMENSIONS:
            raise SchemaError(f"Array: {len(self.shape)} dimensions: expected 1 to {MAX_DIMENSIONS}")
        if self.width is not None and self.width > MAX_WIDTH:
            raise SchemaError(f"{self.text}: {self.width} bytes: expected at most {MAX_WIDTH}")

    @property
    def text(self) -> str:
        dimensions = ",".join("?" if n is None else str(n) for n in self.shape)
        return f"array({self.element.text},{dimensions})"

    @property
    def item_size(self) -> int:
        """Bytes of one element."""
        return max(self.element.size, 1)

    @property
    def data_offset(self) -> int:
        """Bytes from the ext marker to the first element."""
        return self.HEAD + 1 + 4 * len(self.shape)

    def takes(self, shape: tuple[int, ...]) -> bool:
        """True if an array of the shape ``shape`` is one of these."""
        wanted, n = self.shape, len(shape)
        return wanted in (shape, (None,) * n) or (
            len(wanted) == n and all(n in (None, m) for n, m in zip(wanted, shape, strict=True))
        )

    @property
    def static(self) -> bool:
        """Whether every dimension is known."""
        return None not in self.shape

    @property
    def width(self) -> int | None:
        size = self.item_size
        for n in self.shape:
            if n is None:
                return None
            size *= n
        return self.data_offset + size


@dataclass(frozen=True, repr=False, slots=True)
class ListOf(FieldType):
    """A list of any other type (``list[Sub]``): msgpack array 32."""

    element: FieldType

    @property
    def text(self) -> str:
        return f"list({self.element.text})"


@dataclass(frozen=True, repr=False, slots=True)
class Maybe(FieldType):
    """A value or None (``Sub | None``): the value, or msgpack nil."""

    element: FieldType

    @property
    def text(self) -> str:
        return f"optional({self.element.text})"

    @property
    def held(self) -> FieldType:
        return self.element


class Logical(FieldType):
    """What a field type adds whose values are Python objects of their own, kept as a number or as bytes.

    A logical type derives from this class and from ``Number`` or ``Bytes``. On the wire, in machine code and
    in functions it is what it is kept as; where Python, numpy, pandas, Arrow or Spark see values, these
    methods convert them.

    Attributes:
        plain: True if a stored number is also accepted as a value.
        numeric: True if constraints of a matcher see a number, and not a text.
        computable: True if functions may use a value as what it is kept as.
        word: the canonical text of a type without parameters.
        classes: the Python classes that values are of, where no other type has these.
        spelling: how the type is written in an annotation.
    """

    __slots__ = ()

    word: ClassVar[str] = ""
    classes: ClassVar[tuple[type, ...]] = ()
    spelling: ClassVar[str] = ""
    plain: ClassVar[bool] = False
    numeric: ClassVar[bool] = False
    computable: ClassVar[bool] = True

    @property
    def text(self) -> str:
        return self.word

    @property
    def narrowed(self) -> bool:
        """True if not everything that the stored type holds is a value; then ``bounds`` says what of numbers
        is, and bytes have the whole capacity."""
        return True

    def takes(self, other: FieldType) -> bool:
        """True if every value of the type ``other`` is a value of this one, kept as the same."""
        return self == other

    def is_missing(self, value: Any) -> bool:
        """True if ``value`` stands for no value: None, NaT, and what pandas calls NA."""
        return value is None or type(value).__name__ in ("NaTType", "NAType")

    @property
    def stored(self) -> Number | Bytes:
        """The type that values are kept as."""
        raise NotImplementedError

    def store(self, value: Any) -> Any:
        """The number or the bytes that ``value`` is kept as.

        Raises:
            Misfit: ``value`` does not fit.
        """
        raise NotImplementedError

    def load(self, stored: Any) -> Any:
        """The value that is kept as ``stored``, a number or bytes.

        Raises:
            SchemaError: no value is kept as ``stored``.
        """
        raise NotImplementedError

    def constrained(self, value: Any) -> Any:
        """The number or text that constraints of a matcher see of ``value``, which is not missing: its
        text."""
        return str(self.load(self.store(value)))

    def constrained_column(self, stored: np.ndarray[Any, np.dtype[Any]]) -> tuple[Any, Any]:
        """A column of a ``plain`` type as constraints of a matcher see it.

        Args:
            stored: the numbers that the column is kept as, in native byte order.

        Returns:
            The numbers that constraints see, and a mask (bool) of those that are there; both as long as
            ``stored``.
        """
        raise NotImplementedError

    def store_column(self, values: Any) -> Any:
        """What a column is kept as: an array of numbers, or a list.

        Args:
            values: a numpy array or a list of values.

        Raises:
            Misfit: a value does not fit; carries its row.
        """
        if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
            values = list(values)  # since Python's numbers for some times are not what they stand for
        stored = stored_each(self.store, values)
        return np.array(stored, self.dtype) if isinstance(self, Number) else stored

    def load_column(self, stored: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
        """The values of a column: an array of objects, unless numpy has a type for the values.

        Args:
            stored: the numbers or bytes that the column is kept as.
        """
        column = np.empty(len(stored), object)
        for row, value in enumerate(stored.tolist()):
            column[row] = self.load(value)
        return column

    def arrow_type(self) -> Any:
        """The type of pyarrow that holds the values."""
        raise NotImplementedError

    def from_arrow(self, array: Any) -> Any:
        """An array of pyarrow as one of what the values are kept as.

        Args:
            array: the array, of ``arrow_type()`` or another type that the values can be read from; nulls
                stay.

        Raises:
            TypeError: no value of an array of this type fits.
            Misfit, pyarrow.ArrowInvalid: a value does not fit.
        """
        raise NotImplementedError

    def to_arrow(self, array: Any) -> Any:
        """An array of pyarrow of the values.

        Args:
            array: an array of what the values are kept as; nulls stay.

        Returns:
            An array of ``arrow_type()``, as long as ``array``.

        Raises:
            pyarrow.ArrowInvalid: nothing is kept as one of the elements.
        """
        return array.cast(self.arrow_type())

    def spark_type(self) -> Any:
        """The type of PySpark that holds the values."""
        raise NotImplementedError

    def to_pandas(self, column: np.ndarray[Any, np.dtype[Any]]) -> Any:
        """A column as pandas has it.

        Args:
            column: the values, as ``load_column`` gives them.
        """
        return column

    @classmethod
    def as_json(cls, value: Any) -> Any:
        """The ``value``, of one of the ``classes``, as JSON can have it: its text."""
        return str(value)

    @classmethod
    def as_arrow(cls, value: Any) -> Any:
        """The ``value``, of one of the ``classes``, as pyarrow takes it."""
        return value

    @classmethod
    def seen_alone(cls, value: Any) -> Any:
        """What a matcher sees of a ``value`` of one of the ``classes`` that is in no typed event."""
        return str(value)

    @classmethod
    def parse(cls, text: str) -> Any:
        """The type whose canonical text is ``text``; None if it is not one of this kind.

        Raises:
            SchemaError: ``text`` has the form of one, but what it says cannot be.
        """
        return None


class Record(FieldType):
    """A nested record: the msgpack array of its own schema's fields.

    A record may hold itself, through a list or an optional field; it is therefore looked up by name
    when it is used.

    Args:
        name: the record's name.
        scope: records by name; this one stands there at the latest when all of them are defined.
    """

    __slots__ = ("name", "scope")

    def __init__(self, name: str, scope: dict[str, Schema]) -> None:
        self.name = name
        self.scope = scope

    @property
    def schema(self) -> Schema:
        """The record's own schema."""
        return self.scope[self.name]

    @property
    def text(self) -> str:
        return f"record({self.name})"

    @property
    def width(self) -> int | None:
        # A record that is still being defined holds itself and so cannot have a fixed width.
        schema = self.scope.get(self.name)
        return None if schema is None else schema.width

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.schema.fingerprint == other.schema.fingerprint

    def __hash__(self) -> int:
        return hash(("record", self.name))
