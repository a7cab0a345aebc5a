"""Cod's text to pycparser's tree, with every position that of the user's own text.

pycparser wants a file of C without comments. So comments become blanks of the same length, and a block is put
into a function, an expression into an assertion, whose opening stands on the text's first line: lines stay,
and only columns of the first line move, by a known amount. Brackets and quotes are checked on the way, which
gives better messages than a parser at the end of its input.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from pycparser import c_parser
from pycparser.c_lexer import CLexer

from evflow.errors import CodeError

_MAX_SOURCE = 1 << 18

TYPE_NAMES = {
    "string": "str", "bool": "bool", "size_t": "u64",
    "int8_t": "i8", "int16_t": "i16", "int32_t": "i32", "int64_t": "i64",
    "uint8_t": "u8", "uint16_t": "u16", "uint32_t": "u32", "uint64_t": "u64",
}  # fmt: skip
"""Names of types that are not keywords of C."""

_KEYWORDS = (
    "auto case char const default do double enum extern float goto inline int long offsetof register "
    "restrict short signed sizeof static struct switch typedef union unsigned void volatile"
).split()
FIELD_NAMES = {f"{word[:-1]}$": word for word in _KEYWORDS}
"""Fields whose names are keywords of C (and not of Python), by the word that the parser sees instead."""

_KEYWORD_FIELD = re.compile(rf"(?<=\.)(\s*(?:{'|'.join(_KEYWORDS)}))\b")
_TYPE_NAME = re.compile(rf"\b(?:{'|'.join(TYPE_NAMES)})\b")
_MARK = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<literal>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<mark>/\*|["'(){}\[\];\#\r])""",
    re.DOTALL,
)
_CLOSING = {")": "(", "]": "[", "}": "{"}
_WHERE = re.compile(r"^:(\d+)(?::(\d+))?: (.*)$", re.DOTALL)
_BLOCK, _EXPRESSION = ("int f(){", "}"), ("_Static_assert((", "));")
"""What pycparser sees around a block, and around an expression."""

_parser = c_parser.CParser()
_parsing = threading.Lock()


class Parsed(NamedTuple):
    """What the text says.

    Attributes:
        tree: pycparser's node: an expression, or a ``Compound``.
        shift: by how much columns on line 1 are too great.
    """

    tree: Any
    shift: int


def parse(source: str) -> Parsed:
    """Parses a text of Cod: an expression, or a block with or without its outer braces.

    Raises:
        CodeError: the text is not Cod; points at the place.
    """
    if len(source) > _MAX_SOURCE:
        raise CodeError(f"the text has {len(source)} characters: expected at most {_MAX_SOURCE}", source)
    text, is_block = _scanned(source)
    if not text.strip():
        raise CodeError("the text is empty; expected an expression or a block with 'return'", source)
    text = _KEYWORD_FIELD.sub(lambda match: f"{match[1][:-1]}$", text)
    is_block = is_block or text.lstrip().startswith("return")
    types = sorted(set(_TYPE_NAME.findall(text)))
    before, after = _BLOCK if is_block else _EXPRESSION
    opening = "".join([f"typedef int {name};" for name in types]) + before
    wrapped = f"{opening}{text}{after}"
    try:
        with _parsing:
            tree = _parser.parse(wrapped)
    except c_parser.ParseError as error:
        _refuse(source, wrapped, len(opening), is_block, error)
    except RecursionError:
        raise CodeError("the text is nested too deeply", source) from None
    whole = tree.ext[-1]
    return Parsed(whole.body if is_block else whole.cond, len(opening))


def _scanned(source: str) -> tuple[str, bool]:
    """The text without comments, and whether it has statements.

    Raises:
        CodeError: brackets or quotes do not pair, or there is a preprocessor line.
    """
    parts: list[str] = []
    opened: list[tuple[str, int]] = []
    done, is_block = 0, False
    for match in _MARK.finditer(source):
        if match.lastgroup == "literal":
            continue
        found, at = match.group(), match.start()
        if match.lastgroup == "comment" or found == "\r":
            parts += (source[done:at], "".join("\n" if c == "\n" else " " for c in found))
            done = match.end()
        elif found in "([{":
            opened.append((found, at))
            is_block = is_block or found == "{"
        elif found in _CLOSING:
            if not opened or opened[-1][0] != _CLOSING[found]:
                raise _error(f"'{found}' closes nothing", source, at)
            opened.pop()
        elif found == ";":
            is_block = True
        else:
            raise _error(_BAD_MARKS[found], source, at)
    if opened:
        raise _error(f"'{opened[-1][0]}' is never closed", source, opened[-1][1])
    parts.append(source[done:])
    return "".join(parts), is_block


_BAD_MARKS = {
    "/*": "the comment is never closed",
    '"': "the text is never closed",
    "'": "the character is never closed",
    "#": "there is no preprocessor in Cod",
}


_OPERATORS = {"and": "&&", "or": "||", "not": "!"}
"""What people write who know Python."""


def _error(message: str, source: str, at: int) -> CodeError:
    line_start = source.rfind("\n", 0, at) + 1
    return CodeError(message, source, source.count("\n", 0, at) + 1, at - line_start + 1)


class _RecordingLexer(CLexer):  # type: ignore[misc, unused-ignore]
    """Remembers the last token, since some errors of the parser come without a place."""

    last: tuple[int, int, str] | None = None

    def token(self) -> Any:
        token = super().token()
        if token is not None:
            _RecordingLexer.last = (token.lineno, token.column, token.value)
        return token


def _refuse(source: str, wrapped: str, shift: int, is_block: bool, error: Exception) -> NoReturn:
    """Raises the parser's error as one at its place in the user's text."""
    match = _WHERE.match(str(error))
    if match is not None:
        line, column, said = int(match[1]), int(match[2] or 1), match[3]
    else:
        line, column, said = _last_token(wrapped)
    if line == 1:
        column = max(1, column - shift)
    if said.startswith("before: "):
        said = f"syntax error at '{said[8:]}'"
    lines = source.split("\n")
    at_end = line > len(lines) or (line == len(lines) and column > len(lines[-1].rstrip()))
    if at_end or said.endswith("At end of input"):
        line, column, said = *_end(source), "syntax error at the end of the text"
    words = lines[line - 1][: column - 1].split()[-1:] + lines[line - 1][column - 1 :].split()[:1]
    if "syntax error" in said and (word := next((each for each in words if each in _OPERATORS), "")):
        raise CodeError(f"{said}; '{word}' is written {_OPERATORS[word]}", source, line, column) from None
    if is_block and "syntax error" in said and _misses_semicolon(lines, line, column):
        said += "; perhaps a ';' is missing before it"
    raise CodeError(said, source, line, column) from None


def _last_token(wrapped: str) -> tuple[int, int, str]:
    _RecordingLexer.last = None
    with suppress(c_parser.ParseError):
        c_parser.CParser(lexer=_RecordingLexer).parse(wrapped)
    line, column, value = _RecordingLexer.last or (1, 1, "")
    return line, column, f"before: {value}"


def _end(source: str) -> tuple[int, int]:
    text = source.rstrip()
    return text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1


def _misses_semicolon(lines: list[str], line: int, column: int) -> bool:
    """Whether what stands before the place looks like a statement without its end."""
    before = "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]]).rstrip()
    return bool(before) and before[-1] not in ";{}(,=+-*/%<>&|!?:"
