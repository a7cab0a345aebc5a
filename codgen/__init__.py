"""Functions of stones, compiled at run time: two front ends, one typed tree, an interpreter and machine code.

``front.build`` makes the typed tree (``tree.py``) of Cod or of a Python function; ``interpret.py`` is its
meaning.
"""
