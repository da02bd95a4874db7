"""Answers requests: the steps that all generating endpoints share, the kinds of reply, errors and logs.

Begin with `answering.py`, then `generation.py`; `reply.py` has the forms of replies.
"""
