"""The demo: a year of real flights through a graph of stones.

``flights`` reads the data, ``graph`` describes the graph, ``show`` runs it and tells what came out.
"""
