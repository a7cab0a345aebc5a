"""From a Python function to its text, its syntax tree, and the constants that it takes from around it.

The text of a ``lambda`` is found by the columns that its code object carries, so several may stand on one
line. A text is all that travels to another host: ``portable`` writes captured constants into it in place of
their names.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from types import CodeType, FunctionType

from msgspec import Struct, field
from msgspec.structs import replace

from evflow.errors import CodeError
from evflow.outside import shown

_MAX_SOURCE = 1 << 18

Constant = bool | int | float | str
_COROUTINE = "is a coroutine, which no stone waits for; write 'def', not 'async def'"
_DECORATED = "has a decorator, which a stone could not run; write the function without it"

FunctionNode = ast.FunctionDef | ast.Lambda


class PythonSource(Struct, frozen=True):
    """A Python function as text.

    Attributes:
        text: the ``def`` or ``lambda`` alone, without indentation.
        name: what to call it in an error, with its file and the line that it begins on; "" for a bare text.
        file: its file, "" for a bare text.
        line: the line in its file that the text begins on.
        constants: the numbers, texts and bools outside it that its names mean.
        modules: names that mean the module ``math``.
        functions: names that mean a function of ``math`` → its name there.
        others: names that mean another function outside it → the module of that function.
        unusable: names that mean something else outside it → the type of that.
    """

    text: str
    name: str = ""
    file: str = ""
    line: int = 1
    constants: dict[str, Constant] = field(default_factory=dict)
    modules: frozenset[str] = frozenset({"math"})
    functions: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)


def python_source(function: Callable[..., object]) -> PythonSource:
    """The source of a Python function.

    Raises:
        CodeError: it is not a plain function, has a decorator, or its source cannot be found.
    """
    if not isinstance(function, FunctionType):
        raise CodeError(
            f"{shown(function, 300)} is not a text of Cod and not a Python function; "
            'expected one of them, such as Filter("input.x > 3")'
        )
    code = function.__code__
    name = function.__qualname__.rpartition(".")[2]
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise CodeError(f"Python function {name} {_COROUTINE}")
    try:
        lines, _ = inspect.findsource(code)
    except (OSError, TypeError):
        raise CodeError(
            f"the source of Python function {name} cannot be found; give its text, or define it in a file"
        ) from None
    node = _find(code, "".join(lines))
    if node is None:
        raise CodeError(
            f"Python function {name} is not where its code says ({code.co_filename}); reload the file"
        )
    first = node.lineno - 1
    if isinstance(node, ast.Lambda):
        text = ast.get_source_segment("".join(lines), node) or ""
    else:
        text = textwrap.dedent("".join(lines[first : node.end_lineno])).rstrip() + "\n"
    outside = _captured(function)
    short = code.co_filename.replace("\\", "/").rpartition("/")[2]
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        raise CodeError(f"Python function {name} ({short} line {first + 1}) {_DECORATED}", text)
    known = {*outside.constants, *outside.modules, *outside.functions}
    unusable = {name: type(value).__name__ for name, value in _surroundings(function) if name not in known}
    return replace(outside, text=text, name=name, file=short, line=first + 1, unusable=unusable)


@lru_cache(maxsize=8)
def _functions(text: str) -> tuple[FunctionNode, ...]:
    """Every function in a file."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ()
    return tuple(n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Lambda)))


def _find(code: CodeType, text: str) -> FunctionNode | None:
    """The node that a code object was compiled from."""
    found = [n for n in _functions(text) if _matches(n, code)]
    if len(found) > 1:
        spans = set(code.co_positions())
        lambdas = [n for n in found if isinstance(n, ast.Lambda)]
        # A constant has no position in the code of some versions of Python.
        exact = [n for n in lambdas if _span(n.body) in spans] or [
            n for n in lambdas if _is_only(n.body, code)
        ]
        found = [*exact] or found
    if len({ast.get_source_segment(text, n) for n in found}) > 1:
        raise CodeError(
            f"there are several functions {code.co_name} on line {code.co_firstlineno} of "
            f"{code.co_filename}; write each on a line of its own"
        )
    return found[0] if found else None


def _matches(node: FunctionNode, code: CodeType) -> bool:
    names = tuple(a.arg for a in (*node.args.posonlyargs, *node.args.args))
    if names != code.co_varnames[: code.co_argcount]:
        return False
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return node.name == code.co_name and first == code.co_firstlineno


def _is_only(body: ast.expr, code: CodeType) -> bool:
    """Whether a body is a constant, and code has no other."""
    return isinstance(body, ast.Constant) and code.co_consts in ((body.value,), (None, body.value))


def _span(node: ast.expr) -> tuple[int | None, int | None, int | None, int | None]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _captured(function: FunctionType) -> PythonSource:
    """What the names of a function mean outside it."""
    captured, modules = PythonSource(""), set[str]()
    for name, value in _surroundings(function):
        plain = _plain(value)
        if plain is not None:
            captured.constants[name] = plain
        elif value is math:
            modules.add(name)
        elif getattr(value, "__module__", None) == "math":
            captured.functions[name] = str(getattr(value, "__name__", ""))
        elif callable(value) and getattr(builtins, name, None) is not value:
            captured.others[name] = str(getattr(value, "__module__", None) or type(value).__module__)
    return replace(captured, modules=frozenset(modules))


def _plain(value: object) -> Constant | None:
    """A value that can be captured, without the class that it may have beyond bool, int, float and str."""
    return next((kind(value) for kind in (bool, int, float, str) if isinstance(value, kind)), None)


def identity(function: Callable[..., object]) -> object:
    """What tells two Python functions apart: their code and what it takes from around them."""
    if not isinstance(function, FunctionType):
        return None
    outside = _captured(function)
    written = tuple((name, _written(value)) for name, value in outside.constants.items())
    called = (*outside.functions.items(), None, *outside.others.items())
    return function.__code__, written, outside.modules, called


def _surroundings(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The globals that a function may name, and its closure."""
    code = function.__code__
    yield from ((n, function.__globals__[n]) for n in code.co_names if n in function.__globals__)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a cell that is still empty
            yield name, cell.cell_contents


def plain_text(text: str) -> str:
    """A text with lines that end as ``ast`` counts them.

    Raises:
        CodeError: it is too long.
    """
    if len(text) > _MAX_SOURCE:
        raise CodeError(f"the text has {len(text)} characters: expected at most {_MAX_SOURCE}", text)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_python(text: str) -> tuple[FunctionNode, int, int]:
    """The syntax tree of a text, and how many lines and columns of line 1 its positions are too great by.

    Raises:
        CodeError: the text is not Python, or not one ``def`` or ``lambda``.
    """
    wrapped, lines, columns = text, 0, 0
    if text.lstrip().startswith("lambda"):
        wrapped, columns = f"({text}\n)", 1
    elif text[:1].isspace():
        wrapped, lines = f"if 1:\n{text}", 1
    try:
        body = ast.parse(wrapped).body
    except SyntaxError as error:
        line, column = max((error.lineno or 1) - lines, 1), error.offset or 1
        column = max(1, column - (columns if line == 1 else 0))
        rows = text.rstrip().split("\n")
        if line > len(rows):
            line, column = len(rows), len(rows[-1]) + 1
        raise CodeError(f"no valid Python: {error.msg}", text, line, column) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise CodeError(f"no valid Python: {error}", text) from None
    if len(body) == 1 and isinstance(body[0], ast.If) and lines:
        body = body[0].body
    node: ast.AST | None = body[0] if len(body) == 1 else None
    if isinstance(node, ast.Expr):
        node = node.value
    if isinstance(node, ast.AsyncFunctionDef):
        raise CodeError(f"Python function {node.name} {_COROUTINE}", text)
    if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
        raise CodeError("expected one 'def' or one 'lambda', and nothing beside it", text)
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        first = node.decorator_list[0]
        raise CodeError(
            f"Python function {node.name} {_DECORATED}",
            text,
            max(first.lineno - lines, 1),
            first.col_offset + 1,
        )
    return node, lines, columns


def portable(source: PythonSource) -> str:
    """The text with captured constants written out, so that it means the same elsewhere."""
    node, lines, columns = parse_python(source.text)
    replacements = sorted(
        _replacements(node, source), key=lambda r: (r[0].lineno, r[0].col_offset), reverse=True
    )
    rows = source.text.split("\n")
    for name, written in replacements:
        row = name.lineno - 1 - lines
        start = name.col_offset - (columns if row == 0 else 0)
        data = rows[row].encode()
        rows[row] = (data[:start] + written.encode() + data[start + len(name.id.encode()) :]).decode()
    return "\n".join(rows)


def _replacements(node: FunctionNode, source: PythonSource) -> Iterator[tuple[ast.Name, str]]:
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    local = {n.id for n in names if isinstance(n.ctx, ast.Store)} | {a.arg for a in node.args.args}
    for name in names:
        if name.id in local:
            continue
        if name.id in source.constants:
            yield name, _written(source.constants[name.id])
        elif name.id in source.modules and name.id != "math":
            yield name, "math"
        elif name.id in source.functions and source.functions[name.id] != name.id:
            yield name, f"math.{source.functions[name.id]}"


def _written(value: Constant) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "(1e999 - 1e999)" if math.isnan(value) else "1e999" if value > 0 else "(-1e999)"
    # Python refuses to write very long numbers in decimal.
    text = hex(value) if isinstance(value, int) and value.bit_length() > 64 else repr(value)
    return f"({text})" if text.startswith("-") else text
