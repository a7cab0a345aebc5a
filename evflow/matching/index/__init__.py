"""The engine ``index``: compiled; each filter stands in the one list where an event finds it cheapest."""

from __future__ import annotations

from evflow.matching.index.engine import Index

__all__ = ["Index"]
