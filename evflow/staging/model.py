"""What an application declares: variables, the blocks of them that a writer has, and whether blocks make a
whole.

A variable is a global array, of which each writer has one block a step. The first dimension may be open
(None): then blocks have any number of rows, and where they begin is settled downstream
(``evflow.staging.gathering``).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from evflow.errors import StagingError
from evflow.outside import shown
from evflow.schema import Schema
from evflow.schema.types import NUMBERS, Array, f64, i64

__all__ = ["Block", "Variable"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_TAKEN = ("step", "time")
_TAKEN_ATTRIBUTES = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS")
_DTYPES = "f4 f8 i1 i2 i4 i8 u1 u2 u4 u8".split()
MOST_DIMENSIONS = 8
MOST_VARIABLES = 256
MOST_WRITERS = 65_536
MOST_PATH = 100

Shape = tuple[int, ...]


def expect(fits: object, what: str, found: object, expected: str) -> None:
    """Refuses a setting that does not fit: raises StagingError."""
    if not fits:
        raise StagingError(f"{what} {shown(found)}: expected {expected}")


def _check_name(what: str, name: object) -> None:
    fits = isinstance(name, str) and _NAME.fullmatch(name)
    expect(fits, what, name, "1 to 64 letters, digits and _, beginning with a letter")


def check_path(what: str, path: str | Path) -> None:
    """Refuses a path at which nobody can listen."""
    fits = (
        isinstance(path, str | Path)
        and Path(path).name
        and len(os.fsencode(path)) <= MOST_PATH
        and "\0" not in str(path)
    )
    expect(fits, what, str(path), f"a path of 1 to {MOST_PATH} bytes")


def _plain(what: str, name: str, value: Any) -> str | int | float:
    """The value of an attribute, as Python has it."""
    expect(name not in _TAKEN_ATTRIBUTES, what, name, "another name: HDF5 has attributes of this name")
    if isinstance(value, float):
        return float(value)
    text = isinstance(value, str) and "\0" not in value and not re.search("[\ud800-\udfff]", value)
    number = isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
    expect(text or number, f"{what} {name}", value, "a text or a number, without NUL, of 64 bits at most")
    return str(value) if text else int(value)


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
        name, shape, what = self.name, self.shape, f"variable {self.name}"
        _check_name("variable", name)
        if name in _TAKEN:
            raise StagingError(f"{what}: a store has {name} of its own; give the variable another name")
        fits = isinstance(self.dtype, str) and self.dtype in _DTYPES
        expect(fits, f"{what}: dtype", self.dtype, f"one of {', '.join(_DTYPES)}")
        fits = isinstance(shape, tuple) and 1 <= len(shape) <= MOST_DIMENSIONS
        expect(fits, f"{what}: shape", shape, f"a tuple of 1 to {MOST_DIMENSIONS} sizes")
        for place, size in enumerate(shape):
            fits = (isinstance(size, int) and 1 <= size < 1 << 40) or (size is None and not place)
            expected = "integers, 1 or more and less than 2**40; the first may be None"
            expect(fits, f"{what}: shape", shape, expected)
        expect(isinstance(self.dimensions, tuple), f"{what}: dimensions", self.dimensions, "a tuple of names")
        names = self.dimensions or tuple(f"{name}_{place}" for place in range(len(shape)))
        fits = len(names) == len(set(names)) == len(shape) and not set(names) & {*_TAKEN, name}
        expected = f"{len(shape)} different names, none of them step, time or {name}"
        expect(fits, f"{what}: dimensions", names, expected)
        expect(isinstance(self.attributes, dict), f"{what}: attributes", self.attributes, "a dict")
        for one in (*names, *self.attributes):
            _check_name(f"{what}: dimension or attribute", one)
        plain = {one: _plain(f"{what}: attribute", one, value) for one, value in self.attributes.items()}
        msgspec.structs.force_setattr(self, "attributes", plain)
        msgspec.structs.force_setattr(self, "dimensions", names)

    @property
    def open(self) -> bool:
        """Whether the first dimension is open."""
        return self.shape[0] is None

    def event(self, shape: Sequence[int]) -> Schema:
        """The schema of the events in which a ``Stage`` hands blocks of this variable on.

        Args:
            shape: of each block.

        Returns:
            The schema: ``step``, ``time``, ``rank`` of the writer; ``part``, which counts the blocks of the
            step from 0, of ``parts``; ``offset`` of the block in the global array; ``values``, of this shape.

        Raises:
            StagingError: a block of this variable cannot have the shape.

        Example:
            >>> from evflow import staging
            >>> [field.name for field in staging.Variable("heat", "f4", (4, 4)).event((2, 4)).fields]
            ['step', 'time', 'rank', 'part', 'parts', 'offset', 'values']
        """
        self.block(shape)
        values = Array(NUMBERS[f"{self.dtype[0]}{8 * int(self.dtype[1:])}"], tuple(shape))
        counts = {"rank": i64, "part": i64, "parts": i64, "offset": Array(i64, (len(shape),))}
        return Schema(self.name, {"step": i64, "time": f64, **counts, "values": values})

    def block(self, shape: Sequence[int], offset: Sequence[int] | None = None) -> Block:
        """A block of this variable, checked.

        Args:
            shape: of the block.
            offset: of its first element in the global array; by default zeros. Of an open dimension it is not
                known yet, and stands as 0.

        Raises:
            StagingError: the block is not within the global shape.
        """
        for what, given in (("shape", shape), ("offset", () if offset is None else offset)):
            expect(isinstance(given, Sequence), f"block of {self.name}: {what}", given, "a tuple of integers")
        made = Block(self.name, tuple(offset or (0,) * len(shape)), tuple(shape), self.dtype)
        check_blocks("block", {self.name: self}, (made,))
        return made


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

    def unsettled(self) -> Block:
        """The block of an open variable, as its writer has it."""
        return Block(self.variable, (0, *self.offset[1:]), self.shape, self.dtype)

    def overlaps(self, other: Block) -> bool:
        """Whether this block and ``other`` have an element in common."""
        sides = zip(self.offset, self.shape, other.offset, other.shape, strict=True)
        return all(a < b + m and b < a + n for a, n, b, m in sides)


def check_life(what: str, life: int) -> None:
    """Refuses a life of a writer that no store can have; 0 stands there for a rank that is missing."""
    expect(0 < life < 1 << 62, f"{what}: life", life, "a number of 62 bits, more than 0")


def check_blocks(what: str, variables: Mapping[str, Variable], blocks: Sequence[Block]) -> None:
    """Refuses two blocks of a variable, and one that is not of its dtype and within its shape."""
    fits = isinstance(blocks, Sequence) and all(isinstance(block, Block) for block in blocks)
    expect(fits, f"{what}: blocks", blocks, "a list of Block, as Variable.block makes them")
    names = [block.variable for block in blocks]
    if len(set(names)) < len(names) or set(names) - variables.keys():
        known = shown(list(variables))
        raise StagingError(f"{what}: expected at most one block of each of {known}, found {shown(names)}")
    for block in blocks:
        _check_block(variables[block.variable], block)


def _check_block(variable: Variable, block: Block) -> None:
    entries = (*block.shape, *block.offset)
    fits = len(block.shape) == len(block.offset) == len(variable.shape) and all(
        isinstance(entry, int) and 0 <= entry < 1 << 40 for entry in entries
    )
    if fits:
        whole = whole_shape(variable, [block])
        fits = all(o + n <= w for o, n, w in zip(block.offset, block.shape, whole, strict=True))
        # Of an open variable: nobody else has a part of its rows.
        fits = fits and (not variable.open or block.shape == whole)
    what = f"variable {variable.name}"
    if fits and 0 in block.shape and not variable.open:
        raise StagingError(f"{what}: a block without elements; leave {variable.name} out of this step")
    if not fits or block.dtype != variable.dtype:
        raise StagingError(
            f"{what}: expected a block of {variable.dtype} within {variable.shape}, found "
            f"{shown(block.dtype)} of shape {shown(block.shape)} at {shown(block.offset)}"
        )
    expect(block.nbytes < 1 << 40, f"{what}: a block of", block.nbytes, "less than 1 TiB")


def by_name(variables: Iterable[Variable]) -> dict[str, Variable]:
    """Variables by name; refuses too many, two of one name, and a dimension of two sizes."""
    found: dict[str, Variable] = {}
    sizes: dict[str, int | None] = {}
    expect(isinstance(variables, Iterable), "variables", variables, "a list of Variable")
    for variable in variables:
        expect(isinstance(variable, Variable), "variables:", variable, "a Variable")
        if variable.name in found:
            raise StagingError(f"variable {variable.name}: expected each name once")
        found[variable.name] = variable
        for name, size in zip(variable.dimensions, variable.shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise StagingError(f"dimension {name}: expected one size, found {sizes[name]} and {size}")
    if both := sizes.keys() & found.keys():
        names = ", ".join(sorted(both))
        raise StagingError(f"expected other names for dimensions than for variables, found {names}")
    if not 1 <= len(found) <= MOST_VARIABLES:
        raise StagingError(f"expected 1 to {MOST_VARIABLES} variables, found {len(found)}")
    return found


def whole_shape(variable: Variable, blocks: Iterable[Block]) -> Shape:
    """The global shape of a variable in a step, given all blocks of it."""
    rows = sum(block.shape[0] for block in blocks) if variable.open else variable.shape[0]
    return (rows or 0, *(size or 0 for size in variable.shape[1:]))


def trouble_with(variable: Variable, blocks: Mapping[int, Block], gaps: bool = False) -> str:
    """Why blocks, by rank, do not make a whole step of their variable, in words; "" if they do. With
    ``gaps``, elements may be missing."""
    reaching: list[int] = []
    own = [rank for rank in blocks if blocks[rank].nbytes]
    # Along the dimension that they divide most, only blocks that still reach into a place can overlap there.
    d = max(range(len(variable.shape)), key=lambda side: len({blocks[r].offset[side] for r in own}))
    for rank in sorted(own, key=lambda r: (blocks[r].offset[d], blocks[r].offset, r)):
        block = blocks[rank]
        reaching = [r for r in reaching if blocks[r].offset[d] + blocks[r].shape[d] > block.offset[d]]
        for other in reaching:
            if block.overlaps(blocks[other]):
                which = f"the block of rank {rank} at {block.offset} overlaps that of rank {other}"
                return f"{variable.name}: {which}"
        reaching.append(rank)
    size = math.prod(whole_shape(variable, blocks.values()))
    lack = size - sum(math.prod(block.shape) for block in blocks.values())
    return f"{variable.name}: {lack} of {size} elements are in no block" if lack and not gaps else ""
