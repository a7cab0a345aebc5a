"""The demo: a year of real flights through a graph of stones.

``flights`` reads the data, ``graph`` describes the graph, ``result`` says what it finds, ``show`` runs it and
tells that; ``nodes`` and ``part`` are the two ends of a run in several processes.
"""
