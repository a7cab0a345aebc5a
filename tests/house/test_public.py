from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import evflow

CHECKOUT = Path(__file__).parents[2]


def _source(module: pkgutil.ModuleInfo) -> str:
    spec = module.module_finder.find_spec(module.name, None)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text()


EXAMPLES = sorted((CHECKOUT / "examples").glob("*.py"))
MODULES = [
    module
    for module in pkgutil.walk_packages(evflow.__path__, "evflow.")
    if not module.name.endswith("__main__")
]
WITH_EXAMPLES = [module.name for module in MODULES if ">>> " in _source(module)]
EXTRAS = {"h5py", "numba", "pycuda", "pyspark", "websockets", "zarr"}
"""Packages that a user adds for one part of evflow, and that the tests do without."""


def test_public_names_are_there() -> None:
    assert len(set(evflow.__all__)) == len(evflow.__all__)
    assert [name for name in evflow.__all__ if not hasattr(evflow, name)] == []


def test_dir_shows_every_public_name() -> None:
    assert set(evflow.__all__) <= set(dir(evflow))


@pytest.mark.parametrize("name", [name for name in evflow.__all__ if not name.startswith("__")])
def test_public_name_has_a_docstring(name: str) -> None:
    thing = getattr(evflow, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert inspect.getdoc(thing), f"evflow.{name} has no docstring"
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if inspect.isfunction(value) and not member.startswith("_"):
                assert inspect.getdoc(getattr(thing, member)), f"evflow.{name}.{member} has no docstring"


def _imported(module: str) -> ModuleType | None:
    """A module; None if it needs one of the extras, and that is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name not in EXTRAS:
            raise
        return None


def test_every_module_can_be_imported() -> None:
    for module in MODULES:
        _imported(module.name)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_doctests_pass(module: str) -> None:
    if (loaded := _imported(module)) is None:
        pytest.skip("needs an extra")
    assert doctest.testmod(loaded, optionflags=doctest.ELLIPSIS).failed == 0


# Those of Spark share a session: see tests/spark/test_examples.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    "example", [path for path in EXAMPLES if not path.stem.startswith("spark_")], ids=lambda path: path.stem
)
def test_example_runs_and_prints(example: Path, program: Callable[[Path], str]) -> None:
    assert program(example).strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_holds_one_idea(example: Path) -> None:
    # One has to make the hosts that it is about.
    most = 150 if example.stem == "three_hosts" else 80
    assert 10 <= len(example.read_text().splitlines()) <= most
