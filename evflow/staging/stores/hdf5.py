"""Steps in HDF5: a file a step, and one file in which virtual datasets join all steps.

A step is written to ``NAME.steps/.new``, brought to the disk, and renamed to ``NAME.steps/NUMBER.h5``: no
reader ever opens a file that somebody writes, and a kill at any moment leaves the earlier steps as they are.
Steps of the same writers and shapes differ in their raw data only. So HDF5 makes the first of them, and all
others are written as its bytes with other data, where each block is in one piece of the file.

``NAME.h5`` is written once. Its virtual datasets name their sources by a pattern, so HDF5 finds the steps
that are there whenever the file is opened. The layout is that of netCDF-4, which ``h5netcdf`` reads.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from evflow.errors import StagingError
from evflow.staging.gathering import Part
from evflow.staging.model import Shape, Variable, whole_shape
from evflow.staging.stores import Store, chunked, fill_value, places, publish, runs
from evflow.staging.stores.direct import LARGE, PAGE, write_file

_PLAIN = "This is a netCDF dimension but not a netCDF variable."


class Hdf5Store(Store):
    """Steps in HDF5; ``path`` is the file that joins them."""

    def _open(self) -> None:
        path = self._path
        # Of the newest step: what its form depends on, and its bytes with names in place of raw data.
        self._key: Any = None
        self._form: list[bytes | str] = []
        self._folder = path.with_suffix(".steps")
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
        while (step := self._folder / f"{len(self.done)}.h5").exists():
            with h5py.File(step) as file:
                news = dict(file.attrs["writers"].tolist()) if "writers" in file.attrs else None
                self._add(int(file["step"][0]), news, file.attrs["missing"].tolist())

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
        data: dict[str, Any] = {name: runs(part, variables[name], shape) for name, shape in shapes.items()}
        plain = not self._compression and None not in data.values()
        # A file that could not be closed may still be open.
        self._new.unlink(missing_ok=True)
        try:
            # All that the form depends on.
            key = (shapes, news, part.missing)
            if not plain:
                self._write(part, news, own, shapes)
            else:
                if key != self._key:
                    self._form, self._key = self._write(part, news, own, shapes, True), key
                data |= {name: [value] for name, value in own.items()}
                pieces = (data[piece] if isinstance(piece, str) else [piece] for piece in self._form)
                write_file(self._new, chain.from_iterable(pieces))
            publish(self._new, self._folder / f"{len(self.done)}.h5")
        except RuntimeError as error:
            # So h5py says that a file could not be closed since its disk is full.
            raise OSError(str(error)) from error
        self._add(part.step, news, part.missing)

    def _write(
        self,
        part: Part,
        news: dict[int, int],
        own: dict[str, Any],
        shapes: dict[str, Shape],
        form: bool = False,
    ) -> list[bytes | str]:
        """Makes the file of a step. As a ``form`` it has no elements of variables, and its pieces are given:
        bytes, and names of datasets where their elements stand."""
        with h5py.File(
            self._new, "w", libver="v110", alignment_threshold=LARGE, alignment_interval=PAGE
        ) as file:
            file.attrs["missing"] = np.array(part.missing, np.int64)
            file.attrs["writers"] = np.array([*news.items()], np.int64).reshape(-1, 2)
            file.create_dataset("step", data=own["step"]).make_scale("step")
            file.create_dataset("time", data=own["time"])
            for name, variable in self._variables.items():
                shape, found, given = shapes[name], places(part, name), dict[str, Any]()
                dtype = np.dtype(f"<{variable.dtype}")
                if form:
                    found, given["dcpl"] = [], h5p.create(h5p.DATASET_CREATE)
                    given["dcpl"].set_alloc_time(h5d.ALLOC_TIME_EARLY)
                    given["dcpl"].set_fill_time(h5d.FILL_TIME_NEVER)
                elif self._compression and 0 not in shape:
                    chunk, found = chunked(part, variable, shape)
                    given = {"chunks": (1, *chunk), "shuffle": True, "compression": self._compression}
                made = file.create_dataset(name, (1, *shape), dtype, fillvalue=fill_value(dtype), **given)
                for where, block in found:
                    made.write_direct(block, dest_sel=(0, *where))
                _describe(file, made, variable, shape)
            raw = [(file[name].id.get_offset(), file[name].nbytes, name) for name in (*own, *shapes) if form]
        pieces, end = list[bytes | str](), 0
        with self._new.open("rb") as made:
            for start, size, name in sorted(one for one in raw if one[1]):
                made.seek(end)
                pieces += [made.read(start - end), name]
                end = start + size
            made.seek(end)
            return [*pieces, made.read()] if form else []

    def _join(self) -> None:
        made = self._path.with_name(f".{self._path.name}.new")
        with h5py.File(made, "w", libver="v110") as file:
            file.attrs["evflow"] = self._note
            self._virtual(file, "step", "i8", ())
            self._virtual(file, "time", "f8", ())
            file["step"].make_scale("step")
            file["time"].dims[0].attach_scale(file["step"])
            for name, variable in self._variables.items():
                if not variable.open:
                    shape = whole_shape(variable, ())
                    _describe(file, self._virtual(file, name, variable.dtype, shape), variable, shape)
        publish(made, self._path)

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


def _describe(file: h5py.File, made: h5py.Dataset, variable: Variable, shape: Shape) -> None:
    """Attributes and dimensions as netCDF-4 has them."""
    made.attrs.update(variable.attributes)
    made.dims[0].attach_scale(file["step"])
    for place, (name, size) in enumerate(zip(variable.dimensions, shape, strict=True), 1):
        if name not in file:
            file.create_dataset(name, (size,), ">f4").make_scale(f"{_PLAIN}{size:>10}")
        made.dims[place].attach_scale(file[name])
