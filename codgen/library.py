"""The functions that stone code may call, and the system values it may read: a row each.

The front ends, the costs and the machine code of a function follow from its row; what it computes is in the
oracle of the tests (``tests/codgen/functions.py``).
"""

from __future__ import annotations

from typing import NamedTuple


class LibraryFunction(NamedTuple):
    """A function of the library.

    Attributes:
        parameters, result: types, each one of ``tree.VALUE_TYPES``.
        steps: what a call costs (``costs.py``), besides what depends on the length of texts.
        native: "C" for a function of the C library, "llvm" for an intrinsic of LLVM; "" where the back end
            has code for it (``llvm/expressions.py``, ``llvm/texts.py``).
    """

    parameters: tuple[str, ...]
    result: str
    steps: int = 4
    native: str = ""


def _floats(names: str, steps: int, native: str = "", parameters: int = 1) -> dict[str, LibraryFunction]:
    """Functions of f64 that give f64."""
    return {name: LibraryFunction(("f64",) * parameters, "f64", steps, native) for name in names.split()}


LIBRARY: dict[str, LibraryFunction] = {
    **_floats("floor ceil trunc round rint fabs", 2, "llvm"),
    **_floats("sqrt", 20, "llvm"),
    **_floats("exp exp2 expm1 log log2 asin acos", 20, "C"),
    **_floats("sinh cosh tanh log10 log1p", 30, "C"),
    **_floats("sin cos tan atan cbrt", 50, "C"),
    **_floats("copysign", 2, "llvm", 2),
    **_floats("fmin fmax", 2, "", 2),
    **_floats("hypot fmod", 30, "C", 2),
    **_floats("atan2", 50, "C", 2),
    **_floats("pow", 80, "C", 2),
    "abs": LibraryFunction(("i64",), "i64", 2),  # wraps for the least i64
    "isnan": LibraryFunction(("f64",), "bool", 2),
    "isfinite": LibraryFunction(("f64",), "bool", 2),
    "starts_with": LibraryFunction(("str", "str"), "bool"),
    "ends_with": LibraryFunction(("str", "str"), "bool"),
    "contains": LibraryFunction(("str", "str"), "bool"),
    "length": LibraryFunction(("str",), "i64"),  # bytes
}
"""The functions by name; math.h's have its meaning and rounding (``round`` halves away from zero, ``rint`` to
even)."""

SYSTEM: dict[str, str] = {
    "time": "seconds since 1970-01-01 UTC",
    "load": "load average of the last minute",
    "free_memory": "bytes of memory available",
    "cores": "processor cores",
    "bandwidth": "bytes a second that the network carries, as measured; 0 if not known yet",
    "round_trip": "seconds from here to the peer and back, as measured; 0 if not known yet",
    "queued_bytes": "bytes of the events that wait for the network",
    "queued_events": "events that wait for the network",
}
"""Values of the host and its network, f64, called without arguments; each is read once a batch.

In a congestion handler those of the network are its own link's, elsewhere the node's.
"""
