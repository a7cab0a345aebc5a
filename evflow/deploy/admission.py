"""What a node admits: the handlers, files and sizes that a graph of somebody else may ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from evflow.disk import advice, private_folder
from evflow.errors import DeployError, GraphError
from evflow.graph.handlers import is_handler_text, is_made_in
from evflow.graph.kinds import announced, checked_class, place_of, stone_class
from evflow.outside import shown
from evflow.stone import Stone
from evflow.stones.naming import file_name

MOST_CODE = 64 << 10
"""Characters that a stone function may have."""

MOST_FUEL = 100_000_000
"""Fuel that one call of a stone function may have: about a second."""


class Admission:
    """What a node admits.

    Args:
        handlers: what deployed graphs may import: modules (``"alerts"``, with the functions and classes that
            the module itself defines, or lists in ``__all__``) and single functions (``"alerts:show"``) and
            classes of stones; or a mapping, text → function or class, of what this program gives.
        folder: where files of deployed stones lie.

    Raises:
        DeployError: a text names neither a module nor a function.
    """

    def __init__(self, handlers: Iterable[str] | Mapping[str, Callable[..., object]], folder: Path) -> None:
        if isinstance(handlers, str) or not isinstance(handlers, Iterable):
            raise DeployError(
                f"handlers {shown(handlers, 300)}: expected a list of modules and functions, such as "
                "['alerts'], or a mapping from 'module:function' to functions"
            )
        self.own = dict(handlers) if isinstance(handlers, Mapping) else {}
        self.listed = () if isinstance(handlers, Mapping) else tuple(handlers)
        self._folder = folder
        # While there are files left to open.
        announced()
        for text in (*self.own, *self.listed):
            module = all(part.isidentifier() for part in text.split("."))
            if not (is_handler_text(text) or (module and text not in self.own)):
                raise DeployError(f"handler {text!r}: expected 'module:function' or, in a list, a module")

    def refusal(self, stone: Stone) -> str:
        """Why a stone is not admitted; "" if it is."""
        for text in stone.imports:
            if refusal := self._refused_import(text):
                return refusal
        for file in (*stone.files, *stone.reads):
            if file.is_absolute() or ".." in file.parts or not file.name or "\0" in str(file):
                return f"file {shown(str(file), 300)}: expected a name within the node's storage folder"
        code, fuel = getattr(stone, "code", ""), getattr(stone, "fuel", 0)
        if isinstance(code, str) and len(code) > MOST_CODE:
            return f"its function has {len(code)} characters; expected at most {MOST_CODE}"
        if fuel > MOST_FUEL:
            return f"its function may spend {fuel} units of fuel; expected at most {MOST_FUEL}"
        return ""

    def stone_class(self, kind: str) -> type[Stone]:
        """The class of a kind that is not one of evflow's own, which a stone of a graph has.

        Raises:
            DeployError: the node does not admit the class.
            GraphError: there is no such kind, or its class cannot be imported.
        """
        place = place_of(kind)
        if place in self.own:
            return checked_class(place, self.own[place])
        if refusal := self._refused_import(place, "stone class"):
            raise DeployError(refusal)
        return stone_class(place)

    def _refused_import(self, text: str, what: str = "handler") -> str:
        """Why a graph may not import what a text names; "" if it may."""
        if text in self.own or text in self.listed:
            return ""
        module, _, path = text.partition(":")
        if module not in self.listed:
            allowed = ", ".join((*self.own, *self.listed)) or "none"
            return f"{what} {text!r} is not on this node's list ({allowed}); start it with --allow {module}"
        try:
            made = not path or is_made_in(module, path, what)
        except GraphError as error:
            return str(error)
        if made:
            return ""
        return (
            f"{what} {text!r}: module {module!r} does not define {path!r} itself, so --allow {module} does "
            f"not let graphs name it; list it in __all__ of {module!r}, or start the node with --allow {text}"
        )

    def keep_files(self, stone: Stone, deployment: str) -> None:
        """Leads the files of a stone, its own and those that it reads, to the node's folder.

        Raises:
            DeployError: they cannot be there.
        """
        if not stone.files and not stone.reads:
            return
        stone.keep_in(self._folder / "files" / file_name(deployment))
        for file in stone.files:
            try:
                private_folder(file.parent)
                is_folder = file.is_dir()
            except OSError as error:
                raise DeployError(
                    f"file {shown(file.name, 300)} cannot be made: {error.strerror}; {advice(error)}"
                ) from error
            if is_folder:
                raise DeployError(f"file {file.name!r} is a folder")
