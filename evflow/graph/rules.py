"""Rules: what is changed when a stone's function asks for reconfiguration, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evflow.errors import GraphError
from evflow.outside import shown


@dataclass(frozen=True)
class Rule:
    """What is done, as one change, when a stone asks for it.

    Attributes:
        stone: the stone that asks.
        request: the number that it asks with.
        move: stone → the node it goes to.
        freeze: stones that queue what arrives from then on.
        unfreeze: stones that go on.
    """

    stone: str
    request: int
    move: Mapping[str, str]
    freeze: tuple[str, ...] = ()
    unfreeze: tuple[str, ...] = ()

    @property
    def targets(self) -> list[str]:
        """The stones that it changes."""
        return list(dict.fromkeys([*self.move, *self.freeze, *self.unfreeze]))

    @property
    def text(self) -> str:
        """What it is called in messages."""
        return f"the rule for request {self.request} of stone {self.stone!r}"

    def renamed(self, name: Callable[[str], str]) -> Rule:
        """The same of stones that have other names."""
        move = {name(stone): node for stone, node in self.move.items()}
        return Rule(
            name(self.stone),
            self.request,
            move,
            tuple(map(name, self.freeze)),
            tuple(map(name, self.unfreeze)),
        )

    def data(self) -> list[Any]:
        """The rule as plain data (JSON)."""
        return [self.stone, self.request, dict(self.move), list(self.freeze), list(self.unfreeze)]


Rules = dict[tuple[str, int], Rule]
"""Rules by the stone that asks, and its request."""


def checked_rule(
    stone: object, request: object, move: object = None, freeze: object = (), unfreeze: object = ()
) -> Rule:
    """A rule of what may be anything.

    Raises:
        GraphError: it is malformed, contradicts itself, or changes nothing.
    """
    if not isinstance(stone, str) or not stone:
        raise GraphError(f"a rule: stone {shown(stone)}: expected the name of the stone that asks")
    if not isinstance(request, int) or isinstance(request, bool) or not 0 < request < 1 << 63:
        raise GraphError(
            f"a rule for stone {shown(stone)}: request {shown(request)}: expected an integer, 1 or more, as "
            "in reconfigure(1)"
        )
    rule = Rule(stone, request, _moves(move), _names("freeze", freeze), _names("unfreeze", unfreeze))
    if not rule.targets:
        raise GraphError(f"{rule.text} changes nothing: give it move=, freeze= or unfreeze=")
    both = sorted({*rule.freeze} & {*rule.unfreeze})
    if both:
        raise GraphError(
            f"{rule.text} both freezes and unfreezes {both[0]!r}; leave it out of one of the two"
        )
    return rule


def _moves(move: object) -> dict[str, str]:
    given = {} if move is None else move
    if not isinstance(given, Mapping) or not all(_is_name(end) for pair in given.items() for end in pair):
        raise GraphError(
            f"a rule: move={shown(move)}: expected a mapping from stone to node, as move={{'totals': 'desk'}}"
        )
    return dict(given)


def _names(what: str, names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise GraphError(f"a rule: {what}={shown(names)}: expected names of stones, as {what}=['totals']")
    found = tuple(names)
    if not all(map(_is_name, found)):
        raise GraphError(f"a rule: {what}={shown(found)}: expected names of stones, as {what}=['totals']")
    return found


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def rules_of(graph: Mapping[str, Any]) -> Rules:
    """The rules of a graph that is plain data; none where it is older than rules are.

    Raises:
        GraphError: they are malformed.
    """
    listed = graph.get("rules", ())
    if not isinstance(listed, list | tuple):
        raise GraphError(f"rules: expected a list, found {shown(listed)}")
    rules: Rules = {}
    for data in listed:
        if not isinstance(data, list | tuple) or len(data) != 5:
            raise GraphError(
                f"a rule: expected [stone, request, move, freeze, unfreeze], found {shown(data)}"
            )
        rule = checked_rule(*data)
        rules[rule.stone, rule.request] = rule
    return rules
