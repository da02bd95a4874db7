"""Requests: what callers give, checked and turned into what the engine takes, and what comes back of each.

Begin with `prompts.py` (what may be given), then `door.py` (the checks) and `pending_request.py` (the answers).
"""
