"""The parts of a layer and the ways in which families differ in each: heads, norms, positions, experts, mixers.

Begin with `norms.py`, the shortest. A row of `../families/` is made of them.
"""
