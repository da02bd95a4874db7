"""A worker without a model and without torch, for tests and for measuring all that is not the model.

Begin with `runner.py`; `__main__.py` is its process.
"""
