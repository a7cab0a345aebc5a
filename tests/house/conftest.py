"""What the tests of the house share: the checkout, its files, and fresh interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import evflow
from tests import preloaded

FOLDERS = ("evflow", "codgen", "gpu", "stones", "examples", "benchmarks", "tests", "docs")


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The folder that holds setup.py."""
    return Path(__file__).parents[2]


@pytest.fixture(scope="session")
def files(checkout: Path) -> list[Path]:
    """The project's own files, each once: the links in evflow/ are not followed."""
    top = [path for path in checkout.iterdir() if path.is_file()]
    deep = [
        Path(folder, name)
        for start in FOLDERS
        for folder, _, names in os.walk(checkout / start)
        for name in names
        if not {"__pycache__", "results", "machine"} & set(Path(folder).parts)
    ]
    return sorted(top + deep)


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """An environment whose Python imports the evflow under test from any folder."""
    assert evflow.__file__ is not None
    return os.environ | {"PYTHONPATH": str(Path(evflow.__file__).parents[1]), "PYTHONWARNINGS": "error"}


@pytest.fixture
def python(environment: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """Runs a fresh interpreter in a temporary folder and gives what it printed."""

    def run(*arguments: str | Path) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8"
        )
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def program(environment: dict[str, str], tmp_path: Path) -> Callable[[Path], str]:
    """Runs a file in a temporary folder, where the package is loaded already, and gives what it printed."""

    return partial(preloaded.printed, env=environment, cwd=tmp_path)
