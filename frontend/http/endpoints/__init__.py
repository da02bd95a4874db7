"""The endpoints' work, a file for each kind: from a decoded body to a reply.

Begin with `completions.py`, the shortest of those that generate; `../operations.py` lists all endpoints.
"""
