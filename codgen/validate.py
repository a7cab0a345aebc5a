"""Bytes from outside, checked by native code before other native code reads them.

Compiled functions trust the events they are given: they go from field to field by lengths that stand in
the bytes. So whatever comes from another process or a file is checked here first, completely.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from ctypes import addressof, c_int64

import numpy as np

from evflow.codgen.llvm.validate_ir import HEAD, PATH, write_validator
from evflow.codgen.memory import Array, address
from evflow.codgen.native import LOCK, Code
from evflow.errors import SchemaError
from evflow.schema import Schema
from evflow.schema.types import Array as ArrayType
from evflow.schema.types import FieldType, Maybe, Record

_VALIDATORS = 1024
_Words = c_int64 * (len(HEAD) + PATH)
_ROWS, _SITE, _AT, _STEPS = (HEAD.index(name) for name in ("rows", "site", "at", "steps"))

_SHORT = 4096
"""Bytes that are checked before another thread could take over."""


class Validator:
    """Checks bytes against a schema; any number of threads may use it.

    Args:
        schema: what the bytes claim to be.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        text = write_validator(schema)
        self._sites = list(text.sites)
        self._names = list(text.names)
        self._code = Code(text.ir)
        self._least = _least(schema)

    def hasten(self) -> None:
        """Compiles it at once as it would be after much use."""
        self._code.optimise()

    def check(self, data: Array, count: int | None = None) -> Array | None:
        """Checks events that stand back to back.

        Args:
            data: uint8, 1-D, C-contiguous: the events, nothing before or behind them.
            count: how many there are; None for as many as there are.

        Returns:
            Where each event starts and the last ends (int64[n + 1]) if their width varies, else None.

        Raises:
            SchemaError: names the event, the field, the byte, what was expected and what was found.
        """
        size = len(data)
        if count is not None and not 0 <= count <= size // self._least:
            raise SchemaError(
                f"bytes of {self.schema.name}: expected {count} events of at least {self._least} bytes, "
                f"found {size} bytes"
            )
        rows = size // self._least if count is None else count
        offsets = np.zeros(rows + 1, np.int64) if self.schema.width is None else None
        written = 0 if offsets is None else address(offsets)
        words = _Words(address(data), size, -1 if count is None else count, written, 0, -1)
        self._code.saw(rows)
        run = self._code.held if size <= _SHORT else self._code.free
        run(addressof(words))
        if words[_SITE] >= 0:
            raise self._error(words, data)
        if offsets is None:
            return None
        found = words[_ROWS] + 1
        return offsets if found == len(offsets) else offsets[:found].copy()

    def _error(self, words: ctypes.Array[c_int64], data: Array) -> SchemaError:
        site, at = self._sites[words[_SITE]], words[_AT]
        steps = words[len(HEAD) : len(HEAD) + words[_STEPS]]
        path = "".join(f".{self._names[s]}" if s >= 0 else f"[{-1 - s}]" for s in reversed(steps))
        path = (f"{path}.{site.name}" if site.name else path).removeprefix(".")
        shown = data[at : at + 8].tobytes().hex(" ") or "the end of the bytes"
        field = f"field {path}, " if path else ""
        return SchemaError(
            f"bytes of {self.schema.name}: event {words[_ROWS]}, {field}byte {at}: "
            f"expected {site.expected}, found {shown}"
        )

    def dump_ir(self, *, optimised: bool = False) -> str:
        """LLVM IR of the check: as it was written, or as the optimiser leaves it."""
        return self._code.dump_ir(optimised=optimised)


def _least(schema: Schema) -> int:
    """Bytes of the shortest event."""
    return schema.fixed_width + sum(_least_value(f.type) for f in schema.fields if f.offset is None)


def _least_value(kind: FieldType) -> int:
    if isinstance(kind, Record):
        return _least(kind.schema)
    return 1 if isinstance(kind, Maybe) else kind.data_offset if isinstance(kind, ArrayType) else 5


_validators: OrderedDict[str, Validator] = OrderedDict()


def validator(schema: Schema) -> Validator:
    """The validator of a schema, compiled once."""
    with LOCK:
        found = _validators.get(schema.fingerprint)
        if found is None:
            found = _validators[schema.fingerprint] = Validator(schema)
            if len(_validators) > _VALIDATORS:
                _validators.popitem(last=False)
        else:
            _validators.move_to_end(schema.fingerprint)
        return found
