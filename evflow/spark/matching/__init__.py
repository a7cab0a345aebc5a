"""Matching on Spark: which events of a DataFrame satisfy which subscriptions of another.

Two plans: the index of all subscriptions goes to every executor as a file that is mapped into memory
(``broadcast``), or events and subscriptions meet by where they are (``tiles``), so that no task needs more
than a tile's.
"""

from __future__ import annotations

from evflow.spark.matching.matches import Index, explain, index, match
from evflow.spark.matching.planning import Explanation

__all__ = ["Explanation", "Index", "explain", "index", "match"]
