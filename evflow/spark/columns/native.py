"""What the code that encodes rows and the code that decodes them have in common."""

from __future__ import annotations

from collections.abc import Callable

from evflow.codgen.llvm.ir import Body
from evflow.codgen.memory import Array, address
from evflow.codgen.native import Code

__all__ = ["call", "loop"]

# Rows up to which the interpreter lock is kept: giving it away costs more than they do.
_FEW = 2048


def call(code: Code, words: Array, rows: int) -> None:
    """Runs compiled code on a block of words; other threads run meanwhile if it takes a while."""
    (code.held if rows <= _FEW else code.free)(address(words))


def loop(body: Body, count: str, turn: Callable[[str], None]) -> None:
    """Writes a loop: ``turn`` writes what is done for each index below ``count`` (i64 operands)."""
    index = body.alloca("i64")
    body.do(f"store i64 0, ptr {index}")
    test, go, done = body.label(), body.label(), body.label()
    body.begin(test)
    i = body.let(f"load i64, ptr {index}")
    body.branch(body.let(f"icmp slt i64 {i}, {count}"), go, done)
    body.begin(go)
    turn(i)
    body.do(f"store i64 {body.let(f'add i64 {i}, 1')}, ptr {index}")
    body.jump(test)
    body.begin(done)
