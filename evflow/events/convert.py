"""Events of one schema as events of another, one by one, where no compiled conversion exists."""

from __future__ import annotations

from typing import Any

import numpy as np

from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.careful import encode_careful
from evflow.events.view import view_class
from evflow.schema import Schema


def convert_events(
    batch: EventBatch, schema: Schema
) -> tuple[EventBatch, np.ndarray[Any, np.dtype[np.int64]], list[tuple[int, str]]]:
    """Converts every event on its own: fields by name, missing ones by their defaults, further ones left out.

    A number keeps its value or the event is given up: a float becomes an integer only if it is integral,
    an integer a float only if that is exact, a number a bool only if it is 0 or 1; a float becomes a
    narrower float by rounding, within its range. The same holds within arrays, lists and records.

    Returns:
        The events that could be converted, in order, with their attributes; their positions in ``batch``;
        and for each of the others its position and the reason.
    """
    kept: list[int] = []
    encoded: list[bytes] = []
    failed: list[tuple[int, str]] = []
    view = view_class(batch.schema)
    for position, at in enumerate(batch.starts()):
        try:
            encoded.append(encode_careful(schema, view(batch.buffer, at), converting=True))
            kept.append(position)
        except SchemaError as error:
            failed.append((position, str(error)))
    positions = np.array(kept, np.int64)
    attributes = None if batch.attributes is None else batch.attributes.take(positions)
    return EventBatch.from_encoded(schema, encoded, attributes), positions, failed
