"""Which filters may run for an event that an earlier filter has rejected.

In a chain of filters a branch after each costs more than the next filter where it is mispredicted. A filter
that is cheap, changes nothing and cannot fault is therefore run without a branch, and its result masked.
"""

from __future__ import annotations

from evflow.codgen import tree
from evflow.codgen.tree import Expr, Function, walk

__all__ = ["is_quiet"]

_MOST_NODES = 60
_DIVISIONS = ("div", "rem", "floordiv", "mod")


def is_quiet(function: Function) -> bool:
    """Whether a function is a cheap filter without effect or fault."""
    schema = function.inputs[0][1] if function.inputs else None
    if function.kind != "filter" or (schema is not None and schema.width is None):
        return False
    return all(n < _MOST_NODES and _harmless(node) for n, node in enumerate(walk(function.body)))


def _harmless(node: object) -> bool:
    if isinstance(
        node, (tree.Attribute, tree.Call, tree.Copy, tree.Discard, tree.Loop, tree.SetAttribute, tree.Submit)
    ):
        return False
    if isinstance(node, tree.Assign) and (isinstance(node.place, tree.Path) or node.place.variable.static):
        return False
    if isinstance(node, tree.Path) and any(step.indexes for step in node.steps):
        return False
    if isinstance(node, tree.Element) and node.indexes:
        return False
    if isinstance(node, tree.Convert) and node.checked:
        return False
    if isinstance(node, tree.Binary) and node.op in _DIVISIONS:
        float_division = node.op in ("div", "rem") and node.type[0] == "f"
        return float_division or (isinstance(node.right, tree.Const) and node.right.value != 0)
    return not isinstance(node, Expr) or node.type != "str"
