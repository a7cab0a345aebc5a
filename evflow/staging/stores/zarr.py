"""Steps in Zarr v3: one group, each variable an array over steps, each step in chunks of its own.

The chunks of a step are written aside, brought to the disk and renamed into the arrays, beyond their end: no
reader sees them. Then the group's ``zarr.json`` is replaced by one whose consolidated metadata has the arrays
a step longer: in one act all variables have the step. Open variables are not possible: an array has one
shape.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec

from evflow.disk.log import sync_file
from evflow.errors import StagingError
from evflow.staging.gathering import Part
from evflow.staging.model import Variable, whole_shape
from evflow.staging.stores import Store, chunked, fill_value
from evflow.staging.stores.direct import publish
from evflow.staging.stores.index import Facts, Index

_ASIDE = ".zarr.json.new"
_ALL_CHUNKS: Any = {"write_empty_chunks": True}


class ZarrStore(Store):
    """Steps in Zarr; ``path`` is the folder of the group."""

    def _open(self) -> None:
        path, variables = self._path, self._variables
        for name in [name for name, variable in variables.items() if variable.open]:
            raise StagingError(f"variable {name}: Zarr needs a shape without None; choose a .h5 store")
        self._file, self._new, self._tries = path / "zarr.json", path / ".new", count()
        self._expect("a folder", path, path.is_dir())
        path.mkdir(exist_ok=True)
        if self._compression:
            # All steps of an array have the same codecs.
            self._note += f", compressed at level {self._compression}"
        if not self._file.exists():
            if {found.name for found in path.iterdir()} - {_ASIDE, self._new.name}:
                raise StagingError(f"store {path}: it has no zarr.json; remove it, or choose another store")
            self._write({}, {"missing": {}, "writers": {}})
        group = json.loads(self._file.read_text())
        self._check(group.get("attributes", {}).get("evflow"))
        self._metadata: dict[str, Any] = group["consolidated_metadata"]["metadata"]
        # By step: the ranks that are missing, and writers that are not those of the step before.
        self._missing: dict[str, list[int]] = group["attributes"]["missing"]
        self._changes: dict[str, dict[str, int]] = group["attributes"].get("writers", {})
        self._copy()
        self._index, known = Index(path / "step" / "c", ""), False
        there = self._metadata["step"]["shape"][0] if self._metadata else 0
        for number, *_ in self._index.steps(self._facts, there):
            step = str(number)
            # Steps of an earlier version come first.
            known = known or step in self._changes
            missing = dict.fromkeys(self._missing.get(step, ()), 0)
            news = self._changes.get(step, {}) if known else missing
            self._add(Facts(number, {int(rank): life for rank, life in news.items()}, known))

    def _facts(self, places: Sequence[int]) -> list[Facts]:
        """Of what a step says, its number: the group says the rest."""
        steps: Any = zarr.open_array(self._path / "step", mode="r")[places[0] : places[-1] + 1]
        return [Facts(int(steps[place - places[0]]), {}) for place in places]

    def commit(self, part: Part) -> None:
        # It may be there, and only the copies of its metadata not.
        if part.step not in self.done:
            self._commit(part)
        self._copy()

    def _commit(self, part: Part) -> None:
        shutil.rmtree(self._new, ignore_errors=True)
        # Where a try fails, threads of Zarr may still write what belongs to it.
        new, place = self._new / str(next(self._tries)), len(self.done)
        group = zarr.create_group(new, zarr_format=3)
        own = {"step": np.array([part.step], "int64"), "time": np.array(list(part.times)[:1], "float64")}
        for name, data in own.items():
            group.create_array(name, data=data, chunks=(1,), dimension_names=("step",), config=_ALL_CHUNKS)
        for name, variable in self._variables.items():
            self._array(group, name, variable, part)
        metadata = {}
        for name in (*own, *self._variables):
            folder = new / name
            entry = json.loads((folder / "zarr.json").read_text())
            entry["shape"][0] = place + 1
            metadata[name] = entry
            chunks = folder / "c" / "0"
            for path in (chunks, *chunks.rglob("*")):
                sync_file(path)
            target = self._path / name / "c" / str(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(chunks, target)
            for path in (target, target.parent, target.parent.parent):
                sync_file(path)
        step, news = str(part.step), self._news(part)
        missing = self._missing | ({step: list(part.missing)} if part.missing else {})
        changes = self._changes | ({step: {str(rank): life for rank, life in news.items()}} if news else {})
        self._write(metadata, {"missing": missing, "writers": changes})
        self._metadata, self._missing, self._changes = metadata, missing, changes
        self._committed(part, news)
        shutil.rmtree(self._new, ignore_errors=True)

    def _copy(self) -> None:
        """Brings the metadata of each array up to that of the group, for readers that look at one array."""
        for name, metadata in self._metadata.items():
            made = self._path / _ASIDE
            made.write_text(json.dumps(metadata))
            os.replace(made, self._path / name / "zarr.json")

    def _array(self, group: Any, name: str, variable: Variable, part: Part) -> None:
        shape, known = whole_shape(variable, ()), self._metadata.get(name)
        before = tuple(known["chunk_grid"]["configuration"]["chunk_shape"][1:]) if known else None
        chunk, found = chunked(part, variable, shape, before)
        dtype, level = np.dtype(f"<{variable.dtype}"), self._compression
        array = group.create_array(
            name, shape=(1, *shape), chunks=(1, *chunk), dtype=dtype, fill_value=fill_value(dtype).item(),
            dimension_names=("step", *variable.dimensions), attributes=dict(variable.attributes),
            compressors=BloscCodec(cname="zstd", clevel=level) if level else None, config=_ALL_CHUNKS,
        )  # fmt: skip
        for where, block in found:
            array[(0, *where)] = block

    def _write(self, metadata: Mapping[str, Any], noted: Mapping[str, Any]) -> None:
        """Replaces the group's metadata."""
        group = {
            "zarr_format": 3, "node_type": "group",
            "attributes": {"evflow": self._note, **noted},
            "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": metadata},
        }  # fmt: skip
        made = self._path / _ASIDE
        made.write_text(json.dumps(group))
        publish(made, self._file)
