"""`penstock convert`: a model written anew with its projections as integers, in a process of its own.

Begin with `convert.py`; `conversion_plan.py` says what goes into which file.
"""
