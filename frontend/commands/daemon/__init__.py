"""The subcommands that start a daemon, ask it something, or end it; `daemon_options.py` is how one is configured.

Begin with `serve.py`; the daemon itself is in `frontend/daemon`.
"""
