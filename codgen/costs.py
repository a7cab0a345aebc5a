"""What a function's operations cost, where a loop pays for them, and which functions are cheap.

A step is about a nanosecond of code that is not optimised: a single event runs that long before its function
is optimised. The front ends put a ``Spend`` at the start of each turn of a loop, with the steps of all that
the turn does in any case, and one into each branch of it that does much. A function without a loop pays
nothing for these: its length bounds what it does. What depends on the data (texts that are compared, searched
or copied) is not in here: the back ends count it in a tank of its own.
"""

from __future__ import annotations

from math import prod
from typing import Any

from msgspec.structs import replace

from evflow.codgen import tree
from evflow.codgen.library import LIBRARY
from evflow.codgen.tree import Expr, Function, Stmt, walk
from evflow.schema.types import NUMBERS, Str

STEPS = 10
"""Steps in a unit of fuel: the least that a turn of a loop costs."""

_LEAST_WORK = 1_000_000

_MOST_NODES = 60
"""Nodes of a filter that is cheap."""

_BRANCH = 10
"""Steps up to which a branch is paid for with what stands around it."""

_DIVISION, _FLOAT_REMAINDER = 6, 40
_DIVISIONS = ("div", "rem", "floordiv", "mod")
_PER_STATEMENT: dict[Any, int] = {tree.SetAttribute: 20, tree.Submit: 60, tree.Discard: 20}


def tank(function: Function) -> int:
    """The steps that one event may spend on loops."""
    return min(function.fuel * STEPS, (1 << 63) - 1)


def work_tank(function: Function) -> int:
    """The steps that one event may spend on what depends on the data; a millisecond at least."""
    return max(tank(function) // 2, _LEAST_WORK)


def metered(body: tree.Block) -> tree.Block:
    """The same statements, each loop of which pays for its turns."""
    if tree.Loop not in map(type, walk(body)):
        return body
    return _paid(body)[0]


def _paid(block: tree.Block) -> tuple[tree.Block, int]:
    """A block whose loops and larger branches pay for themselves, and the steps of what is left."""
    statements, steps = [], 0
    for stmt in block.body:
        inner, more = _paid_statement(stmt)
        statements.append(inner)
        steps += more
    return replace(block, body=tuple(statements)), steps


def _paid_statement(stmt: Stmt) -> tuple[Stmt, int]:
    if isinstance(stmt, tree.Block):
        return _paid(stmt)
    if isinstance(stmt, tree.If):
        then, steps = _branch(stmt.then, stmt)
        otherwise, more = (None, 0) if stmt.otherwise is None else _branch(stmt.otherwise, stmt)
        return replace(stmt, then=then, otherwise=otherwise), max(steps, more) + 1 + _steps_of(stmt.condition)
    if isinstance(stmt, tree.Loop):
        body, steps = _paid(stmt.body)
        tested = 1 + _steps_of(stmt.condition)
        turn = steps + tested + (0 if stmt.step is None else _steps_of(stmt.step))
        return replace(stmt, body=_paying(body, max(turn, STEPS), stmt)), tested
    return stmt, _steps_of(stmt)


def _branch(block: tree.Block, stmt: tree.If) -> tuple[tree.Block, int]:
    """A branch, and what is paid for it where it begins if that is not in it."""
    paid, steps = _paid(block)
    return (paid, steps) if steps <= _BRANCH else (_paying(paid, steps, stmt), 0)


def _paying(block: tree.Block, steps: int, stmt: Stmt) -> tree.Block:
    return replace(block, body=(tree.Spend(pos=stmt.pos, steps=steps), *block.body))


def _steps_of(node: object) -> int:
    """The steps of an expression, or of a statement without loops, as if all of it were evaluated."""
    return sum(_steps(part) for part in walk(node))


def _steps(node: Any) -> int:
    """The steps of a node without those beneath it."""
    if isinstance(node, (tree.Block, tree.Const, tree.Run)):
        return 0
    if isinstance(node, (tree.Element, tree.Step)):
        return isinstance(node, tree.Step) + 3 * len(node.indexes)
    if isinstance(node, tree.Root):
        return 6 if node.kind == "queue" else 0
    if isinstance(node, tree.Path):
        kind = node.type.held
        return kind.capacity if isinstance(kind, Str) else 0
    if isinstance(node, tree.Binary):
        if node.op not in _DIVISIONS:
            return 2 if node.type[0] == "f" else 1
        return _DIVISION if node.type[0] != "f" or node.op == "div" else _FLOAT_REMAINDER
    if isinstance(node, tree.Call):
        return LIBRARY[node.name].steps if node.name in LIBRARY else 4
    if isinstance(node, tree.Convert):
        truncated = node.operand.type[0] == "f" and node.type[0] in "iu"
        return 4 if node.checked or truncated else 1
    if isinstance(node, tree.Attribute):
        return 10
    if isinstance(node, tree.Declare):
        size = prod(node.variable.shape) * NUMBERS[node.variable.type].size if node.variable.shape else 0
        return 1 + size // 8
    if isinstance(node, tree.Copy):
        return 4 + (node.target.type.width or 0) // 4
    return _PER_STATEMENT.get(type(node), 1)


def is_quiet(function: Function) -> bool:
    """Whether a function is a cheap filter without effect or fault.

    In a chain of filters a branch after each costs more than the next filter where it is mispredicted. Such
    a filter is therefore run without a branch, also for an event that an earlier filter has rejected, and
    its result masked.
    """
    schema = function.inputs[0][1] if function.inputs else None
    if function.kind != "filter" or (schema is not None and schema.width is None):
        return False
    return len(function.nodes) <= _MOST_NODES and all(map(_harmless, function.nodes))


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
