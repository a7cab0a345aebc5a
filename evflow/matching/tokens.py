"""The text of a subscription as tokens, each with its place."""

from __future__ import annotations

import re
from typing import NamedTuple

from evflow.errors import SubscriptionError
from evflow.matching.literals import WORDS, checked_number, string_text

LONGEST = 1 << 18
"""Characters that a subscription's text may have."""


class Token(NamedTuple):
    """A piece of text.

    Attributes:
        kind: "name" or "string", with ``value`` the str that it means; "number", with ``value`` the float;
            "end"; or the piece itself, in lower case, if it is an operator, a bracket or a word of the
            language.
        value: what it means.
        text: how it is written, for messages.
        at: where it begins.
    """

    kind: str
    value: float | str
    text: str
    at: int


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<name>[^\W\d]\w*(?:\.\w+)*)
    | (?P<quoted>`(?:[^`\\]|\\.)*+`)
    | (?P<string>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")
    | (?P<symbol>==|!=|<>|<=|>=|&&|\|\||[<>=≠≤≥(),!+-])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\", "'": "'", '"': '"', "`": "`"}
_SYNONYMS = {"&&": "and", "||": "or", "!": "not"}
_CONSTANTS = {"true": 1.0, "false": 0.0, "nan": float("nan"), "inf": float("inf")}
_HINTS = {
    "'": "the string that begins here has no end; it ends with '",
    '"': 'the string that begins here has no end; it ends with "',
    "`": "the name that begins here has no end; it ends with a backquote",
    "&": "'&' means nothing here; expected 'and' or &&",
    "|": "'|' means nothing here; expected 'or' or ||",
    "“": "expected straight quotes, ' or \"",
    "‘": "expected straight quotes, ' or \"",
}


def misplaced(message: str, source: str, at: int) -> SubscriptionError:
    """An error at a place of a text."""
    lines = (source[:at] + "x").splitlines()
    return SubscriptionError(message, source, len(lines), len(lines[-1]))


def tokens(source: str) -> list[Token]:
    """All tokens of a text; the last is its end.

    Raises:
        SubscriptionError: it is too long, or holds something that is not a token.

    Example:
        >>> [token.kind for token in tokens("temp > 30 AND area = 'a'")]
        ['name', '>', 'number', 'and', 'name', '=', 'string', 'end']
    """
    if len(source) > LONGEST:
        raise misplaced(
            f"the text has {len(source):,} characters; at most {LONGEST:,} are allowed", source, LONGEST
        )
    found: list[Token] = []
    at, last = 0, len(source.rstrip())
    while not found or found[-1].kind != "end":
        match = _TOKEN.match(source, at)
        if match is None or match.lastgroup is None:
            raise _strange(source, at)
        found.append(
            _token(match.lastgroup, match[match.lastgroup], min(match.start(match.lastgroup), last), source)
        )
        at = match.end()
    return found


def _strange(source: str, at: int) -> SubscriptionError:
    rest = source[at:]
    at += len(rest) - len(rest.lstrip())
    found = source[at]
    return misplaced(_HINTS.get(found, f"{string_text(found)} means nothing here"), source, at)


def _token(group: str, text: str, at: int, source: str) -> Token:
    if group == "number":
        return Token("number", _number(text, at, source), text, at)
    if group == "name":
        word = text.lower()
        if word not in WORDS:
            return Token("name", text, text, at)
        return Token("number" if word in _CONSTANTS else word, _CONSTANTS.get(word, text), text, at)
    if group in ("quoted", "string"):
        kind = "name" if group == "quoted" else "string"
        return Token(kind, _unescaped(text[1:-1], at + 1, source), text, at)
    return Token("end" if group == "end" else _SYNONYMS.get(text, text), text, text, at)


def _number(text: str, at: int, source: str) -> float:
    number = float(text)
    if number == float("inf"):
        raise misplaced("the number is too large for float64; write inf for infinity", source, at)
    if text.isdecimal():
        try:
            # Exact zeros aside, a number that float64 can hold has less than 310 digits.
            checked_number(int(text.lstrip("0") or "0"), "the number")
        except SubscriptionError as error:
            raise misplaced(error.message, source, at) from None
    return number


def _unescaped(text: str, at: int, source: str) -> str:
    """What a string or name in quotes means; ``at`` is where it begins in the source."""

    def character(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3]
        code = int(digits, 16) if digits else 0
        if digits is None and match[4] not in _LETTERS:
            known = r"\n \r \t \0 \\ \' \" \` \x41 \u0041 \U00000041"
            raise misplaced(
                f"{string_text(match[0])} is not an escape; there are {known}", source, at + match.start()
            )
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise misplaced(f"{match[0]} is not a character of Unicode", source, at + match.start())
        return chr(code) if digits else _LETTERS[match[4]]

    meant = _ESCAPE.sub(character, text) if "\\" in text else text
    for place, c in enumerate(text) if not meant.isascii() else ():
        if "\ud800" <= c < "\ue000":
            raise misplaced(
                f"half of a surrogate pair (U+{ord(c):04X}) is not a character of Unicode", source, at + place
            )
    return meant
