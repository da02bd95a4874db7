"""The backends, one folder each: torch's operations anywhere, native kernels on a CPU, Triton's kernels on a GPU.

Begin with `backend.py`, the interface of all of them; `select.py` chooses one when a model loads.
"""
