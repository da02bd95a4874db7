"""The endpoints' work, from a decoded body to a reply: one file for each kind.

Begin with `completions.py`, the shortest of those that generate; `../operations.py` lists all endpoints.
"""
