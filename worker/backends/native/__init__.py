"""Native kernels on a CPU: packed weights, a decoder that replays the calls it has recorded, fast decode steps.

Begin with `backend.py`, then `decoder.py`.
"""
