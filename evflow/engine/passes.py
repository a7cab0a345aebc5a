"""What a native pass gives back, as batches: the events that left by an exit, and those given up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evflow.codgen.queuekernel import QueueSegment
from evflow.codgen.result import FaultNote, Records, Result, Segment
from evflow.codgen.tree import Fault
from evflow.events.attributes import AttributeColumn, Attributes
from evflow.events.batch import EventBatch

REASONS = {
    Fault.DIVISION: "integer division by zero",
    Fault.INDEX: "index {value} is out of range: {name} has {bound} element{s}",
    Fault.FUEL: "out of fuel: it did more for one event than {value:,} units allow; bound its loops, or give "
    "a higher fuel=",
    Fault.RANGE: "a number does not fit the type it is converted to",
    Fault.ABSENT: "an optional field has no value in this event; ask present(...) or 'is None' first",
    Fault.TEXT: "a text is too long for its field, ends with NUL, or is not UTF-8",
    Fault.LIMIT: "one event, or all of a batch, made more output than allowed",
}


def left(result: Result, segment: Segment, batch: EventBatch) -> EventBatch:
    """The events of one segment, with the attributes they leave with."""
    attributes = _attributes(segment, batch)
    if segment.buffer == 0:
        selection = batch.selection if segment.rows is None else segment.rows
        return EventBatch(batch.schema, batch.data, batch.rows, batch.offsets, selection, attributes)
    records = result.buffers[segment.buffer]
    assert records is not None
    return EventBatch(records.schema, records.data, records.rows, records.offsets, segment.rows, attributes)


def _attributes(segment: Segment, batch: EventBatch) -> Attributes | None:
    before = batch.attributes
    if before is not None and segment.positions is not None:
        before = before.take(segment.positions)
    if not segment.attributes:
        return before
    columns = {} if before is None else dict(before.columns)
    for name, (kind, values, present) in segment.attributes.items():
        columns[name] = AttributeColumn(kind, values, present)
    return Attributes(columns)


def sent(segment: QueueSegment) -> EventBatch:
    """The events of one segment that the function of a queue has sent."""
    records, rows = segment.records, segment.attributes
    attributes = None if rows is None else Attributes.from_rows(rows)
    return EventBatch(records.schema, records.data, records.rows, records.offsets, None, attributes)


def reason_of(note: FaultNote) -> str:
    """Why an event was given up, and the line of the function."""
    reason = REASONS[note.fault].format(
        value=note.value, bound=note.bound, name=note.name, s="" if note.bound == 1 else "s"
    )
    return f"{reason} (line {note.line})"


def faulted(result: Result, batch: EventBatch) -> Iterator[tuple[EventBatch, str, int]]:
    """Each event given up as the stage saw it, why, and the stage's index."""
    for note in result.faults:
        if note.buffer == 0:
            event = batch.slice(note.position, note.position + 1)
        else:
            event = _record(result.buffers[note.buffer], note.row, batch, note.position)
        yield event, reason_of(note), note.stone


def _record(records: Records | None, row: int, batch: EventBatch, position: int) -> EventBatch:
    assert records is not None
    attributes = None if batch.attributes is None else batch.attributes.take(slice(position, position + 1))
    selection = np.array([row], np.int32)
    return EventBatch(records.schema, records.data, records.rows, records.offsets, selection, attributes)
