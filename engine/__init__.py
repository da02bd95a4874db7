"""The engine decides which request computes what in which step, and which KV blocks it holds.

It computes with integers only: no tensors, no text, no torch, and no imports from other rooms than `protocol`. Begin
with `scheduler.py`; requests come in by `admission/`, hold blocks of `memory/`, get their tokens as `decoding/` says.
"""
