"""A worker's start: device, ranks, weights, the memory plan, and the allocation of the KV memory.

Begin with `start.py`. `load.py` builds the model, `memory/` plans its memory, and `device_memory.py` measures the
memory of a CPU or a GPU.
"""
