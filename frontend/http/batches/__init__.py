"""Batches: jobs of clients of the server, run below people's requests and kept through restarts.

Begin with `service.py`; `running.py` answers one batch, `rules.py` holds what a server allows and people's precedence.
"""
