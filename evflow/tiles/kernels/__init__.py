"""Loops over zones, tiles and rows, compiled when evflow is built.

State lies in arrays that the caller has made large enough; a kernel that has no room left for results returns
the row at which it stopped.
"""

from evflow.errors import FlowError
from evflow.matching.native import HAS_CODE

if not HAS_CODE:
    raise FlowError(
        "evflow.tiles has no machine code for this computer, and numba, which would compile it, is not "
        "installed: run pip install 'evflow[matching]'"
    )
