"""What the driver gets to know of the subscriptions: all of them, or how much there is of what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.spark.matching.boxes import Boxes, boxes_of
from evflow.spark.matching.packing import Piece, chosen, pack, unpack
from evflow.spark.matching.reading import Form, Problem, pieces_of, refused
from evflow.spark.matching.tiles import Tiles

if TYPE_CHECKING:
    import pyarrow as pa

    from evflow.spark.matching.asked import Asked, Subscribed

__all__ = ["Survey", "boxes_in", "collect", "refuse_repeats", "survey", "touched"]

Int64s = NDArray[np.int64]

_PIECES = "piece binary, problem string"
_COUNTS = (
    "subscriptions long, filters long, constraints long, areas long, nbytes long, "
    "names array<string>, boxes array<double>, problem string"
)
_MIXED = np.uint64(0x9E3779B97F4A7C15)


def boxes_in(piece: Piece, space: str) -> Boxes:
    """The boxes of a piece's areas; each is of a filter."""
    x, y, radius = piece.columns.x, piece.columns.y, piece.columns.radius
    if x is None or y is None or radius is None:
        none = np.zeros(0)
        return boxes_of(space, none, none, none)
    there = np.flatnonzero(~np.isnan(x))
    found = boxes_of(space, x[there], y[there], radius[there])
    return Boxes(found.low, found.high, there[found.of])


def touched(piece: Piece, tiles: Tiles, space: str, wide: int) -> tuple[Int64s, Int64s, Int64s]:
    """Where the subscriptions of a piece belong.

    Returns:
        The pairs of subscription and tile, and the subscriptions that belong to no tiles: one of their
        filters has no area, or they touch more than ``wide``.
    """
    boxes, of = boxes_in(piece, space), piece.of
    which, tile = tiles.touching(Boxes(boxes.low, boxes.high, of[boxes.of]))
    everywhere = np.bincount(which, minlength=len(piece.ids)) > wide
    located = np.zeros(len(of), bool)
    located[boxes.of] = True
    everywhere[of[~located]] = True
    kept = ~everywhere[which]
    return which[kept], tile[kept], np.flatnonzero(everywhere)


@dataclass(frozen=True, eq=False)
class _Collect:
    """The function of a task that packs subscriptions: all, or those that belong to no tiles."""

    form: Form
    tiles: Tiles | None
    wide: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for piece in pieces_of(self.form, batches):
            row: tuple[bytes | None, str | None]
            if isinstance(piece, Problem):
                row = (None, piece.to_text())
            elif self.tiles is None:
                row = (pack(piece), None)
            else:
                *_, everywhere = touched(piece, self.tiles, self.form.space, self.wide)
                row = (pack(chosen(piece, everywhere)), None)
            yield pa.record_batch(
                [pa.array([row[0]], pa.binary()), pa.array([row[1]], pa.string())], ["piece", "problem"]
            )


def collect(asked: Subscribed, tiles: Tiles | None = None, wide: int = 0) -> list[Any]:
    """The packed subscriptions, in Arrow buffers.

    Args:
        asked: says which.
        tiles: only those that belong to none of these; else all.
        wide: see ``touched``.

    Raises:
        SubscriptionError: one is malformed; names its id.
    """
    import pyarrow as pa

    rows = asked.rows
    if tiles is None and not asked.form.text:
        # Quicker than to hand them over to workers and back.
        read = pieces_of(asked.form, iter(rows.toArrow().to_batches()))
        return [pa.py_buffer(pack(piece)) for piece in map(_checked, read)]
    table = rows.mapInArrow(_Collect(asked.form, tiles, wide), _PIECES).toArrow()
    _refuse(table)
    return [piece.as_buffer() for piece in table.column("piece")]


def refuse_repeats(asked: Subscribed, pieces: Sequence[Any] | None = None) -> None:
    """Checks that no two subscriptions have one id.

    Args:
        asked: says which.
        pieces: all subscriptions if they are at hand; else Spark looks.

    Raises:
        SubscriptionError: two have.
    """
    if pieces is None:
        from pyspark.sql import functions as F

        ids = asked.rows.groupBy("id").agg(F.count("*").alias("count"))
        found = [row["id"] for row in ids.where("count > 1").limit(1).collect()]
    else:
        ordered = np.sort(np.concatenate([np.zeros(0, np.int64), *(unpack(piece).ids for piece in pieces)]))
        found = ordered[1:][ordered[1:] == ordered[:-1]][:1].tolist()
    if found:
        raise SubscriptionError(
            f"subscriptions: id {found[0]} stands twice in column {asked.form.id}; each has its own"
        )


def _checked(piece: Piece | Problem) -> Piece:
    if isinstance(piece, Problem):
        raise refused(piece.to_text())
    return piece


def _refuse(table: pa.Table) -> None:
    problems = table.column("problem").drop_null()
    if len(problems):
        raise refused(problems[0].as_py())


@dataclass(frozen=True, eq=False)
class Survey:
    """How much there is of what.

    Attributes:
        subscriptions: how many.
        filters: how many.
        constraints: how many.
        areas: how many filters have one.
        nbytes: of the strings.
        names: the attributes that constraints use.
        boxes: of a sample of the areas.
        share: of the areas that are in the sample.
    """

    subscriptions: int
    filters: int
    constraints: int
    areas: int
    nbytes: int
    names: frozenset[str]
    boxes: Boxes
    share: float


@dataclass(frozen=True)
class _Count:
    """The function of a task that counts, and takes a sample."""

    form: Form
    share: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for piece in pieces_of(self.form, batches):
            row = {"problem": piece.to_text()} if isinstance(piece, Problem) else self._counted(piece)
            kinds = {"problem": pa.string(), "names": pa.list_(pa.string()), "boxes": pa.list_(pa.float64())}
            names = [field.split()[0] for field in _COUNTS.split(", ")]
            arrays = [pa.array([row.get(name)], kinds.get(name, pa.int64())) for name in names]
            yield pa.record_batch(arrays, names)

    def _counted(self, piece: Piece) -> dict[str, Any]:
        columns, boxes = piece.columns, boxes_in(piece, self.form.space)
        # The same of equal subscriptions, wherever they are read.
        mixed = piece.ids[piece.of[boxes.of]].astype(np.uint64) * _MIXED
        taken = (mixed >> np.uint64(11)) < np.uint64(self.share * (1 << 53))
        return {
            "subscriptions": len(piece.ids),
            "filters": len(columns),
            "constraints": len(columns.name),
            "areas": len(np.unique(boxes.of)),
            "nbytes": sum(map(len, columns.texts)),
            "names": [columns.names[number] for number in np.unique(columns.name).tolist()],
            "boxes": np.column_stack([boxes.low[taken], boxes.high[taken]]).reshape(-1),
        }


def survey(asked: Asked, share: float) -> Survey:
    """Reads all subscriptions, and counts.

    Args:
        asked: says which.
        share: of the areas that are to be in the sample, 0 to 1.

    Raises:
        SubscriptionError: one is malformed; names its id.
    """
    rows = asked.rows
    table = rows.mapInArrow(_Count(asked.form, share), _COUNTS).toArrow()
    _refuse(table)
    sums = {name: sum(table.column(name).to_pylist()) for name in table.column_names[:5]}
    names = {name for names in table.column("names").to_pylist() for name in names}
    corners = table.column("boxes").combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, 4)
    boxes = Boxes(corners[:, :2], corners[:, 2:], np.arange(len(corners)))
    return Survey(**sums, names=frozenset(names), boxes=boxes, share=share)
