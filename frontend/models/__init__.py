"""Where a model's files lie, what it may be called, and what its files ask for.

Begin with `model_files.py`; `hub/` downloads.
"""
