"""Events of any form as rows."""

from __future__ import annotations

from typing import Any

from evflow.events.batch import EventBatch
from evflow.matching.encoding.batch import encode_batch
from evflow.matching.encoding.builder import Workspace
from evflow.matching.encoding.columns import encode_columns
from evflow.matching.encoding.reader import EventReader
from evflow.matching.encoding.values import Vocabulary
from evflow.matching.rows import EventRows


def encode(events: Any, known: Vocabulary, reader: EventReader, workspace: Workspace) -> EventRows:
    """The rows of many events.

    Args:
        events: a batch, a list of events, a dict of columns, a structured array, a DataFrame, a pyarrow
            table.
        known: what they are read for.
        reader: reads lists.
        workspace: memory for the rows.

    Raises:
        SchemaError: it is none of these, or malformed.
    """
    if isinstance(events, EventBatch):
        return encode_batch(events, known, workspace)
    if isinstance(events, list | tuple):
        return reader.read_many(events)
    return encode_columns(events, known, workspace)
