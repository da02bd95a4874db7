"""`penstock convert`: rewrites a model with its projections as integers, in a separate process.

Begin with `convert.py`; `conversion_plan.py` assigns tensors to files.
"""
