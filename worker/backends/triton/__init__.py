"""Triton's kernels on a GPU: captured steps, their batches, their warm-up and what they take of memory.

Begin with `backend.py`, then `decoder.py`; `captures.py` is the order in which graphs are captured at the start.
"""
