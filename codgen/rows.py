"""Columns of numbers and arrays to encoded rows, by machine code made for the schema."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from evflow.codgen.llvm.rows_ir import can_encode_rows, write_rows_encoder
from evflow.codgen.memory import Array, address
from evflow.codgen.native import Code
from evflow.schema import Schema

_BRIEF = 1 << 20
"""Bytes that are written before another thread could take over: a tenth of a millisecond."""


class RowsEncoder:
    """Encodes rows of a schema; any number of threads may use it.

    Args:
        schema: one of numbers, arrays and text of fixed width.
    """

    def __init__(self, schema: Schema) -> None:
        self._words = ctypes.c_int64 * (2 + 2 * len(schema.fields))
        self._code = Code(write_rows_encoder(schema))

    def encode(self, columns: Sequence[Array], rows: int, target: Array) -> None:
        """Encodes rows to where they belong, with every text empty.

        Args:
            columns: of each field in the order of the wire, of just the field's type and shape, in this
                machine's byte order; rows may lie anywhere, but the elements of an array in order. Those of
                text may be any.
            rows: how many.
            target: uint8, 1-D, of the rows' size.
        """
        words = [rows, address(target)]
        for column in columns:
            words += (address(column), column.strides[0])
        laid = self._words(*words)
        self._code.saw(rows)
        run = self._code.held if len(target) <= _BRIEF else self._code.free
        run(ctypes.addressof(laid))


def rows_encoder(schema: Schema) -> RowsEncoder | None:
    """The encoder of a schema, made when it is asked for first; None if there can be none."""
    if "rows encoder" not in schema.made:
        made = RowsEncoder(schema) if schema.fields and can_encode_rows(schema) else None
        schema.made["rows encoder"] = made
    encoder: RowsEncoder | None = schema.made["rows encoder"]
    return encoder
