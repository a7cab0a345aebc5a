"""Cod's text to a tree, by a parser of precedence.

What C has and Cod has not (pointers, goto, functions and structs of one's own) is refused here, where it
stands and by its name. Operators of one precedence make a loop and not a recursion, so only what the text
nests is nested here.
"""

from __future__ import annotations

from evflow.codgen.source.codnodes import (
    ID,
    ArrayRef,
    Assignment,
    BinaryOp,
    Break,
    Case,
    Cast,
    Compound,
    Constant,
    Continue,
    Decl,
    EmptyStatement,
    ExprList,
    For,
    FuncCall,
    If,
    InitList,
    Node,
    Return,
    StructRef,
    Switch,
    TernaryOp,
    Text,
    UnaryOp,
    While,
)
from evflow.codgen.source.codtext import REFUSED, TYPE_NAMES, WORDS, Token, error_at, tokens_of
from evflow.errors import CodeError

_MAX_DEPTH = 300
"""How deep the parser may be in expressions and statements: more than any text has that is translated."""

_OPERATORS = {"and": "&&", "or": "||", "not": "!"}
"""What people write who know Python."""

_COMMA, _ASSIGNED, _CHOICE, _UNARY, _POSTFIX = 0, 1, 2, 13, 14
_POWERS = {
    operator: power
    for power, operators in enumerate(
        [",", "= += -= *= /= %= <<= >>= &= |= ^=", "?", "||", "&&", "|", "^", "&", "== !=", "< > <= >=",
         "<< >>", "+ -", "* / %", "", ". -> [ ( ++ --"]
    )
    for operator in operators.split()
}  # fmt: skip
"""How tightly an operator behind an operand binds."""

_PREFIXES = frozenset("+ - ~ ! ++ -- * &".split())
_POINTERS = "Cod has no pointers"


def parse(source: str) -> Node:
    """Parses a text of Cod: an expression, or a block with or without its outer braces.

    Args:
        source: the text.

    Returns:
        An expression, or a ``Compound``.

    Raises:
        CodeError: the text is not Cod; points at the place.
    """
    tokens, is_block = tokens_of(source)
    if len(tokens) == 1:
        raise CodeError("the text is empty; expected an expression or a block with 'return'", source)
    parser = _Parser(source, tokens, is_block)
    try:
        tree = Compound(0, parser.block()) if is_block else parser.expression()
        parser.expect("end")
    except RecursionError:
        raise parser.too_deep() from None
    return tree


class _Parser:
    """Makes nodes of tokens; ``_next`` is the number of the first token that is not read yet.

    ``_hidden`` are the names of types that variables in scope have.
    """

    def __init__(self, source: str, tokens: list[Token], is_block: bool) -> None:
        self._source = source
        self._tokens = tokens
        self._is_block = is_block
        self._next = 0
        self._depth = 0
        self._hidden: frozenset[str] = frozenset()

    def _error(self, message: str, at: int) -> CodeError:
        return error_at(message, self._source, at)

    def _refused(self, what: str, at: int) -> CodeError:
        return self._error(f"{what} is not part of Cod", at)

    def _unexpected(self) -> CodeError:
        """The error to raise where the next token cannot stand."""
        kind, text, at = self._tokens[self._next]
        if kind == "refused":
            return self._refused(REFUSED[text], at)
        said = f"syntax error at '{text}'" if text else "syntax error at the end of the text"
        before = self._tokens[self._next - 1][1] if self._next else ""
        for word in (before, text):
            if word in _OPERATORS:
                return self._error(f"{said}; '{word}' is written {_OPERATORS[word]}", at)
        if self._is_block and before and before[-1] not in ";{}([.,=+-*/%<>&|^~!?:":
            said += "; perhaps a ';' is missing before it"
        return self._error(said, at)

    def expect(self, kind: str) -> None:
        """Reads a token of this kind, or refuses what stands there."""
        if self._tokens[self._next][0] != kind:
            raise self._unexpected()
        self._next += 1

    def too_deep(self) -> CodeError:
        """The error to raise where the text is nested too deeply."""
        return self._error("the text is nested too deeply", self._tokens[self._next][2])

    # --- expressions ---------------------------------------------------------------------------

    def expression(self, least: int = _COMMA) -> Node:
        """An expression of operators that bind at least so tightly."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.too_deep()
        tokens = self._tokens
        left = self._operand()
        while True:
            kind, text, _ = tokens[self._next]
            power = _POWERS.get(kind, -1)
            if power < least:
                break
            if power == _COMMA:
                left = ExprList(left.at, self._listed([left]))
                continue
            self._next += 1
            if power == _POSTFIX:
                left = self._postfix(left, kind)
            elif power > _CHOICE:
                left = BinaryOp(left.at, text, left, self.expression(power + 1))
            elif power == _ASSIGNED:
                left = Assignment(left.at, text, left, self.expression(_ASSIGNED))
            else:
                chosen = self.expression()
                self.expect(":")
                left = TernaryOp(left.at, left, chosen, self.expression(_CHOICE))
        self._depth -= 1
        return left

    def _listed(self, parts: list[Node]) -> list[Node]:
        """These expressions and those that follow, each behind a comma."""
        while self._tokens[self._next][0] == ",":
            self._next += 1
            parts.append(self.expression(_ASSIGNED))
        return parts

    def _operand(self) -> Node:
        """What stands before the first operator that has something on its left."""
        kind, text, at = self._tokens[self._next]
        if kind == "word" or text in self._hidden:
            self._next += 1
            return ID(at, text)
        if kind in ("int", "float", "char"):
            self._next += 1
            return Constant(at, kind, text)
        if kind == "string":
            parts = []
            while self._tokens[self._next][0] == "string":
                parts.append(self._tokens[self._next][1])
                self._next += 1
            return Text(at, parts)
        if kind == "(":
            self._next += 1
            return self._parenthesis(at)
        if kind not in _PREFIXES:
            raise self._unexpected()
        if kind in "*&":
            raise self._error(_POINTERS, at)
        self._next += 1
        return UnaryOp(at, text, self.expression(_UNARY))

    def _postfix(self, left: Node, kind: str) -> Node:
        """An operand with the operator behind it, whose first token is read."""
        following, text, at = self._tokens[self._next]
        if kind == ".":
            if following != "word" and text not in WORDS:
                raise self._unexpected()
            self._next += 1
            return StructRef(left.at, left, ID(at, text))
        if kind == "[":
            subscript = self.expression()
            self.expect("]")
            return ArrayRef(left.at, left, subscript)
        if kind == "(":
            args = [] if following == ")" else self._listed([self.expression(_ASSIGNED)])
            self.expect(")")
            return FuncCall(left.at, left, args)
        if kind == "->":
            arrow = self._tokens[self._next - 1][2]
            raise self._error(f"{_POINTERS}; write '.' instead of '->'", arrow)
        return UnaryOp(left.at, f"p{kind}", left)

    def _parenthesis(self, at: int) -> Node:
        """What an opening parenthesis begins that is not a call: a cast, or an expression."""
        kind = self._tokens[self._next][0]
        if kind == "{":
            raise self._refused("a block in an expression", at)
        if kind == "storage" or not self._is_declaration():
            inner = self.expression()
            self.expect(")")
            return inner
        words = self._specifiers([])[0]
        self._no_pointer()
        kind, _, place = self._tokens[self._next]
        if kind in ("[", "("):
            raise self._refused("an array type here" if kind == "[" else "a function of one's own", place)
        self.expect(")")
        if self._tokens[self._next][0] == "{":
            raise self._refused("a compound literal", at)
        return Cast(at, words, self.expression(_UNARY))

    # --- declarations --------------------------------------------------------------------------

    def _is_declaration(self) -> bool:
        kind, text, _ = self._tokens[self._next]
        return kind in ("type", "qualifier", "storage") or (kind == "typename" and text not in self._hidden)

    def _specifiers(self, storage: list[str]) -> tuple[list[str], bool]:
        """The words of a type, and whether 'const' is among its words; adds to the words of storage."""
        words, const = list[str](), False
        while True:
            kind, text, _ = self._tokens[self._next]
            if kind == "type" or (kind == "typename" and not words and text not in self._hidden):
                words.append(text)
            elif kind == "qualifier":
                const = const or text == "const"
            elif kind == "storage":
                storage.append(text)
            else:
                break
            self._next += 1
        if words or kind == "refused":
            return words, const
        raise self._error("a declaration needs a type", self._tokens[self._next - 1][2])

    def _no_pointer(self) -> None:
        kind, _, at = self._tokens[self._next]
        if kind == "*" or (kind == "(" and self._tokens[self._next + 1][0] == "*"):
            raise self._error(f"{_POINTERS}; a text is declared 'string name'", at)

    def _declaration(self) -> list[Decl]:
        """The variables of a declaration, which ends with a semicolon; behind it they hide types."""
        storage: list[str] = []
        words, const = self._specifiers(storage)
        declared = [self._declarator(words, "static" in storage, const)]
        while self._tokens[self._next][0] == ",":
            self._next += 1
            declared.append(self._declarator(words, "static" in storage, const))
        self.expect(";")
        for variable in declared:
            if variable.name in TYPE_NAMES:
                self._hidden |= {variable.name}
        return declared

    def _declarator(self, words: list[str], static: bool, const: bool) -> Decl:
        opened = 0
        self._no_pointer()
        while self._tokens[self._next][0] == "(":
            opened += 1
            self._next += 1
            self._no_pointer()
        kind, name, at = self._tokens[self._next]
        if kind not in ("word", "typename"):
            raise self._unexpected()
        self._next += 1
        dims: list[Node | None] = []
        while True:
            kind = self._tokens[self._next][0]
            if kind == "[":
                self._next += 1
                dims.append(None if self._tokens[self._next][0] == "]" else self.expression(_ASSIGNED))
                self.expect("]")
            elif kind == ")" and opened:
                opened -= 1
                self._next += 1
            elif kind == "(":
                raise self._refused("a function of one's own", at)
            elif opened:
                raise self._unexpected()
            else:
                break
        init = None
        if kind == "=":
            self._next += 1
            init = self._initial()
        return Decl(at, name, words, dims, static, const, init)

    def _initial(self) -> Node:
        """An initial value, or several in braces."""
        kind, _, at = self._tokens[self._next]
        if kind != "{":
            return self.expression(_ASSIGNED)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.too_deep()
        self._next += 1
        values: list[Node] = []
        while (kind := self._tokens[self._next][0]) != "}":
            if kind in (".", "["):
                raise self._refused("a named initialiser", self._tokens[self._next][2])
            values.append(self._initial())
            if self._tokens[self._next][0] != ",":
                break
            self._next += 1
        self.expect("}")
        self._depth -= 1
        return InitList(at, values)

    # --- statements ----------------------------------------------------------------------------

    def block(self) -> list[Node]:
        """The statements up to a closing brace or the end, in a scope of their own."""
        items: list[Node] = []
        hidden = self._hidden
        while self._tokens[self._next][0] not in ("}", "end"):
            self._item(items)
        self._hidden = hidden
        return items

    def _item(self, items: list[Node]) -> None:
        """Adds a statement, or what a declaration declares."""
        if self._is_declaration():
            items += self._declaration()
        else:
            items.append(self._statement())

    def _statement(self) -> Node:
        kind, text, at = self._tokens[self._next]
        parse = _STATEMENTS.get(kind)
        if parse is None:
            return self._expression_statement(kind, text, at)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.too_deep()
        self._next += 1
        statement = parse(self, at)
        self._depth -= 1
        return statement

    def _expression_statement(self, kind: str, text: str, at: int) -> Node:
        following = self._tokens[self._next + 1][0] if kind == "word" else ""
        if following == ":":
            raise self._refused("a label", at)
        if text == "asm" and following in ("(", "qualifier"):
            raise self._refused("'asm'", at)
        if kind in ("case", "default"):
            raise self._refused(f"'{kind}' outside of a switch", at)
        statement = self.expression()
        self.expect(";")
        return statement

    def _condition(self) -> Node:
        self.expect("(")
        condition = self.expression()
        self.expect(")")
        return condition

    def _optional(self, end: str) -> Node | None:
        """An expression, or nothing, before this mark."""
        found = None if self._tokens[self._next][0] == end else self.expression()
        self.expect(end)
        return found

    def _compound(self, at: int) -> Node:
        items = self.block()
        self.expect("}")
        return Compound(at, items)

    def _empty(self, at: int) -> Node:
        return EmptyStatement(at)

    def _if(self, at: int) -> Node:
        condition, then, otherwise = self._condition(), self._statement(), None
        if self._tokens[self._next][0] == "else":
            self._next += 1
            otherwise = self._statement()
        return If(at, condition, then, otherwise)

    def _while(self, at: int) -> Node:
        return While(at, self._condition(), self._statement(), False)

    def _do(self, at: int) -> Node:
        body = self._statement()
        self.expect("while")
        condition = self._condition()
        self.expect(";")
        return While(at, condition, body, True)

    def _for(self, at: int) -> Node:
        hidden = self._hidden
        self.expect("(")
        init: list[Node] = []
        if self._is_declaration():
            init += self._declaration()
        elif (first := self._optional(";")) is not None:
            init.append(first)
        condition, step = self._optional(";"), self._optional(")")
        body = self._statement()
        self._hidden = hidden
        return For(at, init, condition, step, body)

    def _switch(self, at: int) -> Node:
        condition, hidden = self._condition(), self._hidden
        sections: list[Node] = []
        items = sections
        if self._tokens[self._next][0] != "{":
            items = self._labels(sections, items)
            items.append(self._statement())
            return Switch(at, condition, sections)
        self._next += 1
        while self._tokens[self._next][0] != "}":
            items = self._labels(sections, items)
            if self._tokens[self._next][0] != "}":
                self._item(items)
        self._next += 1
        self._hidden = hidden
        return Switch(at, condition, sections)

    def _labels(self, sections: list[Node], items: list[Node]) -> list[Node]:
        """Begins a section for each label that stands here; where the statements go that follow."""
        while (token := self._tokens[self._next])[0] in ("case", "default"):
            self._next += 1
            label = self.expression(_CHOICE) if token[0] == "case" else None
            self.expect(":")
            items = []
            sections.append(Case(token[2], label, items))
        return items

    def _break(self, at: int) -> Node:
        self.expect(";")
        return Break(at)

    def _continue(self, at: int) -> Node:
        self.expect(";")
        return Continue(at)

    def _return(self, at: int) -> Node:
        return Return(at, self._optional(";"))


_STATEMENTS = {
    "{": _Parser._compound,
    ";": _Parser._empty,
    "if": _Parser._if,
    "while": _Parser._while,
    "do": _Parser._do,
    "for": _Parser._for,
    "switch": _Parser._switch,
    "break": _Parser._break,
    "continue": _Parser._continue,
    "return": _Parser._return,
}
"""Statements that begin with a word or mark of their own, which is read when their method is called."""
