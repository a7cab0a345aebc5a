"""Schemas of Spark and of evflow, and rows of Arrow to events and back, by compiled code."""
