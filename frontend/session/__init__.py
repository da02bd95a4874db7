"""A model opened for use, in a process tree of its own or attached to the daemon's.

Begin with `opened.py`; `session.py` is the private one, `attached/` the daemon's, `tree/` the processes.
"""
