"""Starts, watches and ends the processes of one model, and exchanges messages with them.

Begin with `tree.py`, then `transport.py`; `tree_watch.py` notices processes that hang.
"""
