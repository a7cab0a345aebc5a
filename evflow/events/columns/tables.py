"""Tables of any kind as mappings of columns."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from evflow.errors import SchemaError
from evflow.events.columns.intake import library_of, owned_columns
from evflow.schema import Schema
from evflow.schema.values import describe

__all__ = ["columns_of"]


def columns_of(schema: Schema, table: Any) -> Mapping[str, Any]:
    """The columns of a table by name.

    Args:
        schema: the schema that they are for.
        table: a mapping of columns, a structured array, a DataFrame of pandas, a Table or RecordBatch of
            pyarrow.

    Raises:
        SchemaError: it is none of these.
    """
    if isinstance(table, Mapping):
        return table
    if isinstance(table, np.ndarray) and table.dtype.names is not None:
        if table.ndim != 1:
            raise SchemaError(
                f"schema {schema.name}: expected rows in one dimension, found shape {table.shape}"
            )
        if table.dtype == schema.dtype and schema.width is not None:
            return owned_columns(schema, table)
        return {name: table[name] for name in table.dtype.names}
    reader = library_of(table)
    if reader is not None and hasattr(table, "columns"):
        # The table's own library is loaded by now; evflow loads it for nobody else.
        columns: Mapping[str, Any] = importlib.import_module(reader).read_table(table)
        return columns
    raise SchemaError(
        f"schema {schema.name}: expected a table (dict of columns, structured array, pandas DataFrame, "
        f"pyarrow Table, list of events or EventBatch), found {describe(table)}"
    )
