"""Maps the names and shapes of families' stored tensors to those that layers ask for.

Begin with `find_layout.py`, which recognizes the layouts.
"""
