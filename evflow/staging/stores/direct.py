"""New files that go to the disk past the page cache (``O_DIRECT``): the system copies none of their bytes.

Large pieces are written from where they are, if they stand at a multiple of a page in memory and in the file.
All others are put together in a small buffer first. Where a file system refuses, the same bytes go through
the page cache.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from evflow.disk.log import sync_file

PAGE = 4096
"""Of what memory, place and size of a direct write are multiples."""

LARGE = 16 * PAGE
"""Bytes of a piece from which on a write of its own pays."""

_ASIDE = 1 << 20

_MOST_AT_ONCE = os.sysconf("SC_IOV_MAX")

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def aligned(size: int) -> Bytes:
    """New memory of ``size`` bytes that can be written from where it is."""
    if size < LARGE:
        return np.empty(size, np.uint8)
    made = np.empty(size + PAGE, np.uint8)
    return made[-made.ctypes.data % PAGE :][:size]


def write_file(path: Path, pieces: Iterable[Any]) -> None:
    """Makes a file of buffers, one behind the other, with zeros up to the next multiple of ``PAGE``. Part of
    it may not be on the disk before ``fsync``. OSError if the disk refuses it."""
    access = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        file = os.open(path, access | os.O_DIRECT, 0o666)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        file = os.open(path, access, 0o666)
    try:
        aside, filled, begun = np.frombuffer(mmap.mmap(-1, _ASIDE), np.uint8), 0, 0
        waiting = list[Bytes]()
        for piece in pieces:
            data = np.frombuffer(piece, np.uint8)
            while size := len(data):
                straight = size >= LARGE and not (filled | data.ctypes.data) % PAGE
                if straight:
                    size -= size % PAGE
                    waiting += [aside[begun:filled], data[:size]]
                    begun = filled
                else:
                    size = min(size, _ASIDE - filled)
                    aside[filled : filled + size] = data[:size]
                    filled += size
                if filled == _ASIDE or len(waiting) > _MOST_AT_ONCE - 2:
                    _put(file, [*waiting, aside[begun:filled]])
                    waiting, filled, begun = [], 0, 0
                data = data[size:]
        end = -(-filled // PAGE) * PAGE
        aside[filled:end] = 0
        _put(file, [*waiting, aside[begun:end]])
    finally:
        os.close(file)


def _put(file: int, waiting: list[Bytes]) -> None:
    """Writes all of several buffers."""
    left: list[Any] = [data for data in waiting if len(data)]
    while left:
        try:
            size = os.writev(file, left)
        except OSError as error:
            flags = fcntl.fcntl(file, fcntl.F_GETFL)
            if error.errno not in (errno.EINVAL, errno.EIO) or not flags & os.O_DIRECT:
                raise
            # This system wants other multiples, a write has stopped between them, or (ZFS) somebody writes
            # into this memory meanwhile. If the disk has failed, writing or ``fsync`` fails again.
            fcntl.fcntl(file, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            continue
        while left and size >= len(left[0]):
            size -= len(left.pop(0))
        if left:
            left[0] = left[0][size:]


def publish(made: Path, path: Path) -> None:
    """Puts a file that is complete in its place, in one act that survives a power cut."""
    sync_file(made)
    os.replace(made, path)
    sync_file(path.parent)
