"""The ways of computing a model, a room each: torch's operations anywhere, native kernels on a CPU, Triton's on a GPU.

Begin with `backend.py`, the interface of all of them; `select.py` chooses one when a model loads.
"""
