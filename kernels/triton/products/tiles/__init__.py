"""The tiles of products: where one lies, how its sums are made in each number format, and how parts are added.

Begin with `tiles.py`.
"""
