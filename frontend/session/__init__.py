"""A model opened for use, in a process tree of its own or attached to the daemon's.

Begin with `session.py`, then `private.py`; `tree/` has the processes and the transport to them, `attached/` the
transport to the daemon.
"""
