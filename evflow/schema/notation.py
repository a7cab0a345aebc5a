"""The field types under the names that annotations use.

At run time these are the types of ``evflow.schema``. A type checker cannot read ``Str[8]`` or ``i32`` as the
type of an attribute; for it the numbers are Python's, and what takes a size is Any, by way of a module
that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evflow._no_such_module import (  # type: ignore[import-not-found]
        Array,
        Bytes,
        Str,
    )

    i8 = int
    i16 = int
    i32 = int
    i64 = int
    u8 = int
    u16 = int
    u32 = int
    u64 = int
    f32 = float
    f64 = float
else:
    from evflow.schema.types import Array, Bytes, Str, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

__all__ = [
    "Array",
    "Bytes",
    "Str",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
]
