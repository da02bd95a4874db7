"""What of the workers' memory each sequence holds, what can be found again, and who gives it up when none is free.

Begin with `cache.py`, which asks all groups of layers; `group_memory.py` is what they have in common. `preemption.py`
says who gives way, `offload.py` what is kept in the CPU's memory.
"""
