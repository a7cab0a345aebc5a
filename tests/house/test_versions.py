"""Which Pythons are found to run the quick tests with, and what is said of those that cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import versions


def python(path: Path, said: str) -> Path:
    """A program that says it is a Python of some version, and can do nothing else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && echo {said} || {{ echo "no module named $2" >&2; exit 1; }}\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with Pythons in PATH, of pyenv and of uv; a virtual environment; another implementation."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    python(tmp_path / "bin/python3.12", "cpython 3 12 1 final")
    python(tmp_path / "bin/python3.12-config", "cpython 3 12 9 final")
    python(tmp_path / "pyenv/versions/3.11.7/bin/python", "cpython 3 11 7 final")
    python(tmp_path / "pyenv/versions/3.12.4/bin/python", "cpython 3 12 4 final")
    python(tmp_path / "pyenv/versions/3.15/bin/python", "cpython 3 15 0 beta")
    python(tmp_path / "uv/three/bin/python3", "cpython 3 14 0 final")
    python(tmp_path / "uv/pypy/bin/python3", "pypy 3 13 0 final")
    python(tmp_path / "uv/own/bin/python3", "cpython 3 13 0 final")
    (tmp_path / "uv/own/pyvenv.cfg").touch()
    return tmp_path


def test_newest_python_of_each_version_is_found(host: Path) -> None:
    assert versions.newest_of_each(versions.pythons(versions.places())) == [
        ((3, 12, 4), host / "pyenv/versions/3.12.4/bin/python"),
        ((3, 14, 0), host / "uv/three/bin/python3"),
    ]


def test_python_that_cannot_have_the_dependencies_is_named(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert versions.main(["--pythons"]) == 0
    said = capsys.readouterr().out.splitlines()[-2:]
    assert said == [
        f"Python {number}: {versions.MISSING}: no module named venv" for number in ("3.12.4", "3.14.0")
    ]
