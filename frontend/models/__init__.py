"""Finds a model's files, by its name, folder or hub id, and reads what they ask for.

Begin with `model_files.py`; `hub/` downloads.
"""
