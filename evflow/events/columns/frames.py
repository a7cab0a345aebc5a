"""Columns from and to pandas; imported only where a pandas object is at hand or asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from evflow.errors import SchemaError
from evflow.events.columns.intake import Column, as_column
from evflow.schema import Schema
from evflow.schema.types import FieldType, Logical, Maybe, Number


def read_table(frame: Any) -> dict[str, Any]:
    """The columns of a DataFrame by name; its index is not a column.

    Raises:
        SchemaError: two columns have one name.
    """
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise SchemaError(f"two columns of the DataFrame are named {twice!r}; rename or drop one")
    return {str(name): frame[name] for name in frame.columns}


def read_column(kind: FieldType, given: Any) -> Column:
    """A Series, Index or extension array as a column.

    In pandas NaN stands for a missing float; a field that is optional takes it as None.
    """
    series = given if isinstance(given, pd.Series) else pd.Series(given)
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _read_categories(kind, series)
    if isinstance(dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        dtype = series.dtype
    if isinstance(dtype, np.dtype):
        values = series.to_numpy()
        missing = isinstance(kind, Maybe) and dtype.kind in "fOmM"
        return Column(values, series.notna().to_numpy() if missing else None)
    if isinstance(dtype, pd.ArrowDtype) or (isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow"):
        return as_column(kind, series.array.__arrow_array__())
    present = series.notna().to_numpy()
    numpy_dtype = getattr(dtype, "numpy_dtype", None)
    if numpy_dtype is not None and numpy_dtype.kind in "biuf":
        filled = series.to_numpy(dtype=numpy_dtype, na_value=numpy_dtype.type(0))
        return Column(filled, None if present.all() else present)
    return Column(series.to_numpy(dtype=object, na_value=None), None if present.all() else present)


def _read_categories(kind: FieldType, series: pd.Series[Any]) -> Column:
    codes = series.cat.codes.to_numpy()
    categories = series.cat.categories.to_numpy()
    present = codes >= 0
    if not len(categories):
        return Column(np.full(len(codes), None, object), present)
    inner = kind.held
    times = categories.dtype.kind in "mM"
    if not times and (not isinstance(inner, Number) or isinstance(inner, Logical)):
        categories = categories.astype(object)
    return Column(categories[np.maximum(codes, 0)], None if present.all() else present)


def write_table(schema: Schema, columns: dict[str, np.ndarray[Any, np.dtype[Any]]]) -> pd.DataFrame:
    """A DataFrame; where a value is itself an array, the column holds arrays, and times have their zone."""
    return pd.DataFrame({name: _written(schema[name].type, column) for name, column in columns.items()})


def _written(kind: FieldType, column: np.ndarray[Any, np.dtype[Any]]) -> Any:
    held = kind.held
    if isinstance(held, Logical):
        return held.to_pandas(column)
    return list(column) if column.ndim > 1 else column
