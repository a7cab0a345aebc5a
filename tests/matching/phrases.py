"""Random conditions as trees: written as text in many ways, and decided without the code under test."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from random import Random
from typing import Any

from evflow.matching.model import Circle, Constraint, Subscription

__all__ = ["decided", "event", "satisfied", "tree", "written"]

Tree = tuple[Any, ...]
Event = dict[str, Any]
Place = tuple[float, float] | None

_NAMES = ["a", "b.c", "wind speed", "in", "été", "`\\'", "x1"]
_NUMBERS = [0, 1, -1, 2.5, 30, 1e300, -1e-7, 2.0**53, math.inf, -math.inf, math.nan]
_CHARS = "abéÉAß'\"`\\ \n\0√𝟘\x1b"
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": str.__contains__,
    "== nocase": lambda value, operand: value.casefold() == operand.casefold(),
    "!= nocase": lambda value, operand: value.casefold() != operand.casefold(),
    "startswith nocase": lambda value, operand: value.casefold().startswith(operand.casefold()),
    "endswith nocase": lambda value, operand: value.casefold().endswith(operand.casefold()),
    "contains nocase": lambda value, operand: operand.casefold() in value.casefold(),
}
_SPELT = {"==": ["==", "="], "!=": ["!=", "<>", "≠"], "<=": ["<=", "≤"], ">=": [">=", "≥"]}
_SPELT |= {"== nocase": ["== nocase", "= NOCASE"], "!= nocase": ["!= NoCase", "<>nocase"]}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _value(random: Random) -> float | str:
    if random.random() < 0.6:
        return random.choice(_NUMBERS)
    return "".join(random.choices(_CHARS, k=random.randrange(4)))


def _leaf(random: Random, areas: bool) -> Tree:
    choice = random.randrange(12)
    name = random.choice(_NAMES)
    if choice == 0:
        return "exists", name
    if choice == 1:
        value = _value(random)
        more = [_value(random) for _ in range(random.randrange(3))]
        return "in", name, [value, *(v for v in more if isinstance(v, str) == isinstance(value, str))]
    if choice == 11:
        return "versus", name, random.choice(list(_COMPARE)[:6]), random.choice(_NAMES)
    if choice == 10:
        value = _value(random)
        others = (_value(random) for _ in range(99))
        return "between", name, value, next(v for v in others if isinstance(v, str) == isinstance(value, str))
    if choice == 2:
        return "constant", random.random() < 0.6
    if choice <= 4 and areas:
        return "within", random.randrange(-3, 4), random.randrange(-3, 4), random.choice([0, 1, 2, 5])
    if choice == 5:
        ops = random.choice(["<", "<=", "==", ">"]), random.choice(["<", "<=", "!=", ">="])
        return "chain", _value(random), ops[0], name, ops[1], _value(random)
    value = _value(random)
    ops = list(_COMPARE)[: None if isinstance(value, str) else 6]
    return "test", name, random.choice(ops), value


def tree(random: Random, depth: int = 3, areas: bool = True) -> Tree:
    """A condition; no two areas have to hold at once, and there is no ``not`` before any."""
    kind = random.choice(["and", "or", "not", "leaf", "leaf"]) if depth else "leaf"
    if kind == "leaf":
        return _leaf(random, areas)
    if kind == "not":
        return kind, tree(random, depth - 1, False)
    count = random.randrange(2, 4)
    owner = random.randrange(count)
    return kind, [tree(random, depth - 1, areas and (kind == "or" or owner == n)) for n in range(count)]


def _literal(random: Random, value: float | str) -> str:
    if isinstance(value, str):
        return _quoted(random, value, random.choice("'\""))
    if math.isnan(value) or math.isinf(value):
        sign = "-" if value == -math.inf else random.choice(["", "+"])
        return sign + random.choice(["NaN", "nan"] if math.isnan(value) else ["inf", "INF"])
    if value in (0, 1) and random.randrange(3) == 0:
        return random.choice(["true", "True"] if value else ["false", "FALSE"])
    return random.choice([repr(value), f"{float(value)!r}", f"{value:.17e}"])


def _quoted(random: Random, text: str, quote: str) -> str:
    return quote + "".join(_char(random, c, quote) for c in text) + quote


def _char(random: Random, c: str, quote: str) -> str:
    choice = random.randrange(4)
    if choice == 0:
        return f"\\U{ord(c):08X}"
    if choice == 1 and ord(c) < 65536:
        return f"\\u{ord(c):04x}"
    if choice == 2 and ord(c) < 256:
        return f"\\x{ord(c):02X}"
    return "\\" + c if c in (quote, "\\") else c


def _name(random: Random, name: str) -> str:
    plain = name in ("a", "b.c", "été", "x1")
    return name if plain and random.randrange(5) else _quoted(random, name, "`")


def written(random: Random, node: Tree) -> str:
    """The condition as text."""
    kind, *rest = node
    if kind in ("and", "or"):
        words = [" and ", "&&", " AND\n"] if kind == "and" else [" or ", "||", "\tOr "]
        parts = [written(random, part) for part in rest[0]]
        # Without parentheses "and" binds more tightly than "or".
        loose = [kind == "and" and part[0] == "or" for part in rest[0]]
        parts = [
            f"({p})" if need or random.randrange(4) == 0 else p for p, need in zip(parts, loose, strict=True)
        ]
        return parts[0] + "".join(random.choice(words) + part for part in parts[1:])
    if kind == "not":
        word = random.choice(["not ", "NOT ", "!"])
        if rest[0][0] in ("in", "between") and random.randrange(2):
            return _written_leaf(random, *_split(rest[0]), random.choice(["not ", "Not  "]))
        inner = written(random, rest[0])
        return f"{word}({inner})" if rest[0][0] in ("and", "or") or random.randrange(2) else word + inner
    return _written_leaf(random, kind, rest)


def _split(node: Tree) -> tuple[str, list[Any]]:
    return node[0], list(node[1:])


def _written_leaf(random: Random, kind: str, rest: list[Any], turned: str = "") -> str:
    if kind == "exists":
        return f"exists {_name(random, rest[0])}"
    if kind == "constant":
        return "true" if rest[0] else "false"
    if kind == "within":
        return "within({}, {},{})".format(*rest)
    if kind == "in":
        return f"{_name(random, rest[0])} {turned}in ({', '.join(_literal(random, v) for v in rest[1])})"
    if kind == "between":
        name, low, high = rest
        word = random.choice(["between", "BETWEEN"])
        return f"{_name(random, name)} {turned}{word} {_literal(random, low)} and {_literal(random, high)}"
    if kind == "chain":
        low, first, name, second, high = rest
        return " ".join(
            [
                _literal(random, low),
                random.choice(_SPELT.get(first, [first])),
                _name(random, name),
                random.choice(_SPELT.get(second, [second])),
                _literal(random, high),
            ]
        )
    name, op, value = rest
    spelt = random.choice(_SPELT.get(op, [op]))
    if kind == "versus":
        return f"{_name(random, name)} {spelt} {_name(random, value)}"
    if op[-1] in "=<>" and random.randrange(4) == 0:
        turned = _TURNED.get(op, op)
        return (
            f"{_literal(random, value)} {random.choice(_SPELT.get(turned, [turned]))} {_name(random, name)}"
        )
    return f"{_name(random, name)} {spelt} {_literal(random, value)}"


def _test(happened: Event, name: str, op: str, value: float | str) -> bool | None:
    """Whether a constraint holds; None: neither it nor its opposite does."""
    found = happened.get(name)
    if found is None or isinstance(found, str) != isinstance(value, str):
        return None
    if "<" in op or ">" in op:
        return None if found != found or value != value else bool(_COMPARE[op](found, value))
    return bool(_COMPARE[op](found, value))


def _all(answers: list[bool | None]) -> bool | None:
    return False if False in answers else None if None in answers else True


def _any(answers: list[bool | None]) -> bool | None:
    return True if True in answers else None if None in answers else False


def _inside(place: Place, x: float, y: float, radius: float) -> bool:
    return place is not None and (place[0] - x) ** 2 + (place[1] - y) ** 2 <= radius**2


def decided(node: Tree, happened: Event, place: Place) -> bool:
    """Whether an event satisfies the condition."""
    return _decided(node, happened, place) is True


def _decided(node: Tree, happened: Event, place: Place) -> bool | None:
    """With three answers, as SQL does it."""
    kind, *rest = node
    if kind in ("and", "or"):
        return (_all if kind == "and" else _any)([_decided(part, happened, place) for part in rest[0]])
    if kind == "not":
        answer = _decided(rest[0], happened, place)
        return None if answer is None else not answer
    if kind == "exists":
        return rest[0] in happened
    if kind == "constant":
        return bool(rest[0])
    if kind == "within":
        return _inside(place, *rest)
    if kind == "in":
        return _any([_test(happened, rest[0], "==", value) for value in rest[1]])
    if kind == "between":
        name, low, high = rest
        return _all([_test(happened, name, ">=", low), _test(happened, name, "<=", high)])
    if kind == "chain":
        low, first, name, second, high = rest
        return _all(
            [_test(happened, name, _TURNED.get(first, first), low), _test(happened, name, second, high)]
        )
    return (_versus if kind == "versus" else _test)(happened, *rest)


def _versus(happened: Event, name: str, op: str, other: str) -> bool | None:
    return _test(happened, name, op, happened[other]) if other in happened else None


def _holds(constraint: Constraint, happened: Event) -> bool:
    if constraint.value is None:
        return (constraint.name in happened) == (constraint.op.symbol == "exists")
    negated, op = constraint.op.symbol.startswith("not "), constraint.op.symbol.removeprefix("not ")
    if op.endswith(" attribute"):
        return _versus(happened, constraint.name, op.partition(" ")[0], str(constraint.value)) is True
    answer = _test(happened, constraint.name, op, constraint.value)
    return answer is not None and answer != negated


def satisfied(subscription: Subscription, happened: Event, place: Place) -> bool:
    """Whether an event satisfies a subscription on the plane whose numbers are small integers."""
    return any(
        all(_holds(constraint, happened) for constraint in part.constraints)
        and (
            part.area is None
            or (isinstance(part.area, Circle) and _inside(place, part.area.x, part.area.y, part.area.radius))
        )
        for part in subscription.filters
    )


def event(random: Random) -> tuple[Event, Place]:
    """An event and its place."""
    names = random.sample(_NAMES, random.randrange(len(_NAMES) + 1))
    place = (random.randrange(-4, 5), random.randrange(-4, 5)) if random.randrange(4) else None
    return {name: _value(random) for name in names}, place
