"""Events of any form as rows."""

from __future__ import annotations

from typing import Any

from evflow.events.batch import EventBatch
from evflow.matching.encoding.batch import encode_batch
from evflow.matching.encoding.columns import encode_columns
from evflow.matching.encoding.events import encode_events
from evflow.matching.encoding.workspace import Workspace
from evflow.matching.names import Names
from evflow.matching.rows import EventRows
from evflow.matching.space import Space
from evflow.matching.strings import Strings

__all__ = ["encode"]


def encode(
    events: Any,
    names: Names,
    strings: Strings,
    space: Space,
    location: tuple[str, str],
    workspace: Workspace,
) -> EventRows:
    """The rows of many events.

    Args:
        events: a batch, a list of events, a dict of columns, a structured array, a DataFrame, a pyarrow
            table.
        names: the attributes that constraints use; others are left out.
        strings: the strings that constraints compare with.
        space: where events happen.
        location: the attributes that tell it.
        workspace: memory for the rows.

    Raises:
        SchemaError: it is none of these, or malformed.
    """
    if isinstance(events, EventBatch):
        return encode_batch(events, names, strings, space, location, workspace)
    if isinstance(events, list | tuple):
        return encode_events(events, names, strings, space, location)
    return encode_columns(events, names, strings, space, location, workspace)
