"""What computes a model: torch's operations anywhere, native kernels on a CPU, Triton's on a GPU; a room for each.

Begin with `backend.py`, what a model asks of any of them, and `choice.py`, which is chosen once, when a model loads.
"""
