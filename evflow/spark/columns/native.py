"""What the code that encodes rows and the code that decodes them have in common."""

from __future__ import annotations

from evflow.codgen.memory import Array, address
from evflow.codgen.native import Code

__all__ = ["call"]

# Rows up to which the interpreter lock is kept: giving it away costs more than they do.
_FEW = 2048


def call(code: Code, words: Array, rows: int) -> None:
    """Runs compiled code on a block of words; other threads run meanwhile if it takes a while."""
    (code.held if rows <= _FEW else code.free)(address(words))
