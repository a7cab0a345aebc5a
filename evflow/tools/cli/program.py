"""A user's file as a graph, and errors in it as lines of that file."""

from __future__ import annotations

import importlib.util
import sys
import tokenize
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from evflow.errors import CodeError, EvflowError, GraphError
from evflow.graph.graph import Graph
from evflow.mishaps import named, sound
from evflow.outside import from_json
from evflow.stone import Stone

if TYPE_CHECKING:
    from evflow.deploy.handle import Deployment
    from evflow.flow.flow import Flow

_MODULE = "evflow_program"


@dataclass(frozen=True)
class Program:
    """What a graph file holds.

    Attributes:
        file: the file.
        graph: its graph.
        feed: its function that submits events, if it has one.
    """

    file: Path
    graph: Graph
    feed: Callable[[Any], object] | None = None

    def call_feed(self, flow: Flow | Deployment) -> None:
        """Calls ``feed``.

        Raises:
            EvflowError: it fails; names the line of the file.
        """
        assert self.feed is not None
        try:
            self.feed(flow)
        except Exception as error:
            raise located(self.file, error) from error


def load(file: Path, name: str | None = None) -> Program:
    """Reads a graph file: Python, or the JSON of ``Graph.to_dict``.

    Args:
        file: the file.
        name: the graph's name, or its variable's, where there are several.

    Raises:
        EvflowError: the file fails, or holds no such graph.
    """
    if (context := click.get_current_context(silent=True)) is not None:
        # Where the functions are that an error may be about: see ``Main``.
        context.meta["evflow.file"] = file
    if file.suffix == ".json":
        try:
            return Program(file, Graph.from_dict(from_json(file.read_text(encoding="utf-8"))))
        except ValueError as error:
            raise GraphError(f"{file}: expected a graph as JSON: {error}") from error
    module = _execute(file)
    feed = getattr(module, "feed", None)
    return Program(file, _pick(file, vars(module), name), feed if callable(feed) else None)


def variable(file: Path, name: str) -> Stone:
    """A stone that a Python file makes.

    Raises:
        EvflowError: the file fails, or has no such variable.
    """
    module = _execute(file)
    found = getattr(module, name, None)
    if not isinstance(found, Stone):
        raise GraphError(f"{file} makes no stone {name!r}: expected a variable such as probe = ev.Filter(…)")
    return found


def _execute(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, file)
    if spec is None or spec.loader is None:
        raise GraphError(f"{file}: expected a Python file (.py) or a graph as JSON (.json)")
    module = importlib.util.module_from_spec(spec)
    # As with `python FILE`: the file finds those beside it. Its classes are found by their module's name.
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[_MODULE] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise located(file, error) from error
    return module


def _pick(file: Path, variables: dict[str, Any], name: str | None) -> Graph:
    graphs = {key: value for key, value in variables.items() if isinstance(value, Graph)}
    if not graphs:
        raise GraphError(f"{file} makes no graph: expected a variable such as g = ev.Graph('trades')")
    if name is not None:
        for key, graph in graphs.items():
            if name in (key, graph.name):
                return graph
        raise GraphError(f"{file} makes no graph {name!r}; it makes {_listed(graphs)}")
    for key in ("graph", "g"):
        if key in graphs:
            return graphs[key]
    different = list({id(graph): graph for graph in graphs.values()}.values())
    if len(different) > 1:
        raise GraphError(f"{file} makes several graphs, {_listed(graphs)}; say which with --graph NAME")
    return different[0]


def _listed(graphs: dict[str, Graph]) -> str:
    return ", ".join(f"{key} ({graph.name})" for key, graph in graphs.items())


def located(file: Path, error: BaseException) -> EvflowError:
    """An error that came out of a user's file, with the line of that file."""
    error = sound(error)
    line, text = None, str(error) if isinstance(error, EvflowError) else ""
    if isinstance(error, SyntaxError) and Path(error.filename or "").resolve() == file.resolve():
        # Its own text would name the file and the line again.
        line, text = error.lineno, f"{type(error).__name__}: {error.msg}"
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).resolve() == file.resolve():
            line = frame.lineno
    place = str(file) if line is None else f"{file}:{line}"
    return GraphError(f"{place}: {text or named(error)}")


def where(file: Path, error: CodeError) -> str:
    """The place in a user's file of the function that an error is about, if it stands there once."""
    if file.suffix == ".json":
        return ""
    with tokenize.open(file) as source:
        text = source.read()
    at = text.find(error.source) if error.source.strip() else -1
    if at < 0 or text.find(error.source, at + 1) >= 0:
        return f"{file}: "
    return f"{file}:{text.count(chr(10), 0, at) + error.line}: "
