"""Allocates the workers' memory: the blocks of each sequence, those that can be found again, and preemption.

Begin with `cache.py`, which combines all groups of layers; `group_memory.py` is their common interface. `preemption.py`
chooses the sequences to preempt, `offload.py` the copies in CPU memory, `disk.py` what is kept on disk.
"""
