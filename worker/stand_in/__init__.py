"""A worker without a model or torch, for tests and for measuring everything except the model.

Begin with `runner.py`; `__main__.py` is its process.
"""
