"""What an application declares: variables, the blocks of them that a writer has, and whether blocks make a
whole.

A variable is a global array, of which each writer has one block a step. The first dimension may be open
(None): then blocks have any number of rows, and where they begin is settled downstream
(``evflow.staging.offsets``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from evflow.errors import StagingError
from evflow.outside import shown

__all__ = ["Block", "Variable"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_TAKEN = ("step", "time")
_TAKEN_ATTRIBUTES = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS")
_DTYPES = {
    f"{kind}{width}" for kind, widths in {"i": "1248", "u": "1248", "f": "48"}.items() for width in widths
}
MOST_DIMENSIONS = 8
MOST_VARIABLES = 256
MOST_WRITERS = 65_536

Shape = tuple[int, ...]


def check_name(what: str, name: object) -> str:
    """A name that may be part of a file's name and of a variable in a file.

    Raises:
        StagingError: it is not; ``what`` says whose name it is.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise StagingError(
            f"{what} {shown(name, 80)}: expected 1 to 64 letters, digits and _, beginning with a letter"
        )
    return name


def _plain(what: str, name: str, value: Any) -> str | int | float:
    """The value of an attribute, as Python has it."""
    if name in _TAKEN_ATTRIBUTES:
        raise StagingError(f"{what}: attribute {name}: HDF5 has {name} of its own; choose another name")
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str) and "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63:
        return int(value)
    raise StagingError(
        f"{what}: attribute {name}: expected a text or a number, without NUL and of 64 bits at most, "
        f"found {shown(value)}"
    )


class Variable(msgspec.Struct, frozen=True, array_like=True):
    """A named array of the application, of which each writer has a block.

    Args:
        name: letters, digits and ``_``; not ``step`` or ``time``, which a store has of its own.
        dtype: "f4", "f8", "i1" … "i8" or "u1" … "u8": the element type, little-endian.
        shape: the global shape. Its first entry may be None: then blocks are put one behind another in the
            order of ranks, whatever their numbers of rows are.
        dimensions: a name for each dimension; by default ``NAME_0``, ``NAME_1`` and so on.
        attributes: texts and numbers that are stored with the variable.

    Raises:
        StagingError: a name, dtype, shape or attribute is wrong.

    Example:
        >>> from evflow import staging
        >>> staging.Variable("heat", "f8", (512, 512), ("y", "x"), {"units": "K"}).block((256, 512)).nbytes
        1048576
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    dimensions: tuple[str, ...] = ()
    attributes: dict[str, str | int | float] = {}

    def __post_init__(self) -> None:
        what = f"variable {check_name('variable', self.name)}"
        if self.name in _TAKEN:
            raise StagingError(f"{what}: a store has {self.name} of its own; give the variable another name")
        if self.dtype not in _DTYPES:
            raise StagingError(
                f"{what}: dtype {shown(self.dtype)}: expected one of {', '.join(sorted(_DTYPES))}"
            )
        if not isinstance(self.shape, tuple) or not 1 <= len(self.shape) <= MOST_DIMENSIONS:
            raise StagingError(
                f"{what}: shape {shown(self.shape)}: expected a tuple of 1 to {MOST_DIMENSIONS} sizes"
            )
        for place, size in enumerate(self.shape):
            if not (isinstance(size, int) and 1 <= size < 1 << 40) and (place or size is not None):
                raise StagingError(
                    f"{what}: shape {shown(self.shape)}: expected sizes of 1 or more; the first may be None"
                )
        names = self.dimensions or tuple(f"{self.name}_{place}" for place in range(len(self.shape)))
        if (
            len(names) != len(self.shape)
            or len(set(names)) != len(names)
            or set(names) & {*_TAKEN, self.name}
        ):
            raise StagingError(
                f"{what}: dimensions {shown(names)}: expected {len(self.shape)} different names, "
                f"none of them step, time or {self.name}"
            )
        for name in (*names, *self.attributes):
            check_name(f"{what}: dimension or attribute", name)
        attributes = {name: _plain(what, name, value) for name, value in self.attributes.items()}
        msgspec.structs.force_setattr(self, "attributes", attributes)
        msgspec.structs.force_setattr(self, "dimensions", names)

    @property
    def open(self) -> bool:
        """Whether the first dimension is open."""
        return self.shape[0] is None

    def block(self, shape: Sequence[int], offset: Sequence[int] | None = None) -> Block:
        """A block of this variable, checked.

        Args:
            shape: of the block.
            offset: of its first element in the global array; by default zeros. Of an open dimension it is not
                known yet, and stands as 0.

        Raises:
            StagingError: the block is not within the global shape.
        """
        return check_block(
            self, Block(self.name, tuple(offset or (0,) * len(shape)), tuple(shape), self.dtype)
        )


class Block(msgspec.Struct, frozen=True, array_like=True):
    """One writer's part of a variable; made by ``Variable.block``.

    Args:
        variable: the variable's name.
        offset: of its first element in the global array; 0 in an open dimension until that is settled.
        shape: of the block.
        dtype: of its elements.

    Example:
        >>> from evflow import staging
        >>> staging.Variable("heat", "f4", (4, 4)).block((2, 4), offset=(2, 0)).offset
        (2, 0)
    """

    variable: str
    offset: Shape
    shape: Shape
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * int(self.dtype[1:])

    def view(self, memory: Any, start: int = 0) -> np.ndarray[Any, np.dtype[Any]]:
        """An array over ``memory``, which holds the block from byte ``start`` on."""
        return np.ndarray(self.shape, f"<{self.dtype}", memory, start)

    def moved(self, rows: int) -> Block:
        """The block of an open variable, ``rows`` further behind."""
        return Block(self.variable, (self.offset[0] + rows, *self.offset[1:]), self.shape, self.dtype)


def check_block(variable: Variable, block: Block) -> Block:
    """A block that is one of its variable.

    Raises:
        StagingError: another dtype or number of dimensions, or not within the global shape.
    """
    entries = (*block.shape, *block.offset)
    fits = len(block.shape) == len(block.offset) == len(variable.shape) and all(
        isinstance(entry, int) and 0 <= entry < 1 << 40 for entry in entries
    )
    if fits:
        rows = block.shape[0] if variable.open else variable.shape[0]
        whole = (rows, *variable.shape[1:])
        fits = all(o + n <= (w or 0) for o, n, w in zip(block.offset, block.shape, whole, strict=True))
        # Of an open variable: nobody else has a part of its rows.
        fits = fits and (not variable.open or block.shape[1:] == variable.shape[1:])
    if not fits or block.dtype != variable.dtype or (not variable.open and 0 in block.shape):
        raise StagingError(
            f"variable {variable.name}: expected a block of {variable.dtype} within {variable.shape}, found "
            f"{shown(block.dtype)} of shape {shown(block.shape)} at {shown(block.offset)}"
        )
    if block.nbytes >= 1 << 40:
        raise StagingError(
            f"variable {variable.name}: expected a block of less than 1 TiB, found {block.nbytes} bytes"
        )
    return block


def by_name(variables: Iterable[Variable]) -> dict[str, Variable]:
    """Variables by name.

    Raises:
        StagingError: there are none or too many, two have one name, or a dimension has two sizes.
    """
    found: dict[str, Variable] = {}
    sizes: dict[str, int | None] = {}
    for variable in variables:
        if variable.name in found:
            raise StagingError(f"variable {variable.name}: expected each name once")
        found[variable.name] = variable
        for name, size in zip(variable.dimensions, variable.shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise StagingError(f"dimension {name}: expected one size, found {sizes[name]} and {size}")
    if both := sizes.keys() & found.keys():
        raise StagingError(
            f"expected other names for dimensions than for variables, found {', '.join(sorted(both))}"
        )
    if not 1 <= len(found) <= MOST_VARIABLES:
        raise StagingError(f"expected 1 to {MOST_VARIABLES} variables, found {len(found)}")
    return found


def whole_shape(variable: Variable, blocks: Iterable[Block]) -> Shape:
    """The global shape of a variable in a step, given all blocks of it."""
    rows = sum(block.shape[0] for block in blocks) if variable.open else variable.shape[0]
    return (rows or 0, *(size or 0 for size in variable.shape[1:]))


def trouble_with(variable: Variable, blocks: Mapping[int, Block], gaps: bool = False) -> str:
    """Why blocks do not make a whole step of their variable, in words; "" if they do.

    Args:
        variable: the variable.
        blocks: rank → block, with settled offsets.
        gaps: whether elements may be missing.

    Returns:
        Names the first two ranks whose blocks overlap, or how many elements are missing.
    """
    # Blocks ordered by their first row: only those that still reach into a row can overlap there.
    order = sorted(
        (rank for rank in blocks if blocks[rank].nbytes), key=lambda rank: (blocks[rank].offset, rank)
    )
    reaching: list[int] = []
    for rank in order:
        block = blocks[rank]
        reaching = [
            other for other in reaching if blocks[other].offset[0] + blocks[other].shape[0] > block.offset[0]
        ]
        for other in reaching:
            if _overlap(blocks[other], block):
                where = f"at {block.offset} overlaps that of rank {other}"
                return f"{variable.name}: the block of rank {rank} {where}"
        reaching.append(rank)
    size = math.prod(whole_shape(variable, blocks.values()))
    there = sum(math.prod(block.shape) for block in blocks.values())
    return (
        "" if there == size or gaps else f"{variable.name}: {size - there} of {size} elements are in no block"
    )


def _overlap(one: Block, other: Block) -> bool:
    sides = zip(one.offset, one.shape, other.offset, other.shape, strict=True)
    return all(a < b + m and b < a + n for a, n, b, m in sides)
