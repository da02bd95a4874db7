"""Finds a model's files by its name, folder or hub id, and reads its defaults.

Begin with `model_files.py`; `hub/` downloads.
"""
