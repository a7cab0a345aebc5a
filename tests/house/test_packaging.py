from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from evflow.matching import objects

ROOTS = {"evflow": "evflow", "codgen": "evflow/codgen", "gpu": "evflow/gpu", "stones": "evflow/stones"}
OWN = Path("evflow/spark/pyspark_evflow")
"""A folder that installs as a package of its own, beside evflow."""
DATA = {".css", ".cu", ".cuh", ".html", ".js", ".json", ".txt", ".typed"}


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy, so that nothing left by an earlier build can get into it."""
    copy = tmp_path_factory.mktemp("build") / "evflow"
    copy.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(checkout / name, copy)
    for folder in ROOTS:
        shutil.copytree(checkout / folder, copy / folder, symlinks=True)
    command = "-m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .".split()
    subprocess.run([sys.executable, *command], cwd=copy, check=True)
    (path,) = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.mark.slow
def test_wheel_holds_every_file_of_the_tree_and_no_other(
    wheel: zipfile.ZipFile, checkout: Path, files: list[Path]
) -> None:
    expected = set()
    for path in files:
        within = path.relative_to(checkout)
        folder, *rest = within.parts
        if within.is_relative_to(OWN):
            expected.add(str(within.relative_to(OWN.parent)))
        elif folder in ROOTS and (path.suffix == ".py" or path.suffix in DATA):
            expected.add("/".join([ROOTS[folder], *rest]))
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    if importlib.util.find_spec("numba") is not None:
        expected |= {f"evflow/matching/machine/{target}" for target in objects.targets()}
    assert packed == expected
    assert "evflow/py.typed" in packed


@pytest.mark.slow
def test_wheel_installs_the_command_and_the_licence(wheel: zipfile.ZipFile) -> None:
    (points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert re.search(r"^evflow *= *evflow\.tools\.cli:main$", wheel.read(points).decode(), re.MULTILINE)
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_folders_are_linked_into_the_package(checkout: Path) -> None:
    for folder in ("codgen", "gpu", "stones"):
        link = checkout / "evflow" / folder
        assert link.is_symlink()
        assert link.resolve() == checkout / folder
