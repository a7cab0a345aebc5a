"""Morphs: how events of a newer schema become those of an older one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evflow.schema import Schema

if TYPE_CHECKING:
    from evflow.codgen.tree import Function


@dataclass(frozen=True)
class Morph:
    """Cod that turns events of ``new`` into events of ``old`` (EVPath paper, section 3.4)."""

    new: Schema
    old: Schema
    code: str

    def function(self, actual: Schema) -> Function:
        """The morph as a transform of events of ``actual``, which has all fields of ``new``.

        Raises:
            CodeError: the code is wrong.
            SchemaError: ``actual`` lacks fields of ``new``.
        """
        from evflow.codgen.front import Input, build, refuse_requests, refuse_statics

        made = build(self.code, "transform", [Input("input", self.new, actual)], [("output", self.old)])
        refuse_requests(made, "a morph")
        refuse_statics(made, "a morph")
        return made
