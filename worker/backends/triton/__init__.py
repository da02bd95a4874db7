"""Triton's kernels on a GPU: captured steps, their batches and their memory.

Begin with `backend.py`, then `decoder.py`; `graph_capture.py` captures all graphs at the start, in the order of sizes.
"""
