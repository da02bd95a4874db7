"""Faster paths that only a measurement on a GPU can justify. Each has a switch (`../launch/switches.py`), which is off.

Only the backend uses them: it takes `operations.py` if a switch is on. Their tests are long. What a GPU shows to be
faster (`scripts/check_gpu` measures both ways) moves out of here, and what it doesn't, goes.
"""
