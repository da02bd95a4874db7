"""Subcommands that start, query or end a daemon; `daemon_options.py` has its command-line options.

Begin with `serve.py`; the daemon itself is in `frontend/daemon`.
"""
