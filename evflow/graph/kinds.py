"""Kinds of stones: evflow's own, those that installed packages announce, and ``module:Class``.

A stone as plain data has its kind, its settings and, unless its class is evflow's own, what the class
declares: the inputs, what leaves it, and the like. So a host on which it does not run need not have the
class: an ``Absent`` stone stands there for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from evflow.errors import EvflowError, GraphError
from evflow.graph.handlers import imported, is_handler_text
from evflow.mishaps import CONTAINED, named
from evflow.outside import shown
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Compiled, Context, Stone

GROUP = "evflow.stones"
"""The group of entry points by which packages announce kinds of stones."""

KINDS: dict[str, str] = {
    "source": "evflow.stones.source:Source",
    "split": "evflow.stones.split:Split",
    "filter": "evflow.stones.filter:Filter",
    "transform": "evflow.stones.transform:Transform",
    "router": "evflow.stones.router:Router",
    "generator": "evflow.stones.generator:Generator",
    "queue": "evflow.stones.queue:Queue",
    "match": "evflow.stones.match:Match",
    "spark source": "evflow.spark.source:SparkSource",
    "spark sink": "evflow.spark.sink:SparkSink",
    "bridge": "evflow.stones.bridge:Bridge",
    "storage": "evflow.stones.storage:Storage",
    "terminal": "evflow.stones.terminal:Terminal",
}
"""Every kind of stone of evflow's own and where its class is; imported on use."""

_OWN = {place: kind for kind, place in KINDS.items()}

_RULES = ("one", "any", "free", "none")

Find = Callable[[str], type[Stone] | None]
"""Gives the class of a kind; None if an ``Absent`` stone is to take its place."""


# --- where a kind's class is


@cache
def announced() -> Mapping[str, tuple[str, ...]]:
    """Kind → the places that installed packages announce for it; looked for once, and nothing is imported."""
    found: dict[str, tuple[str, ...]] = {}
    # Found when it is needed: it takes longer to load than all the rest of this module.
    for point in import_module("importlib.metadata").entry_points(group=GROUP):
        if point.name not in KINDS:
            found[point.name] = tuple(sorted({*found.get(point.name, ()), point.value.replace(" ", "")}))
    return found


def place_of(kind: object) -> str:
    """Where the class of a kind is, ``module:Class``.

    Args:
        kind: one of evflow's own, one that an installed package announces, or ``module:Class``.

    Raises:
        GraphError: there is no such kind, or two packages announce it.
    """
    if not isinstance(kind, str):
        raise GraphError(f"stone kind {shown(kind, 300)}: expected a text")
    if kind in KINDS:
        return KINDS[kind]
    if is_handler_text(kind):
        return kind
    places = announced().get(kind, ())
    if len(places) > 1:
        raise GraphError(
            f"stone kind {kind!r} is announced by several packages, as {' and as '.join(places)}; give "
            "one of these as the kind"
        )
    if not places:
        known = ", ".join((*KINDS, *sorted(announced())))
        raise GraphError(
            f"stone kind {shown(kind, 300)} is not known; expected one of {known}, or 'module:Class'; a "
            f"package that announces kinds (entry points {GROUP!r}) has to be installed here"
        )
    return places[0]


def stone_class(kind: str) -> type[Stone]:
    """The class of a kind of stone.

    Raises:
        GraphError: there is no such kind, or its class cannot be imported.
    """
    place = place_of(kind)
    module, _, name = place.partition(":")
    if kind in KINDS:
        own: type[Stone] = getattr(import_module(module), name)
        return own
    return checked_class(place, imported(module, name, "stone class"))


def checked_class(place: str, found: object) -> type[Stone]:
    """What is at a place, if that is the class of a stone.

    Raises:
        GraphError: it is not.
    """
    if isinstance(found, type) and issubclass(found, Stone):
        return found
    raise GraphError(
        f"stone class {place!r}: expected a class that derives from evflow.stone.Acting or another stone, "
        f"found {shown(found, 300)}"
    )


def _text_of(name: str, stone: Stone) -> str:
    """The kind of a stone as data has it: the shortest that names just its class."""
    found = type(stone)
    place = f"{found.__module__}:{found.__qualname__}"
    if KINDS.get(stone.kind) == place:
        return stone.kind
    for kind, places in announced().items():
        if len(places) == 1 and _loaded(places[0]) is found:
            return kind
    if _loaded(place) is found:
        return place
    raise GraphError(
        f"stone {name!r}: its class {found.__qualname__} cannot be named as 'module:Class', so the graph "
        "cannot be written as data; define it with 'class' at the top of a module"
    )


def _loaded(place: str) -> object:
    """What is at a place, if the module was imported before."""
    module, _, path = place.partition(":")
    found: object = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def is_own(stone: Stone) -> bool:
    """Whether the class of a stone is one of evflow's own kinds, and nothing that derives from one."""
    found = type(stone)
    return KINDS.get(stone.kind) == f"{found.__module__}:{found.__qualname__}"


def own_kind(stone: Stone) -> str:
    """Which of evflow's own kinds a stone is of, or its class derives from; "" for none. Its label does not
    count."""
    if isinstance(stone, Absent):
        return stone.derives
    for found in type(stone).__mro__:
        if kind := _OWN.get(f"{found.__module__}:{found.__qualname__}"):
            return kind
    return ""


def class_text(stone: Stone) -> str:
    """What tells a stone's class from all others: the kind of one of evflow's own, or ``module:Class``."""
    return stone.kind if is_own(stone) else f"{type(stone).__module__}:{type(stone).__qualname__}"


def imports_of(stone: Stone) -> tuple[str, ...]:
    """All that has to be imported for a stone where it runs, as ``module:name``: its handlers, and its class
    unless that is evflow's own."""
    if isinstance(stone, Absent) or is_own(stone):
        return stone.imports
    return (f"{type(stone).__module__}:{type(stone).__qualname__}", *stone.imports)


# --- stones as data


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    """Whatever a class of somebody else raises becomes an error that names the stone."""
    try:
        yield
    except EvflowError as error:
        raise GraphError(f"{what}: {error}") from error
    except CONTAINED as error:
        raise GraphError(f"{what}: {named(error)}") from error


def described(name: str, stone: Stone) -> dict[str, Any]:
    """A stone as plain data: ``kind``, ``settings`` and, unless its class is evflow's own, ``declares``.

    Args:
        name: the stone's name, for errors.
        stone: the stone.

    Raises:
        GraphError: its class cannot be named, or what it says of itself is not what it should be.
        EvflowError: what ``settings`` of one of evflow's own stones raises.
    """
    if isinstance(stone, Absent):
        return dict(stone.entry)
    if is_own(stone):
        return {"kind": stone.kind, "settings": stone.settings()}
    what = f"stone {name!r} ({stone.kind})"
    text = _text_of(name, stone)
    with _blaming(f"{what}: settings()"):
        settings = _plain(stone)
    return {"kind": text, "settings": settings, "declares": declared(what, stone)}


def _plain(stone: Stone) -> dict[str, Any]:
    settings = stone.settings()
    kept = sorted(vars(stone).keys() - {"name", "on"})
    if type(stone).settings is Stone.settings and kept:
        raise GraphError(
            f"the class has none of its own, but the stone has {', '.join(kept)}; return what its "
            "constructor takes"
        )
    if not isinstance(settings, dict):
        raise GraphError(f"expected a dict, found {shown(settings, 300)}")
    try:
        text = json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise GraphError(f"expected plain data, as JSON has it: {error}") from None
    # As it comes back from where it is sent.
    plain: dict[str, Any] = json.loads(text)
    return plain


def declared(what: str, stone: Stone) -> dict[str, Any]:
    """What the class of a stone declares, as plain data.

    Args:
        what: names the stone in errors.
        stone: a stone whose class is not one of evflow's own.

    Raises:
        GraphError: something of it is not what it should be.
    """
    with _blaming(f"{what}: inputs"):
        inputs = {_text(key): _description(schema) for key, schema in dict(stone.inputs).items()}
    emits = None
    if type(stone).emits is not Stone.emits:
        with _blaming(f"{what}: emits(None)"):
            emits = [_description(schema) for schema in _tuple(stone.emits(None))]
    with _blaming(f"{what}: imports"):
        imports = [_text(text) for text in _tuple(stone.imports)]
    ticks = isinstance(stone, Compiled) and stone.period is not None
    found = {
        "kind": stone.kind, "inputs": inputs, "emits": emits, "imports": imports,
        "linked_ports": stone.linked_ports, "entrance": stone.entrance,
        "wakes": ticks or (isinstance(stone, Acting) and stone.wakes),
        "buffers": isinstance(stone, Acting) and stone.buffers, "derives": own_kind(stone),
    }  # fmt: skip
    if stone.emits_by_port:
        found["emits_by_port"] = True
    _check_declared(what, found)
    return found


def _check_declared(what: str, found: Mapping[str, Any]) -> None:
    if not isinstance(found["kind"], str) or not 0 < len(found["kind"]) <= 200:
        raise GraphError(f"{what}: kind {shown(found['kind'], 300)}: expected a text of 1 to 200 characters")
    if found["linked_ports"] not in _RULES:
        raise GraphError(
            f"{what}: linked_ports {shown(found['linked_ports'], 300)}: expected one of {', '.join(_RULES)}"
        )
    if found["derives"] not in ("", *KINDS):
        raise GraphError(
            f"{what}: derives {shown(found['derives'], 300)}: expected the kind of stone of evflow that the "
            'class derives from, or ""'
        )
    flags = {flag: found[flag] for flag in ("entrance", "wakes", "buffers")}
    for flag, value in (*flags.items(), ("emits_by_port", found.get("emits_by_port", False))):
        if not isinstance(value, bool):
            raise GraphError(f"{what}: {flag} {shown(value, 300)}: expected True or False")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise GraphError(f"expected texts, found {shown(value, 300)}")
    return value


def _tuple(value: object) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise GraphError(f"expected a tuple, found {shown(value, 300)}")
    return tuple(value)


def _description(schema: object) -> dict[str, Any] | None:
    if schema is not None and not isinstance(schema, Schema):
        raise GraphError(f"expected schemas, such as Reading.schema, or None; found {shown(schema, 300)}")
    return None if schema is None else schema.description


# --- data as stones


def made(entry: Mapping[str, Any], find: Find | None = None) -> Stone:
    """The stone that an entry of a graph's data describes, named and placed as the entry says.

    Args:
        entry: what ``described`` gave, with ``name`` and ``on``.
        find: gives the class of a kind that is not evflow's own; None for an ``Absent`` stone. By default the
            class is imported; where that fails, but the entry has what the class declares, it is ``Absent``.

    Raises:
        GraphError: the kind is not known, or the settings make no stone.
        KeyError, TypeError, ValueError, AttributeError: the entry is malformed.
    """
    kind, settings, name = entry["kind"], entry["settings"], entry["name"]
    if isinstance(kind, str) and kind in KINDS:
        stone = stone_class(kind).from_settings(settings)
    else:
        stone = _made_elsewhere(kind, entry, find)
    stone.name, stone.on = name, entry["on"]
    return stone


def _made_elsewhere(kind: str, entry: Mapping[str, Any], find: Find | None) -> Stone:
    why = "it is not looked for here"
    try:
        found = stone_class(kind) if find is None else find(kind)
    except GraphError as error:
        if find is not None or "declares" not in entry:
            raise
        found, why = None, str(error)
    return Absent(entry, why) if found is None else _constructed(found, entry)


def absent(kind: str) -> None:
    """For ``made``: imports nothing, so that stones of classes that are not evflow's own are ``Absent``."""


def loaded(kind: str) -> type[Stone] | None:
    """For ``made``: the class, if this program has imported it before."""
    try:
        found = _loaded(place_of(kind))
    except GraphError:
        return None
    return found if isinstance(found, type) and issubclass(found, Stone) else None


def _constructed(found: type[Stone], entry: Mapping[str, Any]) -> Stone:
    what = f"stone {shown(entry['name'], 300)} ({entry['kind']})"
    with _blaming(f"{what} cannot be made of its settings {shown(entry['settings'], 300)}"):
        stone: object = found.from_settings(entry["settings"])
        if not isinstance(stone, found):
            raise GraphError(f"from_settings gave {shown(stone, 300)}; expected a {found.__qualname__}")
    return stone


def check_declared(name: str, entry: Mapping[str, Any], stone: Stone) -> None:
    """Refuses a stone whose class declares here what it did not declare where the graph was written.

    Args:
        name: the stone's name, for errors.
        entry: what describes it.
        stone: what was made of that.

    Raises:
        GraphError: something differs, or is not what it should be.
    """
    what = f"stone {name!r} ({stone.kind})"
    here, there = declared(what, stone), entry["declares"]
    for key in here:
        if here[key] != there[key]:
            raise GraphError(
                f"{what}: its class declares {key} {shown(here[key], 300)} here, and "
                f"{shown(there[key], 300)} where the graph was written; have the same version of "
                f"{entry['kind']} on both, and deploy again"
            )


class Absent(Acting):
    """Stands for a stone whose class is not there: it can be placed, linked, drawn and written, but not run.

    Args:
        entry: what describes the stone.
        why: why its class is not there.

    Raises:
        GraphError: the entry does not say what the class declares, or that is malformed.

    Attributes:
        entry: ``kind``, ``settings`` and ``declares`` of what describes the stone.
        derives: the kind of evflow's own that its class derives from; "" for none.
    """

    def __init__(self, entry: Mapping[str, Any], why: str) -> None:
        super().__init__()
        text = f"stone {shown(entry['name'], 300)} ({shown(entry['kind'], 300)})"
        if not isinstance(entry["kind"], str) or not isinstance(entry.get("declares"), dict):
            raise GraphError(
                f"{text}: the graph's data does not say what the stone's class declares; write it with "
                "Graph.to_dict where the class is"
            )
        declares = entry["declares"]
        _check_declared(text, declares)
        self.kind = declares["kind"]
        self.entry = {"kind": entry["kind"], "settings": entry["settings"], "declares": declares}
        self.derives: str = declares["derives"]
        self.linked_ports = declares["linked_ports"]
        self.entrance, self.wakes, self.buffers = (declares[key] for key in ("entrance", "wakes", "buffers"))
        self.emits_by_port = declares.get("emits_by_port", False)
        self._why = why
        self._imports = tuple(map(_text, declares["imports"]))
        self._inputs = {_text(key): _schema(schema) for key, schema in declares["inputs"].items()}
        self._emits = None if declares["emits"] is None else tuple(map(_schema, _tuple(declares["emits"])))

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return self._inputs

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return (schema,) if self._emits is None else self._emits

    @property
    def imports(self) -> tuple[str, ...]:
        kind = self.entry["kind"]
        place = kind if ":" in kind else (*announced().get(kind, ()), kind)[0]
        return (place, *self._imports)

    def settings(self) -> dict[str, Any]:
        return self.entry

    def check(self) -> None:
        raise GraphError(f"the class of this stone is needed to run it: {self._why}")

    def open(self, context: Context) -> Actor:
        raise GraphError(f"the class of this stone is needed to run it: {self._why}")


def _schema(description: object) -> Schema | None:
    return None if description is None else Schema.from_description(description)
