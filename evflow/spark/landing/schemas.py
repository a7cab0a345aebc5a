"""Schemas of the tasks that are under way: each is kept once, and together they have a size."""

from __future__ import annotations

from weakref import WeakValueDictionary

from evflow.errors import FlowError
from evflow.schema import Schema

__all__ = ["Schemas"]

_MOST = 16 << 20
"""Bytes of descriptions; what is made of these takes many times as much."""


class Schemas:
    """Schemas, as long as somebody has them."""

    def __init__(self) -> None:
        self._kept: WeakValueDictionary[str, Schema] = WeakValueDictionary()
        self._sizes: dict[str, int] = {}

    def shared(self, schema: Schema, size: int) -> Schema:
        """The schema, or the same one that somebody has already.

        Args:
            size: bytes of its description.

        Raises:
            FlowError: there are too many others.
        """
        known = self._kept.get(schema.fingerprint)
        if known is not None:
            return known
        self._sizes = {one: size for one, size in self._sizes.items() if one in self._kept}
        if sum(self._sizes.values()) + size > _MOST:
            raise FlowError(
                f"tasks of {len(self._sizes)} schemas are under way, whose descriptions have {_MOST} bytes; "
                "expected less: wait for their jobs, or give the source a schema"
            )
        self._kept[schema.fingerprint] = schema
        self._sizes[schema.fingerprint] = size
        return schema
