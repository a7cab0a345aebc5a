"""Cod's text to tokens, by one regular expression.

Brackets and quotes are checked on the way, which gives better messages than a parser that comes to the end of
its input.
"""

from __future__ import annotations

import re

from evflow.errors import CodeError

_MAX_SOURCE = 1 << 18

TYPE_NAMES = {
    "string": "str", "bool": "bool", "size_t": "u64",
    "int8_t": "i8", "int16_t": "i16", "int32_t": "i32", "int64_t": "i64",
    "uint8_t": "u8", "uint16_t": "u16", "uint32_t": "u32", "uint64_t": "u64",
}  # fmt: skip
"""Names of types that are not keywords of C: a variable may have such a name, and then hides the type."""

REFUSED = {
    "goto": "'goto'", "typedef": "'typedef'", "struct": "a struct of one's own", "union": "a union",
    "enum": "an enum", "_Pragma": "a pragma", "extern": "'extern'", "inline": "'inline'",
    "restrict": "'restrict'", "sizeof": "'sizeof'", "_Alignas": "'_Alignas'", "_Alignof": "'_Alignof'",
    "_Atomic": "'_Atomic'", "_Generic": "'_Generic'", "_Noreturn": "'_Noreturn'",
    "_Static_assert": "'_Static_assert'", "_Thread_local": "'_Thread_local'",
}  # fmt: skip
"""Words that C has and Cod has not, and what they stand for."""

WORDS = {
    **dict.fromkeys("void char short int long float double signed unsigned _Bool _Complex".split(), "type"),
    **dict.fromkeys(TYPE_NAMES, "typename"),
    **dict.fromkeys(("const", "volatile"), "qualifier"),
    **dict.fromkeys(("static", "register", "auto"), "storage"),
    **{word: word for word in "break case continue default do else for if return switch while".split()},
    **dict.fromkeys(REFUSED, "refused"),
}
"""The kinds of the words that are not plain names."""

_TOKEN = re.compile(
    r"""
    (?: [ \t\n\r\f\v]++ | //[^\n]*+ | /\*(?s:.)*?\*/ )*+
    (?: (?P<prefix> (?:u8|[uUL])["'] )
      | (?P<word> [A-Za-z_$][0-9A-Za-z_$]*+ )
      | (?P<float> (?: 0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++
                     | (?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)? | [0-9]++[eE][+-]?[0-9]++
                   ) [fFlL]? (?![\w$.]) )
      | (?P<int> (?: 0[xX][0-9a-fA-F]++ | 0[bB][01]++ | 0[0-7]*+ | [1-9][0-9]*+ )
                 (?: [uU](?:ll|LL|[lL])? | (?:ll|LL|[lL])[uU]? )? (?![\w$.]) )
      | (?P<number> \.?[0-9][\w$.]*+ )
      | (?P<string> "(?:\\.|[^"\\\n])*+" )
      | (?P<char> '(?:\\.|[^'\\\n])*+' )
      | (?P<wrong> /\* | ["'\#] )
      | (?P<mark> <<= | >>= | \+\+ | -- | -> | && | \|\| | << | >> | [-<>=!*/%+&|^]=
                | [-+*/%&|^~!<>=?:;,.()[\]{}] )
      | (?P<end> \Z )
      | (?P<other> (?s:.) )
    )""",
    re.VERBOSE,
)
_CLOSING = {")": "(", "]": "[", "}": "{"}
_WRONG = {
    "/*": "the comment is never closed",
    '"': "the text is never closed",
    "'": "the character is never closed",
    "#": "there is no preprocessor in Cod",
}

Token = tuple[str, str, int]
"""Its kind, which of keywords and marks is their text; its text; where it stands."""


def tokens_of(source: str) -> tuple[list[Token], bool]:
    """The tokens with one for the end, and whether the text has statements.

    Args:
        source: the text.

    Raises:
        CodeError: the text is too long, its brackets or quotes do not pair, or there is what no Cod has.
    """
    if len(source) > _MAX_SOURCE:
        raise CodeError(f"the text has {len(source)} characters: expected at most {_MAX_SOURCE}", source)
    tokens: list[Token] = []
    opened: list[tuple[str, int]] = []
    is_block = False
    for match in _TOKEN.finditer(source):
        kind = match.lastgroup or ""
        text, at = match[kind], match.start(kind)
        if kind == "word":
            kind = WORDS.get(text, kind)
        elif kind == "mark":
            kind = text
            if text in "([{":
                opened.append((text, at))
                is_block = is_block or text == "{"
            elif text in _CLOSING:
                if not opened or opened.pop()[0] != _CLOSING[text]:
                    raise error_at(f"'{text}' closes nothing", source, at)
            elif text == ";":
                is_block = True
        elif kind == "end":
            break
        elif kind not in ("int", "float", "string", "char"):
            raise error_at(_bad(kind, text), source, at)
        tokens.append((kind, text, at))
    if opened:
        raise error_at(f"'{opened[-1][0]}' is never closed", source, opened[-1][1])
    end = tokens[-1][2] + len(tokens[-1][1]) if tokens else 0
    tokens.append(("end", "", end))
    return tokens, is_block or tokens[0][0] == "return"


def _bad(kind: str, text: str) -> str:
    """What is wrong with a piece of text that is not a token."""
    if kind == "wrong":
        return _WRONG[text]
    if kind == "number":
        return f"'{text[:40]}' is not a number of C"
    if kind == "prefix":
        return f"the prefix '{text[:-1]}' of a text or a character is not part of Cod"
    return f"the character {text!r} is not part of Cod"


def error_at(message: str, source: str, at: int) -> CodeError:
    """The error to raise for a place in the text.

    Args:
        message: what is wrong.
        source: the text.
        at: the place, as an offset.
    """
    line_start = source.rfind("\n", 0, at) + 1
    return CodeError(message, source, source.count("\n", 0, at) + 1, at - line_start + 1)
