"""The demos: real flights through a graph, past 100,000 subscriptions, out of Spark, and over tiles; and a
simulation whose output is staged.

``flights`` reads the data and ``graph`` describes the graph; ``show``, ``matching``, ``spark``, ``tiles`` and
``staging`` each run a demo and tell what came out, by ``output``.
"""
