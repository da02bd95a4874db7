"""Replay: the answers of an earlier run are the drafts of this one.

Begin with `replay.py`. `earlier_run.py` reads the earlier run's files, `answers.py` a line of them, and `index.py`
finds the answer that may be a prompt's.
"""
