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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from evflow.disk import OwnFile
from evflow.errors import StagingError
from evflow.outside import shown
from evflow.staging.gathering import Part
from evflow.staging.model import Variable, whole_shape
from evflow.staging.stores import check_described, described, places, publish, sync

_ASIDE = ".zarr.json.new"
_ALL_CHUNKS: Any = {"write_empty_chunks": True}


class ZarrStore:
    """Steps in Zarr.

    Args:
        path: the folder of the group.
        variables: what each step has; none of them open.
    """

    def __init__(self, path: Path, variables: Mapping[str, Variable]) -> None:
        for variable in variables.values():
            if variable.open:
                raise StagingError(
                    f"variable {variable.name}: Zarr needs a shape without None; choose a .h5 store"
                )
        self._path, self._variables = path, variables
        self._file = path / "zarr.json"
        self._new = path / ".new"
        path.mkdir(parents=True, exist_ok=True)
        self._own = OwnFile(path)
        try:
            if not self._file.exists():
                if {found.name for found in path.iterdir()} - {_ASIDE, self._new.name}:
                    raise StagingError(
                        f"store {path}: it has files, and no zarr.json; remove it, or choose another store"
                    )
                self._write({}, {})
            group = json.loads(self._file.read_text())
            check_described(path, group.get("attributes", {}).get("evflow"), variables)
            self._metadata: dict[str, Any] = group["consolidated_metadata"]["metadata"]
            self._missing: dict[str, list[int]] = group["attributes"]["missing"]
            self._copy()
            steps: Any = zarr.open_array(path / "step", mode="r")[:] if self._metadata else ()
            self.done = {int(step): tuple(self._missing.get(str(step), ())) for step in steps}
        except BaseException as error:
            self._own.close()
            if isinstance(error, ValueError | KeyError | AttributeError | TypeError):
                raise StagingError(f"store {path}: not a store of evflow: {shown(error)}") from None
            raise

    def commit(self, part: Part) -> None:
        shutil.rmtree(self._new, ignore_errors=True)
        place = len(self.done)
        group = zarr.create_group(self._new, zarr_format=3)
        for name, values in (("step", [part.step]), ("time", list(part.times)[:1])):
            dtype = "int64" if name == "step" else "float64"
            array = group.create_array(
                name, shape=(1,), chunks=(1,), dtype=dtype, dimension_names=("step",), config=_ALL_CHUNKS
            )
            array[:] = np.array(values)
        for name, variable in self._variables.items():
            self._array(group, name, variable, part)
        metadata = {}
        for name in ("step", "time", *self._variables):
            folder = self._new / name
            entry = json.loads((folder / "zarr.json").read_text())
            entry["shape"][0] = place + 1
            metadata[name] = entry
            chunks = folder / "c" / "0"
            files = [path for path in chunks.rglob("*") if path.is_file()] if chunks.is_dir() else [chunks]
            sync([*files, *(path for path in chunks.rglob("*") if path.is_dir())])
            target = self._path / name / "c" / str(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(chunks, target)
            sync([target, target.parent, target.parent.parent])
        missing = self._missing | ({str(part.step): list(part.missing)} if part.missing else {})
        self._write(metadata, missing)
        self._metadata, self._missing = metadata, missing
        self.done[part.step] = part.missing
        self._copy()

    def _copy(self) -> None:
        """Brings the metadata of each array up to that of the group, for readers that look at one array."""
        for name, metadata in self._metadata.items():
            made = self._path / _ASIDE
            made.write_text(json.dumps(metadata))
            os.replace(made, self._path / name / "zarr.json")

    def _array(self, group: Any, name: str, variable: Variable, part: Part) -> None:
        shape = whole_shape(variable, ())
        found = places(part, name)
        # A chunk a block where blocks are alike, so that none is read before it is written.
        chunk = found[0][1].shape if found else shape
        aligned = all(
            s.start % n == 0 and (s.stop - s.start == n or s.stop == size)
            for where, _ in found
            for s, n, size in zip(where, chunk, shape, strict=True)
        )
        known = self._metadata.get(name)
        if known:
            chunks = tuple(known["chunk_grid"]["configuration"]["chunk_shape"])
        else:
            chunks = (1, *(chunk if aligned else shape))
        dtype = np.dtype(f"<{variable.dtype}")
        fill = np.nan if dtype.kind == "f" else int(np.iinfo(dtype).min)
        array = group.create_array(
            name, shape=(1, *shape), chunks=chunks, dtype=dtype, fill_value=fill, compressors=None,
            dimension_names=("step", *variable.dimensions), attributes=dict(variable.attributes),
            config=_ALL_CHUNKS,
        )  # fmt: skip
        for where, block in found:
            array[(0, *where)] = block

    def _write(self, metadata: Mapping[str, Any], missing: Mapping[str, list[int]]) -> None:
        """Replaces the group's metadata."""
        group = {
            "zarr_format": 3, "node_type": "group",
            "attributes": {"evflow": described(self._variables), "missing": missing},
            "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": metadata},
        }  # fmt: skip
        made = self._path / _ASIDE
        made.write_text(json.dumps(group))
        publish(made, self._file)

    def close(self) -> None:
        self._own.close()
