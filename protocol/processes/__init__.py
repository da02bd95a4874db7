"""Child processes: how they are started, connected, watched, recorded and ended.

Begin with `process.py`, the parent's side, then `child.py`, the child's own, and `sockets.py`, their connections.
"""
