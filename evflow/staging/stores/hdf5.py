"""Steps in HDF5: a file a step, and one file in which virtual datasets join all steps.

A step is written to ``NAME.steps/.new``, brought to the disk, and renamed to ``NAME.steps/NUMBER.h5``: no
reader ever opens a file that somebody writes, and a kill at any moment leaves the earlier steps as they are.
HDF5 makes files in memory only: it ends the process where a disk is full in the middle of a file.
Steps of the same writers and shapes differ in their raw data only, where they are not compressed. So HDF5
makes one of them without raw data, and each step is written as the bytes of that with its own data.

``NAME.h5`` is written once. Its virtual datasets name their sources by a pattern, so HDF5 finds the steps
that are there whenever the file is opened. The layout is that of netCDF-4, which ``h5netcdf`` reads.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from evflow.errors import StagingError
from evflow.outside import shown
from evflow.staging.gathering import Part
from evflow.staging.model import Shape, Variable, whole_shape
from evflow.staging.stores import Store, chunked, fill_value, runs, slabs
from evflow.staging.stores.direct import LARGE, PAGE, publish, write_file
from evflow.staging.stores.index import Facts, Index

_PLAIN = "This is a netCDF dimension but not a netCDF variable."

T = TypeVar("T")


class Hdf5Store(Store):
    """Steps in HDF5; ``path`` is the file that joins them."""

    def _open(self) -> None:
        path = self._path
        # Of the newest step: what its form depends on, and its bytes with names in place of raw data.
        self._key: Any = None
        self._form: list[bytes | str] = []
        self._folder = path.with_suffix(".steps")
        self._expect("an HDF5 file that can be read", path, h5py.is_hdf5(path))
        self._expect("a folder", self._folder, self._folder.is_dir())
        self._folder.mkdir(exist_ok=True)
        self._new = self._folder / ".new"
        self._new.unlink(missing_ok=True)
        if not path.exists():
            if (self._folder / "0.h5").exists():
                why = f"its steps are in {self._folder}, and {path.name} is missing; remove {self._folder}"
                raise StagingError(f"store {path}: {why}, or choose another store")
            self._join()
        with h5py.File(path) as file:
            self._check(file.attrs.get("evflow"))
        self._index = Index(self._folder, ".h5")
        for facts in self._index.steps(self._facts):
            self._add(facts)

    def _facts(self, places: Sequence[int]) -> Iterator[Facts]:
        for path in (self._folder / f"{place}.h5" for place in places):
            try:
                with h5py.File(path) as file:
                    known = "writers" in file.attrs
                    missing = dict.fromkeys(file.attrs["missing"].tolist(), 0)
                    news = dict(file.attrs["writers"].tolist()) if known else missing
                    facts = Facts(int(file["step"][0]), news, known)
            except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
                why = f"not a step of evflow: {shown(error)}; put back a copy, or choose another store"
                raise StagingError(f"{path}: {why}") from None
            yield facts

    def commit(self, part: Part) -> None:
        news, variables = self._news(part), self._variables
        shapes = {
            name: whole_shape(variable, (block for _, block, _ in part.of_variable(name)))
            for name, variable in variables.items()
        }
        own: dict[str, Any] = {
            "step": np.array([part.step], np.int64),
            "time": np.array(list(part.times)[:1], np.float64),
        }
        fill = partial(self._fill, part=part, news=news, own=own, shapes=shapes)
        # All that the form depends on.
        key = (shapes, news, part.missing)
        pieces: Iterable[Any]
        if self._compression:
            pieces = [_in_memory(fill)[0]]
        else:
            if key != self._key:
                self._form, self._key = _form(*_in_memory(fill)), key
            pieces = chain.from_iterable(
                self._elements(part, piece, own, shapes) if isinstance(piece, str) else [piece]
                for piece in self._form
            )
        write_file(self._new, pieces)
        publish(self._new, self._folder / f"{len(self.done)}.h5")
        self._committed(part, news)

    def _elements(
        self, part: Part, name: str, own: dict[str, Any], shapes: dict[str, Shape]
    ) -> Iterable[Any]:
        """The elements of a dataset of a step, one buffer behind the other."""
        if name in own:
            return [own[name]]
        found = runs(part, self._variables[name], shapes[name])
        return slabs(part, self._variables[name], shapes[name]) if found is None else found

    def _fill(
        self, file: h5py.File, part: Part, news: dict[int, int], own: dict[str, Any], shapes: dict[str, Shape]
    ) -> list[tuple[int, int, str]]:
        """Makes a step in a file. It is complete if it is compressed; otherwise it lacks the elements, and
        gives where they stand: start, bytes and name."""
        file.attrs["missing"] = np.array(part.missing, np.int64)
        file.attrs["writers"] = np.array([*news.items()], np.int64).reshape(-1, 2)
        file.create_dataset("step", data=own["step"]).make_scale("step")
        file.create_dataset("time", data=own["time"])
        for name, variable in self._variables.items():
            shape, found, given = shapes[name], list[Any](), dict[str, Any]()
            dtype = np.dtype(f"<{variable.dtype}")
            if not self._compression:
                given["dcpl"] = h5p.create(h5p.DATASET_CREATE)
                given["dcpl"].set_alloc_time(h5d.ALLOC_TIME_EARLY)
                given["dcpl"].set_fill_time(h5d.FILL_TIME_NEVER)
            elif 0 not in shape:
                chunk, found = chunked(part, variable, shape)
                given = {"chunks": (1, *chunk), "shuffle": True, "compression": self._compression}
            made = file.create_dataset(name, (1, *shape), dtype, fillvalue=fill_value(dtype), **given)
            for where, block in found:
                made.write_direct(block, dest_sel=(0, *where))
            _describe(file, made, variable, shape)
        if self._compression:
            return []
        return [(file[name].id.get_offset(), file[name].nbytes, name) for name in (*own, *shapes)]

    def _join(self) -> None:
        made = self._path.with_name(f".{self._path.name}.new")
        write_file(made, [_in_memory(self._fill_join)[0]])
        publish(made, self._path)

    def _fill_join(self, file: h5py.File) -> None:
        file.attrs["evflow"] = self._note
        self._virtual(file, "step", "i8", ())
        self._virtual(file, "time", "f8", ())
        file["step"].make_scale("step")
        file["time"].dims[0].attach_scale(file["step"])
        for name, variable in self._variables.items():
            if not variable.open:
                shape = whole_shape(variable, ())
                _describe(file, self._virtual(file, name, variable.dtype, shape), variable, shape)

    def _virtual(self, file: h5py.File, name: str, dtype: str, shape: Shape) -> h5py.Dataset:
        """A dataset over all steps; ``%b`` in the name of its source stands for 0, 1, 2 and so on."""
        whole, most, rest = (1, *shape), (h5s.UNLIMITED, *shape), (1,) * len(shape)
        space = h5s.create_simple(whole, most)
        space.select_hyperslab((0,) * len(whole), (h5s.UNLIMITED, *rest), whole, whole)
        source = h5s.create_simple(whole)
        source.select_all()
        made = h5p.create(h5p.DATASET_CREATE)
        made.set_fill_value(fill_value(np.dtype(f"<{dtype}")))
        folder = self._folder.name.replace("%", "%%")
        made.set_virtual(space, f"{folder}/%b.h5".encode(), name.encode(), source)
        kind = h5t.py_create(np.dtype(f"<{dtype}"), logical=True)
        return h5py.Dataset(h5d.create(file.id, name.encode(), kind, h5s.create_simple(whole, most), made))


class _Memory(io.FileIO):
    """A file in memory for HDF5, which looks at no count of bytes, and lets go of no file that refuses some:
    it hears of no error, and ``refused`` is the first."""

    refused: OSError | None = None

    def write(self, data: Any) -> int:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self.fileno(), left) :]
        except OSError as error:
            self.refused = self.refused or error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.refused = self.refused or error
            return size or 0


def _in_memory(fill: Callable[[h5py.File], T]) -> tuple[mmap.mmap, T]:
    """A file of HDF5, made in memory, and what ``fill`` gives. OSError if memory or a limit of the process
    (``ulimit -f``) refuses it."""
    with _Memory(os.memfd_create("evflow-hdf5", os.MFD_CLOEXEC), "r+") as file:
        try:
            with h5py.File(
                file, "w", libver="v110", alignment_threshold=LARGE, alignment_interval=PAGE
            ) as made:
                found = fill(made)
        finally:
            if file.refused:
                raise file.refused
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), found


def _form(image: mmap.mmap, places: Iterable[tuple[int, int, str]]) -> list[bytes | str]:
    """The pieces of a file: bytes, and names of datasets where their elements stand."""
    pieces, end = list[bytes | str](), 0
    for start, size, name in sorted(place for place in places if place[1]):
        pieces += [image[end:start], name]
        end = start + size
    return [*pieces, image[end:]]


def _describe(file: h5py.File, made: h5py.Dataset, variable: Variable, shape: Shape) -> None:
    """Attributes and dimensions as netCDF-4 has them."""
    made.attrs.update(variable.attributes)
    made.dims[0].attach_scale(file["step"])
    for place, (name, size) in enumerate(zip(variable.dimensions, shape, strict=True), 1):
        if name not in file:
            file.create_dataset(name, (size,), ">f4").make_scale(f"{_PLAIN}{size:>10}")
        made.dims[place].attach_scale(file[name])
