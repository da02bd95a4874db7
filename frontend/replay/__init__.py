"""Replay: the answers of an earlier run are the drafts of this one.

Begin with `finder.py`, which finds the answer to a prompt. `earlier_run.py` reads the earlier run's files, `answers.py`
a line of them, and `index.py` remembers where each answer is.
"""
