"""Spark's format ``evflow``: its options, writers and readers."""
