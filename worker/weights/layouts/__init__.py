"""The names and shapes in which families store their tensors, shown as the ones that layers ask for.

Begin with `find_layout.py`, which tells them apart.
"""
