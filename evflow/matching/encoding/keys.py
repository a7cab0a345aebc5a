"""Keys of events: the values of one attribute as rows of words, which are equal if the values are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.choices import suggestion
from evflow.events.batch import EventBatch
from evflow.matching import stays
from evflow.matching.encoding.batch import column_of
from evflow.matching.encoding.columns import Found, Pieces, found_of
from evflow.matching.encoding.values import NUMBER_KINDS, kind_of, seen_by_itself, unmasked
from evflow.matching.rows import NUMBER, TEXT
from evflow.matching.strings import utf8

LONGEST = 256
"""Bytes that a text may have as a key."""

GOOD, LACKING, WRONG, LONG = range(4)
"""What a value is: a key, missing or NaN, neither number nor text, too long."""

_WHOLE, _REAL, _LARGE, _TEXT = 1, 2, 3, 4
"""What kinds of keys begin with; a text has its length above that."""

_LENGTH_SHIFT = 8
_WORD = 8
_LIMIT = 2.0**63

Words = NDArray[np.int64]


class Keys(NamedTuple):
    """The keys of N events.

    Attributes:
        words: int64, (N, W): a row an event.
        state: uint8, N: ``GOOD``, or why there is none; its row is of no use then.
    """

    words: Words
    state: NDArray[np.uint8]


def keys_of_batch(batch: EventBatch, name: str) -> Keys:
    """The keys of the events of a batch.

    Args:
        batch: N events.
        name: a field, a dotted path to one in a nested record, or an attribute that goes along.
    """
    column = column_of(batch, name)
    return _keys(len(batch), ({}, np.zeros(len(batch), np.bool_)) if column is None else column)


def keys_of_column(values: Any) -> Keys:
    """The keys in a column.

    Args:
        values: an array, a list, a column of pandas or pyarrow.

    Raises:
        SchemaError: it is not a column.
    """
    count, found = found_of("keys", values)
    return _keys(count, found)


def reasons(batch: EventBatch, name: str, state: NDArray[np.uint8]) -> Iterable[tuple[NDArray[np.intp], str]]:
    """Which events have no key, and why.

    Args:
        batch: the events.
        name: the attribute.
        state: see ``Keys``.
    """
    known = [field.name for field in batch.schema.fields]
    texts = {
        LACKING: f"the event has no {name}, which track= names{suggestion(name, known)}",
        WRONG: f"{name}, which track= names: expected a number or a text",
        LONG: f"{name}, which track= names: expected at most {LONGEST} bytes of text, or a number of 64 bits",
    }
    for code, text in texts.items():
        positions = np.flatnonzero(state == code)
        if len(positions):
            yield positions, text


def widened(words: Words, width: int) -> Words:
    """The same keys with at least ``width`` words."""
    if words.shape[1] >= width:
        return words
    wide = np.zeros((len(words), width), np.int64)
    wide[:, : words.shape[1]] = words
    return wide


def _keys(n: int, found: Found) -> Keys:
    values, present = found
    state = np.full(n, GOOD, np.uint8)
    if present is not None:
        state[~present] = LACKING
    if isinstance(values, Pieces):
        return Keys(_of_texts(values, state), state)
    if isinstance(values, np.ndarray) and values.ndim == 1:
        if values.dtype.kind in NUMBER_KINDS:
            return Keys(_of_numbers(values, state), state)
        if values.dtype.kind in "UTOmM":
            # Not ``tolist`` of times: that has integers for them.
            listed = values.tolist() if values.dtype.kind in "UT" else list(values)
            return Keys(_of_objects(unmasked(listed, present), state), state)
    if isinstance(values, list):
        return Keys(_of_objects(unmasked(values, present), state), state)
    # Records and arrays; of what is missing all together there is only an empty mapping.
    assert isinstance(values, Mapping | np.ndarray)
    state[state == GOOD] = WRONG
    return Keys(np.zeros((n, 2), np.int64), state)


def _of_texts(texts: Pieces, state: NDArray[np.uint8]) -> Words:
    state[(state == GOOD) & (texts.length > LONGEST)] = LONG
    length = np.where(state == GOOD, texts.length, 0).astype(np.int32)
    words = np.zeros((len(length), 1 + -(-int(length.max(initial=1)) // _WORD)), np.int64)
    words[:, 0] = _TEXT | length.astype(np.int64) << _LENGTH_SHIFT
    stays.pad(
        np.ascontiguousarray(texts.chars), np.ascontiguousarray(texts.start), length, words.view(np.uint8)
    )
    return words


def _of_numbers(values: NDArray[Any], state: NDArray[np.uint8]) -> Words:
    words = np.empty((len(values), 2), np.int64)
    words[:, 0] = _WHOLE
    kind = values.dtype.kind
    if kind != "f":
        words[:, 1] = values.astype(np.uint64).view(np.int64) if kind == "u" else values
        if kind == "u":
            words[words[:, 1] < 0, 0] = _LARGE
        return words
    reals = values.astype(np.float64)
    state[(state == GOOD) & np.isnan(reals)] = LACKING
    whole = (np.floor(reals) == reals) & (reals >= -_LIMIT) & (reals < _LIMIT)
    words[:, 1] = np.where(whole, reals, 0.0).astype(np.int64)
    words[~whole, 0] = _REAL
    words[~whole, 1] = reals[~whole].view(np.int64)
    large = (reals >= _LIMIT) & (reals < 2 * _LIMIT)
    words[large, 0] = _LARGE
    words[large, 1] = reals[large].astype(np.uint64).view(np.int64)
    return words


def _of_objects(values: list[Any], state: NDArray[np.uint8]) -> Words:
    """Values of any kinds, which are seen as constraints see them."""
    values = [value if kind_of(value) in (NUMBER, TEXT) else seen_by_itself(value) for value in values]
    kinds = np.fromiter(map(kind_of, values), np.uint8, len(values))
    state[kinds == 0] = LACKING
    state[(kinds != 0) & (kinds != NUMBER) & (kinds != TEXT)] = WRONG
    words = np.zeros((len(values), 2), np.int64)
    for positions, kind in _numbers(values, np.flatnonzero(kinds == NUMBER), state):
        part = state[positions]
        words[positions] = _of_numbers(np.array([values[i] for i in positions], kind), part)
        state[positions] = part
    texts = np.flatnonzero(kinds == TEXT)
    pieces = [utf8(values[i]) for i in texts]
    length = np.fromiter(map(len, pieces), np.int32, len(pieces))
    start = np.cumsum(length, dtype=np.int64) - length
    part = state[texts]
    of_texts = _of_texts(Pieces(np.frombuffer(b"".join(pieces), np.uint8), start, length), part)
    state[texts] = part
    words = widened(words, of_texts.shape[1])
    words[texts, : of_texts.shape[1]] = of_texts
    return words


def _numbers(
    values: list[Any], positions: NDArray[np.intp], state: NDArray[np.uint8]
) -> Iterable[tuple[list[int], type]]:
    """The positions of numbers by the type that has them exactly."""
    found: dict[type, list[int]] = {np.int64: [], np.uint64: [], np.float64: []}
    for i in positions.tolist():
        value = values[i]
        if isinstance(value, float | np.floating):
            found[np.float64].append(i)
        elif -(1 << 63) <= value < 1 << 63:
            found[np.int64].append(i)
        elif 0 <= value < 1 << 64:
            found[np.uint64].append(i)
        else:
            state[i] = LONG
    return ((listed, kind) for kind, listed in found.items() if listed)
