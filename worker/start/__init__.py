"""A worker's start: device, ranks, weights, the memory plan, and the allocation of the KV memory.

Begin with `start.py`; `memory.py` is the plan, `device_memory.py` the memory of a CPU or a GPU.
"""
