"""Recorded moves on Spark, matched as a system of tiles matches them while they happen.

State Managers and Tile Managers of ``evflow.tiles`` run in the tasks: those see the moves of entities, these
the moves in tiles, both in the order of time.
"""
