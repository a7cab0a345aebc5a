"""The demos: a year of real flights through a graph, past 100,000 subscriptions, and out of Spark; and a
simulation whose output is staged.

``flights`` reads the data and ``graph`` describes the graph; ``show``, ``matching``, ``spark`` and
``staging`` each run a demo and tell what came out, by ``output``.
"""
