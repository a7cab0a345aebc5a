"""The functions that stone code may call, and the system values it may read."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LIBRARY", "SYSTEM", "LibraryFunction"]


class LibraryFunction(NamedTuple):
    """Parameter types and result type, each one of ``tree.VALUE_TYPES``."""

    parameters: tuple[str, ...]
    result: str


_UNARY = (
    "sin cos tan asin acos atan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p "
    "sqrt cbrt floor ceil trunc round fabs"
).split()
_BINARY = "pow fmod atan2 hypot copysign fmin fmax".split()

LIBRARY: dict[str, LibraryFunction] = {
    **{name: LibraryFunction(("f64",), "f64") for name in _UNARY},
    **{name: LibraryFunction(("f64", "f64"), "f64") for name in _BINARY},
    "abs": LibraryFunction(("i64",), "i64"),  # wraps for the least i64
    "isnan": LibraryFunction(("f64",), "bool"),
    "isfinite": LibraryFunction(("f64",), "bool"),
    "starts_with": LibraryFunction(("str", "str"), "bool"),
    "ends_with": LibraryFunction(("str", "str"), "bool"),
    "contains": LibraryFunction(("str", "str"), "bool"),
    "length": LibraryFunction(("str",), "i64"),  # bytes
}
"""The functions by name; math.h's have its meaning and rounding (``round`` halves away from zero)."""

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
