"""Which request computes what in which step, and which KV blocks it holds: integers only.

Knows nothing of tensors or text; imports no torch and no other room than `protocol`.
"""
