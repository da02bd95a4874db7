"""The engine decides which tokens of which request each step computes, and which KV blocks a request holds.

It works with integers only: no tensors, no text, no torch, and no imports from rooms other than `protocol`. Begin with
`scheduler.py`; `admission/` admits requests, `memory/` allocates their blocks, and `decoding/` has the ways to get
tokens.
"""
