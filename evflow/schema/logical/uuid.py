"""``UUID``: a universally unique identifier."""

from __future__ import annotations

import re
import uuid
from typing import Any

from evflow.schema.types import Bytes, Logical
from evflow.schema.values import Misfit

__all__ = ["UUID"]

_SIZE = 16
_TEXT = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", re.ASCII)


class UUIDType(Logical, Bytes):
    """The type of ``UUID``, kept as ``Bytes[16]``.

    It takes a ``uuid.UUID``, the text of one, or 16 bytes, and gives a ``uuid.UUID``.

    Example:
        >>> import evflow as ev, uuid
        >>> order = ev.Schema("order", {"id": ev.UUID})
        >>> ev.EventBatch.from_events([order(id=uuid.UUID(int=7))])[0].id
        UUID('00000000-0000-0000-0000-000000000007')
    """

    __slots__ = ()

    word = "uuid"
    classes = (uuid.UUID,)
    spelling = "ev.UUID"
    computable = False

    @property
    def stored(self) -> Bytes:
        return Bytes(_SIZE)

    def store(self, value: Any) -> bytes:
        """The 16 bytes of ``value``, most significant first.

        Raises:
            Misfit: ``value`` is not a UUID.
        """
        if isinstance(value, str):
            if not _TEXT.fullmatch(value):
                raise Misfit("the text of a UUID", value)
            value = uuid.UUID(value)
        if isinstance(value, uuid.UUID):
            return value.bytes
        if isinstance(value, bytes) and len(value) == _SIZE:
            return value
        raise Misfit("a uuid.UUID, the text of one, or 16 bytes (uuid)", value)

    def load(self, stored: bytes) -> uuid.UUID:
        """The UUID whose bytes are ``stored``; zeros stand in for missing bytes at the end."""
        return uuid.UUID(bytes=stored.ljust(_SIZE, b"\0"))

    def arrow_type(self) -> Any:
        """16 bytes."""
        import pyarrow as pa

        return pa.binary(_SIZE)

    def from_arrow(self, array: Any) -> Any:
        """The 16 bytes of each UUID of ``array``, which holds texts or 16 bytes.

        Raises:
            TypeError: ``array`` holds something else.
            Misfit: a text is not that of a UUID.
        """
        import pyarrow as pa

        if array.type in (pa.binary(_SIZE), pa.binary(), pa.large_binary()):
            return array.cast(pa.binary(_SIZE))
        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            raise TypeError
        values = [None if text is None else self.store(text) for text in array.to_pylist()]
        return pa.array(values, pa.binary(_SIZE))

    def spark_type(self) -> Any:
        """Bytes."""
        from pyspark.sql import types

        return types.BinaryType()

    @classmethod
    def as_arrow(cls, value: Any) -> bytes:
        """The 16 bytes of ``value``."""
        return bytes(value.bytes)

    @classmethod
    def parse(cls, text: str) -> Any:
        """The type if ``text`` is its word."""
        return cls(_SIZE) if text == cls.word else None


UUID = UUIDType(_SIZE)
