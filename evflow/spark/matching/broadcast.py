"""An index goes to the executors as a file, is mapped into memory there, and opened once by each worker
process.

Where driver and executors are one machine's one process (``local[…]``) the workers map the driver's own
folder. Elsewhere the folder travels as one uncompressed archive, which each executor unpacks once. Equal
subscriptions make one index for a session, however often they are matched.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SparkError
from evflow.forked import temporary_folder
from evflow.matching.mapped import mapped
from evflow.spark.matching.options import Settings
from evflow.spark.matching.subscriptions import Piece
from evflow.spark.session import is_connect, is_local, session_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evflow.matching.matcher import Matcher

_KEPT = 4
"""Indexes that a worker keeps open."""


@dataclass(frozen=True)
class Shipped:
    """Where executors find an index.

    Attributes:
        digest: of all that is in it.
        folder: the folder, where executors see the driver's; else empty.
        file: the name under which the archive was sent; else empty.
    """

    digest: str
    folder: str = ""
    file: str = ""


@dataclass(frozen=True)
class Opened:
    """An index in use.

    Attributes:
        matcher: knows subscriptions by their places in ``ids``.
        ids: int64: what the DataFrame calls them.
    """

    matcher: Matcher
    ids: NDArray[np.int64]


_shelf: dict[tuple[str, str], Shipped] = {}
"""What was shipped, by session and digest."""

_folders: dict[int, Path] = {}
"""By process, since a fork cannot rely on its parent's."""


def ship(spark: SparkSession, settings: Settings, pieces: Sequence[Piece]) -> Shipped:
    """Builds an index and sends it to the executors, unless that was done in this session.

    The file is kept until this process ends, since Spark may run any task again.

    Args:
        spark: the session.
        settings: of the matcher.
        pieces: the subscriptions.

    Raises:
        SubscriptionError: the engine refuses a subscription.
        SparkError: Spark does not take the file.
    """
    digest = hashlib.sha256(repr(settings).encode())
    for piece in pieces:
        digest.update(pickle.dumps(piece))
    name = digest.hexdigest()[:24]
    key = (session_name(spark), name)
    if key not in _shelf:
        folder = _root() / name
        if not folder.exists():
            _build(settings, pieces, folder)
        _shelf[key] = Shipped(name, folder=str(folder)) if is_local(spark) else _sent(spark, folder)
    return _shelf[key]


def _root() -> Path:
    """The folder of this process's indexes, which goes with it."""
    folder = _folders.get(os.getpid())
    if folder is None or not folder.exists():
        folder = _folders[os.getpid()] = temporary_folder("evflow-matching-")
    return folder


def built(settings: Settings, pieces: Sequence[Piece]) -> Opened:
    """The index of some subscriptions.

    Raises:
        SubscriptionError: the engine refuses one.
    """
    matcher, done = settings.matcher(), 0
    for piece in pieces:
        matcher.subscribe_many(piece.columns, np.arange(done, done + len(piece.ids)))
        done += len(piece.ids)
    return Opened(matcher, np.concatenate([np.zeros(0, np.int64), *(piece.ids for piece in pieces)]))


def _build(settings: Settings, pieces: Sequence[Piece], folder: Path) -> None:
    index = built(settings, pieces)
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    index.matcher.save(made / "matcher")
    np.save(made / "ids.npy", index.ids)
    made.rename(folder)


def _sent(spark: SparkSession, folder: Path) -> Shipped:
    file = folder.with_name(f"evflow-{folder.name}.tar")
    if not file.exists():
        with tarfile.open(file.with_suffix(".new"), "w") as archive:
            archive.add(folder, folder.name)
        file.with_suffix(".new").rename(file)
    if is_connect(spark):
        spark.addArtifacts(str(file), file=True)
    else:
        spark.sparkContext.addFile(str(file))
    return Shipped(folder.name, file=file.name)


@lru_cache(_KEPT)
def opened(shipped: Shipped) -> Opened:
    """The index, in a worker, which opens it once.

    Raises:
        SparkError: it is not there.
    """
    prepare_worker()
    from evflow.matching.matcher import Matcher

    folder = Path(shipped.folder) if shipped.folder else _unpacked(shipped)
    if not folder.exists():
        raise SparkError(
            f"the index {folder} is gone; it lives as long as the driver's process: call match again"
        )
    return Opened(Matcher.load(folder / "matcher"), mapped(folder / "ids.npy"))


def _unpacked(shipped: Shipped) -> Path:
    """The folder of an archive, unpacked beside it by the executor's first worker that needs it."""
    from pyspark import SparkFiles

    file = Path(SparkFiles.get(shipped.file))
    folder = file.with_name(f"{shipped.file}.unpacked")
    if not folder.exists():
        made = Path(tempfile.mkdtemp(dir=file.parent))
        with tarfile.open(file) as archive:
            archive.extractall(made, filter="data")
        with suppress(OSError):  # another worker was quicker
            made.rename(folder)
        shutil.rmtree(made, ignore_errors=True)
    return folder / shipped.digest


def prepare_worker() -> None:
    """Sees to it that what numba compiles in this process is kept for the next one.

    numba keeps it beside the package; where that cannot be written, in a folder that the workers of a machine
    share.
    """
    spec = importlib.util.find_spec("evflow")
    if "NUMBA_CACHE_DIR" in os.environ or "numba" in sys.modules or spec is None or spec.origin is None:
        return
    package = Path(spec.origin).parent / "matching"
    if os.access(package, os.W_OK):
        return
    folder = Path(tempfile.gettempdir(), f"evflow-numba-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    held = folder.lstat()
    if held.st_uid != os.getuid() or held.st_mode & 0o077 or folder.is_symlink():
        # Who can write there could have this process run anything.
        folder = Path(tempfile.mkdtemp(prefix="evflow-numba-"))
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
