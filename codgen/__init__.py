"""Functions of stones, compiled at run time: two front ends, one typed tree, machine code.

``front.build`` makes the typed tree (``tree.py``) of Cod or of a Python function.
"""
