"""A client of the daemon: implements `Session` for a model whose process tree belongs to the daemon.

Begin with `choice.py`, which decides whether to attach, then `session.py` and `transport.py`.
"""

from .choice import attach

__all__ = ["attach"]
