"""The model families that run here, as rows of one table.

Begin with `table.py`; `family.py` defines a row. The other files hold the rows, sorted by what sets the families apart.
"""
