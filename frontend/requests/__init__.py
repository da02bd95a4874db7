"""Requests: checks callers' prompts, converts them for the engine, and collects the output of each.

Begin with `prompts.py` (the forms of prompts), then `door.py` (the checks) and `pending_request.py` (the answers).
"""
