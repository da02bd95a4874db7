"""Products of rows with weights in every number format.

Begin with `linear.py`; `few_rows/` has those of decode steps, `tiles/` what all of them share.
"""
