"""Reads subscriptions written as text, such as ``area == 'area1' and temp > 30 or wind > 20``.

A recursive descent parser that multiplies out as it goes: each part of a text becomes the list of filters
that it is a disjunction of (disjunctive normal form), bounded in nesting, filters and constraints. ``not``
turns what follows it around while it is read: each constraint has an opposite, and ``and`` becomes ``or``.
The language is described in ``docs/matching-language.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from math import prod

from evflow.errors import SubscriptionError
from evflow.matching.areas.wkt import polygon_of
from evflow.matching.literals import shown
from evflow.matching.model import (
    Area,
    Box,
    Circle,
    Constraint,
    Filter,
    GlobeBox,
    GlobeCircle,
    Op,
    Subscription,
)
from evflow.matching.operators import COMPARISONS, OPERATORS
from evflow.matching.tokens import Token, misplaced, tokens

DEEPEST = 50
"""Parentheses within each other."""

MOST_FILTERS = 4096
"""Filters that a text may be multiplied out to."""

MOST_CONSTRAINTS = 65_536
"""Constraints that these filters may have together."""

_MOST_WORK = 16 * MOST_CONSTRAINTS
"""What may be made while multiplying out, also of what is multiplied by false in the end."""

_METRES = {"m": 1.0, "km": 1000.0, "mi": 1609.344}
_REVERSED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}
_NOCASE = "nocase"
_TURNABLE = ("startswith", "endswith", "contains", "matches")
_OPERATORS = (*(op.symbol for op in Op if op.compares), *_TURNABLE, "in", "between")
_SHOWN = 80


def parse_subscription(text: str) -> Subscription:
    """The subscription that a text means.

    Args:
        text: a subscription in the language of ``docs/matching-language.md``.

    Raises:
        SubscriptionError: the text is malformed, or means too many filters; it has the line and column.

    Example:
        >>> parse_subscription("within(3, 4, 5)")
        Subscription(filters=(Filter(constraints=(), area=Circle(x=3.0, y=4.0, radius=5.0)),))
        >>> print(parse_subscription("(a = 1 or b = 2) and 10 <= c < 20"))
        a == 1 and c >= 10 and c < 20 or b == 2 and c >= 10 and c < 20
        >>> print(parse_subscription("kind in ('a', 'b')"))
        kind == 'a' or kind == 'b'
        >>> print(parse_subscription("10 < a < b"))
        a > 10 and a < b
        >>> print(parse_subscription("not (a between 1 and 5 and exists b)"))
        a < 1 or a > 5 or not exists b
    """
    if not isinstance(text, str):
        raise SubscriptionError(f"expected the text of a subscription but found {shown(text)}")
    return Subscription(Filter(part.constraints, part.area) for part in _Parser(str(text)).whole())


def parse_filter(text: str) -> Filter:
    """The filter that a text without a disjunction means.

    Args:
        text: one filter in the language of ``docs/matching-language.md``, without ``or``.

    Raises:
        SubscriptionError: the text is malformed, or means several filters, or none.

    Example:
        >>> print(parse_filter("temp > 30 and exists wind"))
        temp > 30 and exists wind
    """
    filters = parse_subscription(text).filters
    if len(filters) != 1:
        raise SubscriptionError(
            f"expected one filter, but the text means {len(filters)}; a Subscription has several"
        )
    return filters[0]


@dataclass(frozen=True, slots=True)
class _Part:
    """A filter in the making; ``area_at`` is where its area stands in the text."""

    constraints: tuple[Constraint, ...] = ()
    area: Area | None = None
    area_at: int = field(default=0, compare=False)


def _size(parts: list[_Part]) -> int:
    return sum(len(part.constraints) for part in parts)


class _Parser:
    """Goes through the tokens of a text; each method reads one kind of phrase and leaves what follows it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = tokens(source)
        self.next = 0
        self.depth = 0
        self.work = 0
        self.negated = False

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def whole(self) -> list[_Part]:
        if self.token.kind == "end":
            raise self.error("the text is empty; true is the subscription to every event")
        found = self.disjunction()
        if self.token.kind != "end":
            raise self.unexpected("'and', 'or' or the end")
        return found

    def error(self, message: str, token: Token | None = None) -> SubscriptionError:
        return misplaced(message, self.source, (token or self.token).at)

    def unexpected(self, expected: str, hint: str = "") -> SubscriptionError:
        token = self.token
        found = "the end" if token.kind == "end" else token.text[:_SHOWN]
        return self.error(f"expected {expected} but found {found}{hint}")

    def accept(self, *kinds: str) -> Token | None:
        """Steps over the next token if it is of such a kind."""
        token = self.token
        if token.kind not in kinds:
            return None
        self.next += 1
        return token

    def expect(self, kind: str, expected: str) -> Token:
        token = self.accept(kind)
        if token is None:
            raise self.unexpected(expected)
        return token

    def disjunction(self) -> list[_Part]:
        return self.operands("or", self.conjunction)

    def conjunction(self) -> list[_Part]:
        return self.operands("and", self.term)

    def operands(self, word: str, operand: Callable[[], list[_Part]]) -> list[_Part]:
        """What stands between words; of all of it one has to hold, or, after ``and``, all."""
        first = self.token
        if (word == "and") != self.negated:
            factors = [operand()]
            while self.accept(word):
                factors.append(operand())
            return factors[0] if len(factors) == 1 else self.multiplied(factors, first)
        found = operand()
        size = _size(found)
        while token := self.accept(word):
            more = operand()
            size += _size(more)
            self.bound(len(found) + len(more), size, token)
            found += more
        return found

    def opposite(self, read: Callable[[], list[_Part]]) -> list[_Part]:
        """What must hold where what is read does not."""
        self.negated = not self.negated
        found = read()
        self.negated = not self.negated
        return found

    def several(self, constraints: list[Constraint], every: bool) -> list[_Part]:
        """Constraints that are turned around already; of those as written every one or any has to hold."""
        if every != self.negated:
            return [_Part(tuple(constraints))]
        return [_Part((constraint,)) for constraint in constraints]

    def multiplied(self, factors: list[list[_Part]], first: Token) -> list[_Part]:
        """Every choice of one filter from each factor, joined."""
        merged: list[list[_Part]] = []
        run: list[_Part] = []
        for factor in [*factors, []]:
            if len(factor) == 1:
                run += factor
                continue
            # Neighbours that are one filter each are joined first: what is left doubles the result, or more.
            merged += [[self.joined(run)]] if run else []
            run = []
            merged.append(factor)
        merged.pop()
        count = prod(map(len, merged))
        size = sum(count // len(factor) * _size(factor) for factor in merged) if count else 0
        self.bound(count, size, first)
        self.work += count + size
        if self.work > _MOST_WORK:
            raise self.error("the text is too much to multiply out; write several subscriptions", first)
        return [self.joined(choice) for choice in product(*merged)]

    def joined(self, parts: list[_Part] | tuple[_Part, ...]) -> _Part:
        constraints = tuple(constraint for part in parts for constraint in part.constraints)
        areas = [part for part in parts if part.area is not None]
        if len(areas) > 1:
            raise misplaced(
                "a filter has one area: expected within or inside once between two or",
                self.source,
                areas[1].area_at,
            )
        return _Part(constraints, areas[0].area, areas[0].area_at) if areas else _Part(constraints)

    def bound(self, filters: int, constraints: int, token: Token) -> None:
        most = None
        if filters > MOST_FILTERS:
            most = f"{MOST_FILTERS:,} filters"
        elif constraints > MOST_CONSTRAINTS:
            most = f"{MOST_CONSTRAINTS:,} constraints"
        if most:
            raise self.error(
                f"multiplied out, this means more than {most}; write several subscriptions", token
            )

    def term(self) -> list[_Part]:
        turned = False
        while self.accept("not"):
            turned = not turned
        return self.opposite(self.plain_term) if turned else self.plain_term()

    def plain_term(self) -> list[_Part]:
        if opening := self.accept("("):
            return self.parentheses(opening)
        if self.accept("exists"):
            bracket = self.accept("(")
            name = self.name()
            if bracket:
                self.expect(")", ") after the name")
            return [_Part((self.constraint(name, Op.EXISTS, None),))]
        if self.token.kind == "within":
            return [self.area(self.circle)]
        if self.token.kind == "name":
            # A word of the language only here.
            if self.token.text.lower() == "inside" and self.tokens[self.next + 1].kind == "(":
                return [self.area(self.shape)]
            return self.comparison()
        if self.token.kind in ("number", "string", "+", "-"):
            return self.reversed()
        raise self.unexpected("an attribute, a value, exists, within, inside, not or (", self.word_hint())

    def parentheses(self, opening: Token) -> list[_Part]:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"parentheses are nested deeper than {DEEPEST}", opening)
        found = self.disjunction()
        self.expect(")", "'and', 'or' or )")
        self.depth -= 1
        return found

    def comparison(self) -> list[_Part]:
        name = self.name()
        if operator := self.accept(*COMPARISONS):
            return [_Part((self.compared(name, operator),))]
        if self.accept("not"):
            return self.opposite(lambda: self.turnable(name) or self.nothing_to_turn(name))
        if found := self.turnable(name):
            return found
        raise self.no_operator(name)

    def compared(self, name: Token, operator: Token) -> Constraint:
        """A comparison with what follows: a value or another attribute."""
        op = OPERATORS[operator.kind]
        if self.token.kind == "name" and not self.is_nocase():
            other = self.name()
            return self.constraint(name, op.with_other, str(other.value), other)
        return self.tested(name, op, operator, "a value or an attribute")

    def tested(self, name: Token, op: Op, operator: Token, expected: str = "a value") -> Constraint:
        """What stands behind an operator: a value, perhaps with ``nocase`` before it."""
        if self.is_nocase():
            if op.nocase is None:
                raise self.no_nocase(operator)
            op, operator, expected = op.nocase, self.name(), "a string"
        value, at = self.value(operator, expected)
        return self.constraint(name, op, value, at)

    def is_nocase(self) -> bool:
        """Whether the word comes now, which is one before a value: elsewhere it may name an attribute."""
        word = self.token.text.lower() == _NOCASE
        return word and self.tokens[self.next + 1].kind in ("string", "number", "+", "-", "(")

    def no_nocase(self, operator: Token) -> SubscriptionError:
        known = "nocase goes with ==, !=, in, startswith, endswith and contains"
        hint = "; write (?i) in the expression" if operator.text.lower() == "matches" else ""
        return self.error(f"{known}, not with {operator.text}{hint}")

    def turnable(self, name: Token) -> list[_Part]:
        """What may have a ``not`` between the attribute and the operator; nothing if it is not that."""
        if self.accept("in"):
            return self.choice(name)
        # Some are words of the language only here, and may be names of attributes elsewhere.
        word = self.token.text.lower() if self.token.kind == "name" else self.token.kind
        if word == "between":
            return self.between(name)
        if word not in _TURNABLE:
            return []
        operator = self.token
        self.next += 1
        return [_Part((self.tested(name, OPERATORS[word], operator),))]

    def nothing_to_turn(self, name: Token) -> list[_Part]:
        hint = f"; not may also stand before {name.text[:_SHOWN]}"
        raise self.unexpected(f"{', '.join(_TURNABLE)}, in or between after not", hint)

    def no_operator(self, name: Token) -> SubscriptionError:
        if self.token.kind in ("end", "and", "or", ")"):
            hint = f"; exists {name.text[:_SHOWN]} asks whether the event has it"
            return self.unexpected("an operator such as ==", hint)
        return self.unexpected(f"an operator ({' '.join(_OPERATORS)})")

    def choice(self, name: Token) -> list[_Part]:
        op = Op.EQ
        if self.is_nocase():
            op, self.next = Op.EQ_NOCASE, self.next + 1
        self.expect("(", "( after in")
        found: list[Constraint] = []
        while not found or self.accept(","):
            value, at = self.value(None)
            if self.negated:
                self.same_type(found[0].value if found else value, value, "not in takes", at)
            found.append(self.constraint(name, op, value, at))
            self.bound(len(found), 0, name)
        self.expect(")", "a comma or )")
        return self.several(found, every=False)

    def between(self, name: Token) -> list[_Part]:
        self.next += 1
        if self.is_nocase():
            raise self.no_nocase(self.tokens[self.next - 1])
        low, at = self.value(None)
        least = self.constraint(name, Op.GE, low, at)
        self.expect("and", "and, as in between 1 and 5")
        high, at = self.value(None)
        self.same_type(low, high, "between takes", at)
        return self.several([least, self.constraint(name, Op.LE, high, at)], every=True)

    def same_type(self, first: object, second: object, what: str, at: Token) -> None:
        if isinstance(first, str) != isinstance(second, str):
            raise self.error(f"{what} numbers or strings, not both: no value is a number and a string", at)

    def reversed(self) -> list[_Part]:
        """``30 < temp``, ``10 <= temp < 20``, or ``true`` or ``false`` alone."""
        first = self.token
        value, at = self.value(None)
        operator = self.accept(*COMPARISONS)
        if operator is None:
            if first.text.lower() in ("true", "false"):
                return [_Part()] if bool(value) != self.negated else []
            turned = self.token.kind in (*_TURNABLE, "in")
            hint = "; the attribute stands first: name contains 'x'" if turned else ""
            raise self.unexpected("an operator such as < after the value", hint)
        op = OPERATORS[operator.kind]
        name = self.name()
        found = [self.constraint(name, _REVERSED.get(op, op), value, at)]
        if second := self.accept(*COMPARISONS):
            found.append(self.compared(name, second))
        return self.several(found, every=True)

    def area(self, read: Callable[[], Area]) -> _Part:
        """An area: what follows its word and a parenthesis is read."""
        word = self.token
        if self.negated:
            raise self.error(
                f"{word.text.lower()} has no opposite: not can only stand before conditions on attributes"
            )
        self.next += 1
        self.expect("(", f"( after {word.text.lower()}")
        try:
            return _Part((), read(), word.at)
        except SubscriptionError as error:
            if error.source:
                raise
            raise self.error(error.message, word) from None

    def circle(self) -> Area:
        numbers = [self.number()]
        for _ in range(2):
            self.expect(",", "a comma, as in within(x, y, radius) or within(latitude, longitude, 50 km)")
            numbers.append(self.number())
        unit = self.accept("name")
        if unit is not None and unit.text not in _METRES:
            raise self.error(f"expected m, km or mi but found {unit.text[:_SHOWN]}", unit)
        self.expect(")", "m, km, mi or )" if unit is None else ")")
        if unit is None:
            return Circle(*numbers)
        latitude, longitude, radius = numbers
        return GlobeCircle(latitude, longitude, radius * _METRES[unit.text])

    def shape(self) -> Area:
        """A box by its four numbers, or a polygon as well-known text."""
        text = self.accept("string")
        numbers = [] if text is not None else [self.number()]
        while numbers and len(numbers) < 4:
            self.expect(
                ",", "a comma, as in inside(x1, y1, x2, y2) or inside(south, west, north, east degrees)"
            )
            numbers.append(self.number())
        unit = self.accept("name")
        if unit is not None and unit.text.lower() != "degrees":
            raise self.error(f"expected degrees but found {unit.text[:_SHOWN]}", unit)
        self.expect(")", "degrees or )" if unit is None else ")")
        if text is not None:
            return polygon_of(str(text.value), "plane" if unit is None else "globe")
        return Box(*numbers) if unit is None else GlobeBox(*numbers)

    def name(self) -> Token:
        if self.token.kind != "name":
            raise self.unexpected("an attribute", self.word_hint())
        name = self.token
        if not name.value:
            raise self.error("the name of an attribute is empty")
        self.next += 1
        return name

    def word_hint(self) -> str:
        word = self.token.text
        if word.isalpha() and self.token.kind != "string":
            return f", a word of the language; an attribute of this name is written `{word}`"
        return ""

    def number(self) -> float:
        token = self.token
        value, _ = self.value(None, "a number")
        if isinstance(value, str):
            raise self.error(f"expected a number but found {shown(value)}", token)
        return value

    def value(self, operator: Token | None, expected: str = "a value") -> tuple[float | str, Token]:
        """A number, perhaps with a sign, or a string; and where it stands."""
        first = self.token
        sign = self.accept("+", "-")
        token = self.accept("number") if sign else self.accept("number", "string")
        if token is None:
            raise self.no_value(sign or operator, "a number" if sign else expected)
        if isinstance(token.value, str):
            return token.value, first
        return -token.value if sign and sign.kind == "-" else token.value, first

    def no_value(self, before: Token | None, expected: str) -> SubscriptionError:
        return self.unexpected(expected if before is None else f"{expected} after {before.text}")

    def constraint(
        self, name: Token, op: Op, value: float | str | None, at: Token | None = None
    ) -> Constraint:
        try:
            return Constraint(str(name.value), op.opposite if self.negated else op, value)
        except SubscriptionError as error:
            raise self.error(error.message, at or name) from None
